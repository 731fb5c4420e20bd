"""Calls have separate threads: a caller with endless calls does not stop other callers."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hostelry.base.errors import ServiceError
from hostelry.control.call_threads import CallThreads, TurnLimits

LIMITS = TurnLimits(running=2, running_in_all=3, waiting=2, waiting_in_all=4)


class Endless:
    """Calls of caller `a` that run until `let_go`."""

    def __init__(self, threads: CallThreads) -> None:
        self._threads = threads
        self._gone = threading.Event()
        self.tasks: list[asyncio.Task[str]] = []

    async def begin(self, count: int) -> None:
        self.tasks += [asyncio.create_task(self._threads.run("a", self._run)) for _ in range(count)]
        await asyncio.sleep(0)

    def _run(self) -> str:
        assert self._gone.wait(30)
        return "ended"

    def let_go(self) -> None:
        self._gone.set()


@asynccontextmanager
async def endless_calls() -> AsyncIterator[tuple[CallThreads, Endless]]:
    threads = CallThreads(LIMITS)
    endless = Endless(threads)
    try:
        yield threads, endless
    finally:
        endless.let_go()
    await asyncio.gather(*endless.tasks, return_exceptions=True)


async def test_others_are_served_while_one_callers_calls_do_not_end() -> None:
    async with endless_calls() as (threads, endless):
        await endless.begin(4)
        assert await threads.run("b", lambda: "served") == "served"
        assert not any(it.done() for it in endless.tasks)
        endless.let_go()
        assert await asyncio.gather(*endless.tasks) == ["ended"] * 4


async def test_a_call_beyond_the_queue_is_throttled_unless_its_turn_is_promised() -> None:
    async with endless_calls() as (threads, endless):
        await endless.begin(4)
        with pytest.raises(ServiceError, match="Rate exceeded: 2 calls of this caller") as refused:
            await threads.run("a", lambda: "served")
        assert refused.value.code == "ThrottlingException"
        promised = asyncio.create_task(threads.run("a", lambda: "served", is_promised=True))
        await asyncio.sleep(0)
        endless.let_go()
        assert await promised == "served"


async def test_a_cancelled_call_gives_its_turn_back_once_its_thread_has_ended() -> None:
    async with endless_calls() as (threads, endless):
        await endless.begin(3)
        await asyncio.sleep(0)
        running, _, waiting = endless.tasks
        for task in (running, waiting):
            task.cancel()
        await asyncio.wait((running, waiting))
        follower = asyncio.create_task(threads.run("a", lambda: "served"))
        await asyncio.sleep(0)
        assert not follower.done()
        endless.let_go()
        assert await follower == "served"


async def test_an_error_of_a_call_is_raised_and_ends_its_turn() -> None:
    async with endless_calls() as (threads, _):

        def fails() -> str:
            raise ValueError("of the call")

        for _ in range(5):
            with pytest.raises(ValueError, match="of the call"):
                await threads.run("a", fails)
