import asyncio
from collections.abc import Sequence

import pytest

from hostelry.base.clock import ManualClock
from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.scope import Scope
from hostelry.jobs.dispatch.lease_renewals import LeaseRenewals
from hostelry.jobs.queue.memory import MemoryQueue
from hostelry.jobs.queue.protocol import Claim
from hostelry.store.errors import StoreUnavailable

SCOPE = Scope("111122223333", "us-west-2")


class CountedQueue(MemoryQueue):
    """Counts renewals; fails while `is_broken`."""

    is_broken = False

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[int] = []

    def renew(self, claims: Sequence[Claim], now: float, lease_s: float) -> list[Claim]:
        self.groups.append(len(claims))
        if self.is_broken:
            raise StoreUnavailable("the disk is full")
        return super().renew(claims, now, lease_s)


def claimed(queue: MemoryQueue, clock: ManualClock, count: int) -> list[Claim]:
    now = clock.now()
    for number in range(count):
        request = AsyncRequest(
            id=str(number),
            inference_id=str(number),
            scope=SCOPE,
            endpoint_name="e",
            body=b"",
            output_uri="s3://o/k",
            failure_uri="",
            accepted_at=now,
            expires_at=now + 60,
            timeout_s=1,
        )
        queue.submit([request])
    return queue.claim(SCOPE, "e", "me", count, now, 30)


def test_renewals_asked_for_at_once_are_one() -> None:
    queue, clock = CountedQueue(), ManualClock()
    claims = claimed(queue, clock, 20)
    stale = claims[7]
    queue.release_all()
    claims = [*queue.claim(SCOPE, "e", "me", 20, clock.now(), 30), stale]

    async def scenario() -> list[bool]:
        renewals = LeaseRenewals(queue, clock)
        return await asyncio.gather(*(renewals.is_held(it) for it in claims))

    assert asyncio.run(scenario()) == [True] * 20 + [False]
    assert queue.groups == [21]


def test_a_queue_that_fails_fails_each_and_the_next_is_tried_again() -> None:
    queue, clock = CountedQueue(), ManualClock()
    (claim,) = claimed(queue, clock, 1)

    async def scenario() -> bool:
        renewals = LeaseRenewals(queue, clock)
        queue.is_broken = True
        with pytest.raises(StoreUnavailable):
            await renewals.is_held(claim)
        queue.is_broken = False
        return await renewals.is_held(claim)

    assert asyncio.run(scenario())
