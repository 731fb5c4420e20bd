import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.jobs.dispatch.claims import SCOPE, claimed

from hostelry.base.clock import ManualClock
from hostelry.jobs.dispatch.lease_renewals import LeaseRenewals
from hostelry.jobs.queue.memory import MemoryQueue
from hostelry.jobs.queue.protocol import Claim
from hostelry.store.errors import StoreUnavailable


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
