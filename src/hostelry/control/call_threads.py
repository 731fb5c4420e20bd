"""Threads for AWS calls, which callers share.

Routes of the other processes use the event loop's own threads: whatever callers ask for, those
and the heartbeats are answered meanwhile.
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from hostelry.base.errors import ServiceError
from hostelry.control.call_turns import CallsFull, CallTurns, TurnLimits

Answer = TypeVar("Answer")
Turn = asyncio.Future[None]


class CallThreads:
    """Runs the calls of each caller, in an event loop's process, in threads of their own."""

    def __init__(self, limits: TurnLimits | None = None) -> None:
        limits = limits or TurnLimits()
        self._turns: CallTurns[Turn] = CallTurns(limits)
        self._threads = ThreadPoolExecutor(limits.running_in_all, "call")

    async def run(
        self, caller: str, call: Callable[[], Answer], *, is_promised: bool = False
    ) -> Answer:
        """The result of `call`, run in a thread at the caller's turn.

        Raises ServiceError where too many calls wait, unless this one's place `is_promised`.
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
        # A cancelled task leaves its thread running: the turn ends with the thread.
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
            ended.exception()  # read, since the task that waits may be cancelled
        self._turns.end(caller)
        self._give_turns()
