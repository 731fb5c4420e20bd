"""The leader among several controls: found from any host, and called again if that is safe."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from hostelry.base.clock import Clock, monotonic_s
from hostelry.base.errors import HostelryError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest
from hostelry.base.json import decode
from hostelry.dataplane.control_calls import CallOutcome, may_send_again
from hostelry.http1.calls import call
from hostelry.http1.reply import ConnectError, Reply, UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream

LOG = logging.getLogger(__name__)
POLL_S = 0.4
SUSPECT_PAUSE_S = 0.1
ASK_TIMEOUTS = Timeouts(total_s=0.5, connect_s=0.4)
MAX_ANSWER_BYTES = 64 * 1024
MAX_CONTROLS = 64
NONE_ASKED = "no control was asked yet"


class LeaderView(msgspec.Struct, frozen=True, kw_only=True):
    """The leader's address and epoch, and the addresses of all controls.

    `leader`: None without one, for the reason `cause`.

    `GET /internal/leader` of any control answers the leader's address, its epoch and all controls.
    Most of the time only the leader is asked. If it does not confirm that it leads, all are asked.

    answers of the controls asked            view
    ---------------------------------------  -------------------------------------------------------
    some have a leader                       the one of the highest epoch
    none has one                             no leader, and why
    an epoch below the present view's        not used: a control that was cut off or frozen answered
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


class ControlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One control's answer, or why it did not answer."""

    address: str
    answer: LeaderAnswer | None = None
    failure: str = ""


def get_next_view(view: LeaderView, asked: Sequence[ControlAnswer]) -> LeaderView:
    """The view after these answers. See the module's table."""
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

    def get_change(self) -> "asyncio.Future[None]":
        """A future that is done once the leader changes or is lost. The caller may cancel it."""
        ...

    def suspect(self, leader: str) -> None:
        """The leader at that address failed a request: look soon."""
        ...


class Waiters(msgspec.Struct):
    """Futures that `wake` sets. The waiting caller may cancel each."""

    waiting: set["asyncio.Future[None]"] = msgspec.field(default_factory=set)

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

    def get_change(self) -> "asyncio.Future[None]":
        """A future that is done once the leader changes or is lost. The caller may cancel it."""
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
        """Ask the leader, and all controls if it does not confirm."""
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
        self._view = found = get_next_view(before, asked)
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
            LOG.info("control at %s leads, epoch %d", found.leader, found.epoch)
        elif before.leader is not None:
            LOG.warning("there is no leader: %s", found.cause)


