"""Leases of running requests: the requests that continue when a lease is lost."""

import asyncio
from collections.abc import Sequence

from tests.memory_queue import MemoryQueue
from tests.unit.jobs.dispatch.claims import claimed

from hostelry.base.clock import ManualClock
from hostelry.jobs.dispatch.slots import RunningRequests
from hostelry.jobs.queue.protocol import Claim, QueueCommits, RequestCompleted


async def test_a_request_that_ends_while_leases_are_renewed_is_not_cut_off_in_its_last_steps() -> (
    None
):
    clock = ManualClock()
    queue = MemoryQueue()
    (claim,) = claimed(queue, clock, 1)
    steps: list[str] = []
    running, is_renewed = RunningRequests(QueueCommits(queue), clock), asyncio.Event()

    async def work() -> None:
        queue.complete(claim, RequestCompleted(), clock.now(), ())
        steps.append("ended")
        await is_renewed.wait()
        steps.append("counted")

    running.start(claim, work())
    await asyncio.sleep(0)
    await running.renew()
    is_renewed.set()
    await running.drain(1.0)
    assert steps == ["ended", "counted"]


def test_a_request_that_another_owner_has_is_given_up_at_the_second_renewal() -> None:
    clock = ManualClock()
    queue = MemoryQueue()
    claims: Sequence[Claim] = claimed(queue, clock, 2)
    queue.release_host(None)
    queue.claim(claims[0].request.scope, "e", "another", 1, clock.now(), 30)

    async def scenario() -> list[int]:
        running, counts = RunningRequests(QueueCommits(queue), clock), []
        for claim in claims:
            running.start(claim, asyncio.Event().wait())  # type: ignore[arg-type]
        for _ in range(2):
            await running.renew()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            counts.append(running.num_running)
        await running.drain(0.0)
        return counts

    assert asyncio.run(scenario()) == [2, 0]
