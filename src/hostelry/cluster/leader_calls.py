"""Sends a request to the leader among several controls, and again where that is safe.

`dataplane/control_calls.py` says which calls. They are sent again for some time from their
first failure on, while their time limit lasts, and if all of their body is there.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import HostelryError
from hostelry.cluster.leader_view import LeaderSource
from hostelry.dataplane.control_calls import CallOutcome, may_send_again
from hostelry.dataplane.http.reply import ConnectError, Reply, UpstreamError

AFTER_CHANGE_S = 1.0  # for the answer of a leader that has just been replaced
AGAIN_S = 0.1  # from a failure to the next try, where the leader does not change sooner
NOT_LEADER = "x-hostelry-not-leader"  # of an answer: the call was not carried out
T = TypeVar("T")


def outcome_of(sent: Reply | UpstreamError) -> CallOutcome:
    """What came of a call that was answered, or failed, so."""
    if isinstance(sent, ConnectError):
        return CallOutcome.NOT_TAKEN
    if isinstance(sent, UpstreamError):
        return CallOutcome.UNANSWERED
    return CallOutcome.NOT_EXECUTED if NOT_LEADER in sent.headers else CallOutcome.ANSWERED


class LeaderAwayError(HostelryError):
    """No leader answered; `outcome` is that of the last try."""

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
        """The head of the reply of `address`; raises UpstreamError."""
        ...


class LeaderCalls:
    """Sends requests to the leader.

    Args:
        source: the leader.
        wait_s: for another leader, from when there is none or a call fails.
        target: the server's address on the host of the leader at an address; None: the leader.
    """

    def __init__(
        self, source: LeaderSource, wait_s: float, target: Callable[[str], str] | None = None
    ) -> None:
        self._source = source
        self._wait_s = wait_s
        self._target = target or (lambda leader: leader)

    async def answered(self, request: LeaderRequest) -> tuple[str, Reply]:
        """The leader and its reply, the head there; raises LeaderAwayError, ClientGoneError."""
        failures: dict[str, str] = {}
        give_up_at: float | None = None
        while True:
            leader = await self._leader(give_up_at, request.gone)
            try:
                sent: Reply | UpstreamError = await self._sent(leader, request)
            except UpstreamError as error:
                sent = error
            outcome = outcome_of(sent)
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
            await self._changed(AGAIN_S, request.gone)

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
        changed = self._source.changed()
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
            await self._changed(left_s, gone)

    async def _changed(self, within_s: float, gone: "asyncio.Future[None]") -> None:
        """Wait until the leader changes, so many seconds at most."""
        changed = self._source.changed()
        try:
            await asyncio.wait(
                {changed, gone}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            changed.cancel()
        if gone.done():
            raise ClientGoneError

    async def _sent(self, leader: str, request: LeaderRequest) -> Reply:
        """The head of that control's reply; raises UpstreamError, also where the leader changes."""
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
