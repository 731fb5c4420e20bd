"""The leader among several controls, as a host that is none of them finds it.

`GET /internal/leader` of any control answers the leader's address, its epoch and all controls. The
leader itself is asked most of the time; where it does not confirm that it leads, all are asked.

answers of the controls asked            view
---------------------------------------  -------------------------------------------------------
some have a leader                       that of the highest epoch
none has one                             no leader, and why
an epoch below that of the present view  not used: a control that was cut off or frozen answered
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.json import decode
from hostelry.dataplane.http.reply import UpstreamError
from hostelry.dataplane.http.upstream import Timeouts, Upstream

log = logging.getLogger(__name__)
POLL_S = 0.4
SUSPECT_PAUSE_S = 0.1
ASK_TIMEOUTS = Timeouts(total_s=0.5, connect_s=0.4)
MAX_ANSWER_BYTES = 64 * 1024
MAX_CONTROLS = 64
NONE_ASKED = "no control was asked yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderView:
    """The leader's address and epoch, and the addresses of all controls.

    `leader` None: there is none, for the reason `cause`.
    """

    leader: str | None = None
    epoch: int = 0
    controls: tuple[str, ...] = ()
    cause: str = NONE_ASKED


class LeaderAnswer(msgspec.Struct):
    """Body of GET /internal/leader."""

    leader: str | None = None
    epoch: int = 0
    controls: list[str] = msgspec.field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlAnswer:
    """One control's answer, or why there is none."""

    address: str
    answer: LeaderAnswer | None = None
    failure: str = ""


def next_view(view: LeaderView, asked: Sequence[ControlAnswer]) -> LeaderView:
    """The view after these answers; see the module's table."""
    answers = [it.answer for it in asked if it.answer is not None]
    newest = max(answers, key=lambda it: (it.epoch, it.leader is not None), default=None)
    if newest is None:
        failures = "; ".join(f"{it.address}: {it.failure}" for it in asked)
        return LeaderView(
            epoch=view.epoch,
            controls=view.controls,
            cause=f"no control can be reached ({failures or 'none is known'})",
        )
    if newest.epoch < view.epoch:
        return LeaderView(
            epoch=view.epoch,
            controls=view.controls,
            cause=f"the controls that answer know epoch {newest.epoch}, not {view.epoch}",
        )
    controls = tuple(dict.fromkeys(newest.controls))[:MAX_CONTROLS] or view.controls
    cause = "" if newest.leader else "no control leads at the moment"
    return LeaderView(leader=newest.leader, epoch=newest.epoch, controls=controls, cause=cause)


class LeaderSource(Protocol):
    """The present view, and its changes."""

    @property
    def view(self) -> LeaderView:
        """The leader as it is known now."""
        ...

    def changed(self) -> "asyncio.Future[None]":
        """Done once there is another leader than now, or none; the caller may cancel it."""
        ...

    def suspect(self, leader: str) -> None:
        """The leader at that address failed a request: look soon."""
        ...


@dataclass(slots=True)
class Waiters:
    """Futures that `wake` sets; each may be cancelled by who waits."""

    waiting: set["asyncio.Future[None]"] = field(default_factory=set)

    def add(self) -> "asyncio.Future[None]":
        """One more."""
        made = asyncio.get_running_loop().create_future()
        self.waiting.add(made)
        made.add_done_callback(self.waiting.discard)
        return made

    def wake(self) -> None:
        """Set all that wait."""
        for waiter in tuple(self.waiting):
            if not waiter.done():
                waiter.set_result(None)


class AskedControls:
    """The leader as the controls answer who it is.

    Args:
        pool: connections.
        internal_key: of calls between the platform's own processes.
        seeds: addresses of controls that are known from before, at least one.
        clock: waiting.
        keep: is called with the addresses of all controls when these change, for a next start.
    """

    def __init__(
        self,
        pool: Upstream,
        internal_key: str,
        seeds: Iterable[str],
        clock: Clock,
        keep: Callable[[tuple[str, ...]], Awaitable[None]],
    ) -> None:
        self._pool = pool
        self._internal_key = internal_key
        self._seeds = tuple(seeds)
        self._clock = clock
        self._keep = keep
        self._view = LeaderView(controls=self._seeds)
        self._waiters = Waiters()
        self._suspected = asyncio.Event()

    @property
    def view(self) -> LeaderView:
        """The leader as it is known now."""
        return self._view

    def changed(self) -> "asyncio.Future[None]":
        """Done once there is another leader than now, or none; the caller may cancel it."""
        return self._waiters.add()

    def suspect(self, leader: str) -> None:
        """The leader at that address failed a request: look soon."""
        if leader == self._view.leader:
            self._suspected.set()

    async def follow(self) -> None:
        """Keep the view true, until cancelled."""
        while True:
            await self.look()
            self._suspected.clear()
            try:
                async with asyncio.timeout(POLL_S if self._view.leader else SUSPECT_PAUSE_S):
                    await self._suspected.wait()
                await self._clock.sleep(SUSPECT_PAUSE_S)
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Ask the leader, and where it does not confirm, all controls."""
        before = self._view
        asked: list[ControlAnswer] = []
        if before.leader is not None:
            asked = [await self._ask(before.leader)]
            answer = asked[0].answer
            if answer is None or answer.leader != before.leader or answer.epoch < before.epoch:
                asked = []
        if not asked:
            addresses = dict.fromkeys([*before.controls, *self._seeds])
            asked = list(await asyncio.gather(*[self._ask(it) for it in addresses]))
        self._view = found = next_view(before, asked)
        if (found.leader, found.epoch) != (before.leader, before.epoch):
            self._note(found, before)
            self._waiters.wake()
        if found.controls != before.controls:
            await self._keep(found.controls)

    async def _ask(self, address: str) -> ControlAnswer:
        return await ask_leader(self._pool, address, self._internal_key, ASK_TIMEOUTS)

    @staticmethod
    def _note(found: LeaderView, before: LeaderView) -> None:
        if found.leader is not None:
            log.info("control at %s leads, epoch %d", found.leader, found.epoch)
        elif before.leader is not None:
            log.warning("there is no leader: %s", found.cause)


async def ask_leader(
    pool: Upstream, address: str, internal_key: str, timeouts: Timeouts
) -> ControlAnswer:
    """What the control at `address` answers to who leads."""
    head = f"GET /internal/leader HTTP/1.1\r\nHost: localhost\r\nX-Hostelry-Key: {internal_key}"
    try:
        parts = (f"{head}\r\n\r\n".encode("latin-1"), b"")
        reply = await pool.send(address, parts, timeouts, MAX_ANSWER_BYTES)
        try:
            body = await reply.body(MAX_ANSWER_BYTES)
        finally:
            reply.close()
        if reply.status != 200:
            return ControlAnswer(address=address, failure=f"it answered {reply.status}")
        return ControlAnswer(address=address, answer=decode(body, LeaderAnswer))
    except (UpstreamError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return ControlAnswer(address=address, failure=str(error))