async def ask_leader(
    pool: Upstream, address: str, internal_key: str, timeouts: Timeouts
) -> ControlAnswer:
    """What the control at `address` answers to who leads."""
    request = HttpRequest("GET", "/internal/leader", "", {INTERNAL_KEY_HEADER: internal_key})
    try:
        answer = await call(pool, address, request, timeouts, MAX_ANSWER_BYTES)
        if answer.status != 200:
            return ControlAnswer(address=address, failure=f"it answered {answer.status}")
        return ControlAnswer(address=address, answer=decode(answer.body, LeaderAnswer))
    except (UpstreamError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return ControlAnswer(address=address, failure=str(error))


# Sends a request to the leader among several controls, and again if that is safe.
#
# `dataplane/control_calls.py` says which calls. They are sent again for some time from their
# first failure on, while their time limit lasts, and if all of their body is there.


AFTER_CHANGE_S = 1.0  # for the answer of a leader that has just been replaced
AGAIN_S = 0.1  # from a failure to the next try, where the leader does not change sooner
NOT_LEADER = "x-hostelry-not-leader"  # of an answer: the call was not carried out
T = TypeVar("T")


def classify_outcome(sent: Reply | UpstreamError) -> CallOutcome:
    """Classify the result of a control call."""
    if isinstance(sent, ConnectError):
        return CallOutcome.NOT_TAKEN
    if isinstance(sent, UpstreamError):
        return CallOutcome.UNANSWERED
    return CallOutcome.NOT_EXECUTED if NOT_LEADER in sent.headers else CallOutcome.ANSWERED


class LeaderAwayError(HostelryError):
    """No leader answered. `outcome` is the outcome of the last try."""

    def __init__(self, message: str, outcome: CallOutcome = CallOutcome.NOT_TAKEN) -> None:
        super().__init__(message)
        self.outcome = outcome


class ClientGoneError(HostelryError):
    """The caller has closed its connection."""


class LeaderRequest(Protocol):
    """A request that is sent to the leader."""

    @property
    def gone(self) -> "asyncio.Future[None]":
        """Done once the caller takes no answer any more."""
        ...

    @property
    def only_reads(self) -> bool:
        """Whether executing it twice changes nothing."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether all of its body is there to be sent, within its time limit."""
        ...

    async def send(self, address: str) -> Reply:
        """The head of the reply of `address`. Raises UpstreamError."""
        ...


class LeaderCalls:
    """Sends requests to the leader.

    Args:
        source: the leader.
        wait_s: for another leader, once the leader is lost or a call fails.
        target: the server's address on the host of the leader at an address. None: the leader.
    """

    def __init__(
        self, source: LeaderSource, wait_s: float, target: Callable[[str], str] | None = None
    ) -> None:
        self._source = source
        self._wait_s = wait_s
        self._target = target or (lambda leader: leader)

    async def send_to_leader(self, request: LeaderRequest) -> tuple[str, Reply]:
        """The leader, and its reply with the head. Raises LeaderAwayError, ClientGoneError."""
        failures: dict[str, str] = {}
        give_up_at: float | None = None
        while True:
            leader = await self._leader(give_up_at, request.gone)
            try:
                sent: Reply | UpstreamError = await self._send(leader, request)
            except UpstreamError as error:
                sent = error
            outcome = classify_outcome(sent)
            if isinstance(sent, Reply):
                if outcome is CallOutcome.ANSWERED:
                    return leader, sent
                sent.close()
            failures[leader] = why(leader, sent)
            self._source.suspect(leader)
            now_s = monotonic_s()
            give_up_at = give_up_at or now_s + self._wait_s
            again = may_send_again(
                outcome, only_reads=request.only_reads, is_whole=request.is_whole
            )
            if not again or now_s >= give_up_at:
                raise LeaderAwayError(refusal(outcome, request.only_reads, failures), outcome)
            await self._wait_change(AGAIN_S, request.gone)

    async def until(
        self,
        awaited: "asyncio.Future[T]",
        leader: str,
        gone: "asyncio.Future[None]",
        grace_s: float,
    ) -> T:
        """What `awaited` is done with, `grace_s` after there is another leader at the latest.

        Raises ClientGoneError, UpstreamError.
        """
        changed = self._source.get_change()
        waited: set[asyncio.Future[Any]] = {awaited, gone}
        try:
            await asyncio.wait({*waited, changed}, return_when=asyncio.FIRST_COMPLETED)
            if changed.done():
                await asyncio.wait(waited, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        if gone.done():
            raise ClientGoneError
        if not awaited.done():
            raise UpstreamError(f"{leader} does not lead any more, and does not answer")
        return awaited.result()

    async def _leader(self, give_up_at: float | None, gone: "asyncio.Future[None]") -> str:
        give_up_at = give_up_at or monotonic_s() + self._wait_s
        while True:
            view = self._source.view
            if view.leader is not None:
                return view.leader
            left_s = give_up_at - monotonic_s()
            if left_s <= 0:
                raise LeaderAwayError(f"The control plane has no leader: {view.cause}.")
            await self._wait_change(left_s, gone)

    async def _wait_change(self, within_s: float, gone: "asyncio.Future[None]") -> None:
        """Wait until the leader changes, for at most `within_s`."""
        changed = self._source.get_change()
        try:
            await asyncio.wait(
                {changed, gone}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            changed.cancel()
        if gone.done():
            raise ClientGoneError

    async def _send(self, leader: str, request: LeaderRequest) -> Reply:
        """The head of that control's reply. Raises UpstreamError, also if the leader changes."""
        sending = asyncio.ensure_future(request.send(self._target(leader)))
        grace_s = 0.0 if request.only_reads else AFTER_CHANGE_S
        try:
            return await self.until(sending, leader, request.gone, grace_s)
        except BaseException:
            if sending.done() and not sending.cancelled() and not sending.exception():
                sending.result().close()
            raise
        finally:
            sending.cancel()


def why(leader: str, sent: Reply | UpstreamError) -> str:
    """Why a control has not answered, with its address."""
    if isinstance(sent, Reply):
        return f"{leader} does not lead"
    return str(sent) if leader in str(sent) else f"{leader}: {sent}"


def refusal(outcome: CallOutcome, only_reads: bool, failures: Mapping[str, str]) -> str:
    """The words for a call that no control answered: each control that was tried, and why."""
    tried = "; ".join(it.rstrip(".") for it in failures.values())
    if outcome is CallOutcome.UNANSWERED and not only_reads:
        return (
            f"The control plane's leader failed before it answered ({tried}): the call may have"
            " been executed."
        )
    return f"The control plane's leader cannot be reached: {tried}."
