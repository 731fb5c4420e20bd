"""Requests that this process runs: one task each, its lease renewed while it runs."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence

from hostelry.base.clock import Clock
from hostelry.base.concurrently import for_each
from hostelry.base.recurring import run_guarded
from hostelry.jobs.queue.commits import QueueCommits
from hostelry.jobs.queue.protocol import Claim

log = logging.getLogger(__name__)
LEASE_S = 30.0
RENEW_S = 8.0
MAX_AT_ONCE = 64


class RunningRequests:
    """The tasks of claimed requests.

    Args:
        commits: of the queue, which has the leases.
        clock: dates their renewals.
    """

    def __init__(self, commits: QueueCommits, clock: Clock) -> None:
        self._commits = commits
        self._clock = clock
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
        kept = await self._renewed(claims)
        held = {(it.request.id, it.fence) for it in kept}
        lost = {(it.request.id, it.fence) for it in claims} - held
        twice, self._lost = lost & self._lost, lost
        for task, claim in list(self._tasks.items()):
            if (claim.request.id, claim.fence) in twice:
                log.warning("the lease of request %s was lost; it is given up", claim.request.id)
                task.cancel()

    async def is_held(self, claim: Claim) -> bool:
        """Whether a claim is held still, its lease renewed: before its output becomes visible."""
        return bool(await self._renewed([claim]))

    async def drain(self, grace_s: float) -> None:
        """Wait for what runs; what is not finished after `grace_s` goes back to the queue."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=grace_s)
        left = dict(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await for_each(left.values(), self._put_back, MAX_AT_ONCE)

    async def _renewed(self, claims: Sequence[Claim]) -> list[Claim]:
        """Those of `claims` that are held still, their leases renewed."""
        # The time is that of the write: it may have had to wait.
        return await self._commits.write_once_possible(
            lambda queue: queue.renew(claims, self._clock.now(), LEASE_S)
        )

    async def _put_back(self, claim: Claim) -> None:
        """Queue a request again; a successor does where it cannot be done now."""
        now = self._clock.now()

        async def put_back() -> None:
            await self._commits.write(
                lambda queue: queue.defer(claim, now, "jobs stopped", now, False)
            )

        await run_guarded(f"queuing request {claim.request.id} again", put_back)
