"""Requests that this process runs: one task each, its lease renewed while it runs."""

import asyncio
import logging
from collections.abc import Coroutine

from hostelry.base.clock import Clock
from hostelry.jobs.dispatch.lease_renewals import LeaseRenewals
from hostelry.jobs.queue.protocol import Claim, RequestQueue

log = logging.getLogger(__name__)
RENEW_S = 8.0


class RunningRequests:
    """The tasks of claimed requests.

    Args:
        queue: has the leases.
        clock: dates their renewals.
    """

    def __init__(self, queue: RequestQueue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._renewals = LeaseRenewals(queue, clock)
        self._tasks: dict[asyncio.Task[None], Claim] = {}
        self._lost: set[tuple[str, int]] = set()  # at the last renewal

    @property
    def num_running(self) -> int:
        """How many run."""
        return len(self._tasks)

    def start(self, claim: Claim, work: Coroutine[None, None, None]) -> None:
        """Run `work` for a claim."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = claim
        task.add_done_callback(lambda it: self._tasks.pop(it, None))

    async def renew(self) -> None:
        """Extend every lease; a task whose claim is lost for the second time ends.

        At the first time it may be the task itself that has just ended its request.
        """
        claims = list(self._tasks.values())
        if not claims:
            return
        kept = await self._renewals.renewed(claims)
        held = {(it.request.id, it.fence) for it in kept}
        lost = {(it.request.id, it.fence) for it in claims} - held
        twice, self._lost = lost & self._lost, lost
        for task, claim in list(self._tasks.items()):
            if (claim.request.id, claim.fence) in twice:
                log.warning("the lease of request %s was lost; it is given up", claim.request.id)
                task.cancel()

    async def is_held(self, claim: Claim) -> bool:
        """Whether a claim is held still, its lease renewed: before its output becomes visible."""
        return await self._renewals.is_held(claim)

    async def drain(self, grace_s: float) -> None:
        """Wait for what runs; what is not finished after `grace_s` goes back to the queue."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=grace_s)
        left = dict(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for claim in left.values():
            now = self._clock.now()
            await asyncio.to_thread(self._queue.defer, claim, now, "jobs stopped", now, False)
