"""Threads for AWS calls, whose callers take turns, and long polls that wait without a thread.

Every caller has a queue. A free thread takes the oldest call of the caller with the fewest running
calls. If several callers have the fewest, the caller whose last turn is the longest ago is next.

| the caller has | decision on one more call |
| --- | --- |
| fewer than `running` calls on threads, and fewer than `running_in_all` threads are in use | runs |
| `running` calls, or no thread is free, and fewer than `waiting` calls wait | waits |
| `waiting` calls that wait | CallsFull |
| a call that waits, and `waiting_in_all` calls of all callers wait | CallsFull |

Internal routes use the event loop's own threads, so callers of AWS calls cannot delay them.
"""

import asyncio
import contextlib
import contextvars
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import Request

from hostelry.api.context import NotYetError
from hostelry.base.clock import Clock
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpResponse
from hostelry.messaging.services import Messaging

T = TypeVar("T")
Answer = TypeVar("Answer")
Turn = asyncio.Future[None]
SHORTEST_WAIT_S = 0.02


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of running and waiting calls, per caller and for all callers.

    All threads and the event loop share one interpreter. With more threads the loop waits longer.
    """

    running: int = 8
    running_in_all: int = 16
    waiting: int = 500
    waiting_in_all: int = 2000


class CallsFull(Exception):  # noqa: N818 - a state, not a failure
    """No further call may wait. The text names the limit."""


class CallTurns(Generic[T]):
    """The running and waiting calls, and the order in which they run. Does no I/O."""

    def __init__(self, limits: TurnLimits) -> None:
        self._limits = limits
        self._running: Counter[str] = Counter()
        # Callers in the order of turns. A caller that had a turn moves to the end.
        self._waiting: dict[str, deque[T]] = {}

    def add(self, caller: str, call: T, *, is_promised: bool = False) -> None:
        """Queue a call. Raises CallsFull if too many wait, unless its place `is_promised`."""
        waiting = self._waiting.get(caller, ())
        if not is_promised:
            self._check(len(waiting))
        self._waiting.setdefault(caller, deque()).append(call)

    def take(self) -> tuple[str, T] | None:
        """Take the next call and its caller, and count it as running. None if no call can run."""
        may = [it for it in self._waiting if self._running[it] < self._limits.running]
        if not may or self._running.total() >= self._limits.running_in_all:
            return None
        caller = min(may, key=lambda it: self._running[it])
        calls = self._waiting.pop(caller)
        call = calls.popleft()
        if calls:
            self._waiting[caller] = calls
        self._running[caller] += 1
        return caller, call

    def end(self, caller: str) -> None:
        """Note that a running call of the caller has ended."""
        self._running[caller] -= 1
        if not self._running[caller]:
            del self._running[caller]

    def _check(self, num_waiting: int) -> None:
        limits = self._limits
        if num_waiting >= limits.waiting:
            raise CallsFull(
                f"{limits.waiting} calls of this caller wait already, and {limits.running} run"
            )
        # A caller's first call always gets a place, so that other callers cannot exclude it.
        if num_waiting and sum(map(len, self._waiting.values())) >= limits.waiting_in_all:
            raise CallsFull(f"{limits.waiting_in_all} calls of all callers wait already")


class CallThreads:
    """Runs AWS calls in its own threads, in the order of `CallTurns`."""

    def __init__(self, limits: TurnLimits | None = None) -> None:
        limits = limits or TurnLimits()
        self._turns: CallTurns[Turn] = CallTurns(limits)
        self._threads = ThreadPoolExecutor(limits.running_in_all, "call")

    async def run(
        self, caller: str, call: Callable[[], Answer], *, is_promised: bool = False
    ) -> Answer:
        """Run `call` in a thread when it is the caller's turn, and return its result.

        Raises ServiceError if too many calls wait, unless the place of this call `is_promised`.
        """
        loop = asyncio.get_running_loop()
        turn: Turn = loop.create_future()
        try:
            self._turns.add(caller, turn, is_promised=is_promised)
        except CallsFull as error:
            message = f"Rate exceeded: {error}. Try again, with fewer calls at a time."
            raise ServiceError("ThrottlingException", message) from None
        self._give_turns()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(caller)
            raise
        bound = partial(contextvars.copy_context().run, call)
        running = loop.run_in_executor(self._threads, bound)
        # If the task is cancelled, its thread still runs. So the turn ends with the thread.
        running.add_done_callback(lambda it: self._end(caller, it))
        return await asyncio.shield(running)

    def _give_turns(self) -> None:
        while (due := self._turns.take()) is not None:
            caller, turn = due
            if turn.cancelled():
                self._turns.end(caller)
            else:
                turn.set_result(None)

    def _end(self, caller: str, ended: asyncio.Future[Any] | None = None) -> None:
        if ended is not None and not ended.cancelled():
            ended.exception()  # marks the error as read, in case the waiting task was cancelled
        self._turns.end(caller)
        self._give_turns()


async def answer_call(
    ask: Callable[[bool], HttpResponse],
    request: Request,
    messaging: Messaging | None,
    clock: Clock,
    threads: CallThreads,
    caller: str,
) -> HttpResponse:
    """Call `ask(may_wait)` in a thread, and again after each new message, until it has an answer.

    A call that waits for a message keeps its place. Raises ServiceError if the caller has too many
    calls, or if the client has gone, so that no message is received for it.
    """
    may_wait = messaging is not None and not messaging.arrivals.is_full
    try:
        return await threads.run(caller, partial(ask, may_wait))
    except NotYetError as error:
        if messaging is None:
            raise
        queue_arn, until = error.queue_arn, clock.now() + error.wait_s
    with messaging.arrivals.watching(queue_arn) as event:
        while True:
            event.clear()
            left_s = until - clock.now()
            try:
                return await threads.run(caller, partial(ask, left_s > 0.0), is_promised=True)
            except NotYetError as error:
                wait_s = left_s if error.next_at is None else error.next_at - clock.now()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(SHORTEST_WAIT_S, min(left_s, wait_s))):
                    await event.wait()
            if await request.is_disconnected():
                raise ServiceError("RequestTimeout", "The client has gone.", 408)
