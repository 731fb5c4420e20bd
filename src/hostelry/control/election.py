"""Election of the leader among several controls: the loop in a thread, the term, the route.

The loop reads the lease and carries out the decision of `lease.decide`. It runs in a separate
thread, so that a long plan on the event loop does not cost the lease. If the event loop hangs, the
supervisor kills the process, which ends its session with the database.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.errors import HostelryError
from hostelry.base.json_response import JsonResponse
from hostelry.base.peers import LeaderEpoch
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
JOIN_S = 5.0


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a control, and its right to change them.

    Writes to `database`, and so to `state`, raise Fenced once the term is over. Acts that no write
    precedes call `check`, which blocks and raises Fenced, too. `leader` returns the body of GET
    /internal/leader. A single control has no `epoch` (None).
    """

    state: State
    database: Database
    leader: Callable[[], dict[str, Any]]
    epoch: LeaderEpoch | None = None
    check: Callable[[], None] = lambda: None


class LeaseTable(Protocol):
    """The lease in the database (`store.lease_rows.LeaseRows`)."""

    def look(self) -> LeaseLook:
        """Read the lease, and whether its holder has a session."""
        ...

    def acquire(self, seen: LeaderLease | None, reason: str, floor: int = 0) -> int | None:
        """Take the lease durably, and return the next epoch, which is above `floor`.

        None if the lease has changed since it was `seen`.
        """
        ...

    def renew(self, epoch: int) -> bool:
        """Renew the lease. False if this control does not hold it any more."""
        ...

    def release(self, epoch: int) -> None:
        """Give up the lease, so that a standby can take it at once."""
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
        table: the lease. No other code uses the object.
        me: a name that no other process has, now or later.
        steady_s: seconds of a monotonic clock.
        elected: called once with the epoch with which this process leads, and the reason.
        superseded: called with the reason when the term is over. It ends the process.
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
        """Start the thread of the election."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and release the lease. Blocks for a few seconds at most."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def raise_floor(self, newest: int) -> None:
        """Note that an agent obeys the epoch `newest`. Thread-safe.

        If this control still holds the lease, its database is older than the epoch, for example
        after a restore, or is another database. Then the election raises the epoch above `newest`.
        This term ends, and agents obey the next term.
        """
        self._floor = max(self._floor, newest)

    def turn(self) -> float:
        """Read the lease and act on it. Returns the seconds to wait until the next turn."""
        try:
            self._take_turn()
        except HostelryError as error:
            self._seen = None  # until the next look, the lease may change unnoticed
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
        decision = decide(self._me, self._epoch, look, self._measure_unchanged_s(look))
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

    def _measure_unchanged_s(self, look: LeaseLook) -> float:
        now = self._steady_s()  # read after the look, which may take long
        if self._seen is None or self._seen[0] != look.lease:
            self._seen = (look.lease, now)
        return now - self._seen[1]

    def _lead(self, epoch: int, reason: str) -> None:
        self._epoch = epoch
        self._elected(epoch, reason)


class LeaderRoutes:
    """GET /internal/leader. Concurrent requests share one call of `document`.

    While a database hangs, clients ask often. One thread per request would use up all threads.
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


def read_document(database: Database, me: str) -> dict[str, Any]:
    """The leader, as the control `me` knows it. No leader if the database does not answer."""
    try:
        return build_document(read_leadership(database), me)
    except HostelryError as error:
        return build_document(Leadership(), me) | {"trouble": str(error)}


def build_document(found: Leadership, me: str) -> dict[str, Any]:
    """The body of GET /internal/leader.

    Addresses are for programs, `members` and `changes` (newest first) for people.
    """
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
