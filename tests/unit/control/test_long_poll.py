"""Long polls and their caller's limits: a waiting poll keeps its place."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from hostelry.api.context import NotYetError
from hostelry.base.clock import ManualClock
from hostelry.base.http import HttpResponse
from hostelry.control.call_threads import CallThreads, TurnLimits, answer_call
from hostelry.messaging.queue_messages import Arrivals

QUEUE = "arn:aws:sqs:us-west-2:111122223333:q"
LIMITS = TurnLimits(running=1, running_in_all=1, waiting=2, waiting_in_all=4)
NUM_POLLS = 6


class Connected:
    async def is_disconnected(self) -> bool:
        return False


async def test_more_polls_than_may_queue_are_all_answered_when_messages_come() -> None:
    arrivals, clock, has_come = Arrivals(), ManualClock(), False
    messaging = cast(Any, SimpleNamespace(arrivals=arrivals))
    threads = CallThreads(LIMITS)

    loop, asked = asyncio.get_running_loop(), asyncio.Semaphore(0)

    def ask(_: bool) -> HttpResponse:
        loop.call_soon_threadsafe(asked.release)
        if not has_come:
            raise NotYetError(QUEUE, 20.0, None)
        return HttpResponse(200, {}, b"")

    polls = []
    for _ in range(NUM_POLLS):
        polling = answer_call(ask, cast(Any, Connected()), messaging, clock, threads, "a")
        polls.append(asyncio.create_task(polling))
        for _ in range(2):  # once as it came, and once when it is to wait
            await asked.acquire()
    assert not any(it.done() for it in polls)
    assert await threads.run("a", lambda: "served") == "served"
    has_come = True
    arrivals.announce(QUEUE)
    assert [it.status for it in await asyncio.gather(*polls)] == [200] * NUM_POLLS
