"""Election of the leader among several controls: the loop in a thread, the term, the route."""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.epoch_header import LeaderEpoch
from hostelry.base.errors import HostelryError
from hostelry.base.json_response import JsonResponse
from hostelry.home.home import UpConfig
from hostelry.store.database import Database
from hostelry.store.leaders import Leadership, read_leadership
from hostelry.store.lease import (
    POLL_S,
    RENEW_S,
    Acquire,
    LeaderLease,
    LeaseLook,
    Renew,
    StandBy,
    StepDown,
    decide,
)
from hostelry.store.records import State

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """The records of a control, and its right to change them.

    `epoch` is None for a control without others. Writes to `database`, and so to `state`, raise
    Fenced once the term is over; so does `check`, which blocks, for an act that no write precedes.
    `leader` is the body of GET /internal/leader.
    """

    state: State
    database: Database
    leader: Callable[[], dict[str, Any]]
    epoch: LeaderEpoch | None = None
    check: Callable[[], None] = lambda: None


# The election of this process: looks at the lease and does what `lease.decide` says, in a thread.
#
# The thread is no part of the event loop: a long plan does not cost the lease. A process whose loop
# hangs is killed by its supervisor, which ends its session with the database.


JOIN_S = 5.0


class LeaseTable(Protocol):
    """The lease of the database; see `store.lease_rows.LeaseRows`."""

    def look(self) -> LeaseLook:
        """The lease, and whether its holder has a session."""
        ...

    def acquire(self, seen: LeaderLease | None, reason: str, floor: int = 0) -> int | None:
        """The next epoch, durably mine; None where the lease is not as it was `seen` any more.

        It is above `floor`, too.
        """
        ...

    def renew(self, epoch: int) -> bool:
        """Renew; False where it is not mine any more."""
        ...

    def release(self, epoch: int) -> None:
        """Let a standby have it at once."""
        ...

    def register(self) -> None:
        """Note that this control runs."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


class LeaderElection:
    """The election of the control `me`.

    Args:
        table: the lease; used by this alone.
        me: names this process, never another.
        steady_s: a clock that only goes forward.
        elected: called once, with the epoch that this process leads with, and why.
        superseded: called with the reason why that is over; it ends the process.
    """

    def __init__(
        self,
        table: LeaseTable,
        me: str,
        steady_s: Callable[[], float],
        elected: Callable[[int, str], None],
        superseded: Callable[[str], None],
    ) -> None:
        self._table = table
        self._me = me
        self._steady_s = steady_s
        self._elected = elected
        self._superseded = superseded
        self._epoch: int | None = None
        self._seen: tuple[LeaderLease | None, float] | None = None
        self._registered_at: float | None = None
        self._has_trouble = False
        self._floor = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    def start(self) -> None:
        """Take part from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Take part no more and release the lease; blocks, for no more than a few seconds."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def refused(self, newest: int) -> None:
        """An agent obeys the epoch `newest`; from any thread.

        Where the lease is mine nevertheless, the database is an earlier or another one, as of a
        backup: the epoch is raised above it, which ends this term and lets the next one act.
        """
        self._floor = max(self._floor, newest)

    def turn(self) -> float:
        """Look, act, and the seconds until the next turn."""
        try:
            self._take_turn()
        except HostelryError as error:
            self._seen = None  # of the time until the next look nothing is known
            if not self._has_trouble:
                LOG.warning("the lease cannot be read or renewed: %s; will be tried again", error)
            self._has_trouble = True
        else:
            if self._has_trouble:
                LOG.info("the lease can be read again")
            self._has_trouble = False
        return POLL_S if self._epoch is None or self._has_trouble else RENEW_S

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(self.turn())
        try:
            if self._epoch is not None:
                self._table.release(self._epoch)
        except HostelryError as error:
            LOG.warning("the lease is not released and will expire: %s", error)
        self._table.close()

    def _take_turn(self) -> None:
        now = self._steady_s()
        if self._registered_at is None or now - self._registered_at >= RENEW_S:
            self._table.register()
            self._registered_at = now
        look = self._table.look()
        decision = decide(self._me, self._epoch, look, self._unchanged_s(look))
        match decision:
            case Acquire(reason):
                epoch = self._table.acquire(look.lease, reason)
                if epoch is not None:
                    self._lead(epoch, reason)
            case Renew(epoch) if self._floor > epoch:
                reason = f"an agent obeys epoch {self._floor}, which this database does not know"
                self._table.acquire(look.lease, reason, self._floor)
            case Renew(epoch):
                if self._table.renew(epoch) and self._epoch is None:
                    self._lead(epoch, "the answer to its acquisition was lost")
            case StepDown(reason):
                self._superseded(reason)
            case StandBy():
                pass

    def _unchanged_s(self, look: LeaseLook) -> float:
        now = self._steady_s()  # after the look, which may have taken long
        if self._seen is None or self._seen[0] != look.lease:
            self._seen = (look.lease, now)
        return now - self._seen[1]

    def _lead(self, epoch: int, reason: str) -> None:
        self._epoch = epoch
        self._elected(epoch, reason)


class LeaderRoutes:
    """The route, over a function that reads who leads, once for all that ask meanwhile.

    They ask often where a database hangs, and would take every thread.
    """

    def __init__(self, document: Callable[[], dict[str, Any]]) -> None:
        self.document = document
        self._reading: asyncio.Task[dict[str, Any]] | None = None

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/leader", self.leader, methods=["GET"]),)

    async def leader(self, _request: Request) -> Response:
        """GET /internal/leader."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(asyncio.to_thread(self.document))
        return JsonResponse(await asyncio.shield(self._reading))


def alone(config: UpConfig) -> dict[str, Any]:
    """The document of a control that has no others."""
    address = own_address(config)
    return {"leader": address, "epoch": 0, "controls": [address]}


def read_document(database: Database, me: str) -> dict[str, Any]:
    """The document of the control `me` of several; no leader while the database does not answer."""
    try:
        return leader_document(read_leadership(database), me)
    except HostelryError as error:
        return leader_document(Leadership(), me) | {"trouble": str(error)}


def leader_document(found: Leadership, me: str) -> dict[str, Any]:
    """The body: addresses for programs; `members` and `changes` (newest first) for people."""
    leader = found.leader
    return {
        "leader": None if leader is None else leader.address,
        "epoch": found.epoch,
        "controls": list(dict.fromkeys(it.address for it in found.controls)),
        "members": [{**asdict(it), "leads": it == leader} for it in found.controls],
        "changes": [asdict(it) for it in found.changes],
        "me": me,
        "trouble": None,
    }


def own_address(config: UpConfig) -> str:
    """Where this host's control is reached from others."""
    return config.control_address
