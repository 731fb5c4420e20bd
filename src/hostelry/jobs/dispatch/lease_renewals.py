"""Renewals of leases in groups: those asked for while one is under way share the next."""

import asyncio
from collections.abc import Sequence

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.jobs.queue.protocol import Claim, RequestQueue

LEASE_S = 30.0
MAX_AT_ONCE = 256


class LeaseRenewals:
    """Renews leases of `queue`, at the time of `clock`."""

    def __init__(self, queue: RequestQueue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._asked: list[tuple[Claim, asyncio.Future[bool]]] = []
        self._task: asyncio.Task[None] | None = None

    async def is_held(self, claim: Claim) -> bool:
        """Whether the claim is held still, with its lease renewed; raises as the queue does."""
        loop = asyncio.get_running_loop()
        held: asyncio.Future[bool] = loop.create_future()
        self._asked.append((claim, held))
        if self._task is None:
            self._task = loop.create_task(self._renew_asked())
        return await held

    async def renewed(self, claims: Sequence[Claim]) -> list[Claim]:
        """Those of `claims` that are held still, with their leases renewed."""
        now = self._clock.now()
        return await asyncio.to_thread(self._queue.renew, claims, now, LEASE_S)

    async def _renew_asked(self) -> None:
        try:
            while self._asked:
                group, self._asked = self._asked[:MAX_AT_ONCE], self._asked[MAX_AT_ONCE:]
                await self._renew(group)
        finally:
            self._task = None

    async def _renew(self, group: Sequence[tuple[Claim, "asyncio.Future[bool]"]]) -> None:
        try:
            kept = await self.renewed([claim for claim, _ in group])
        except HostelryError as error:
            for _, held in group:
                if not held.done():
                    held.set_exception(error)
            return
        except BaseException:
            for _, held in group:
                held.cancel()
            raise
        found = {(it.request.id, it.fence) for it in kept}
        for claim, held in group:
            if not held.done():
                held.set_result((claim.request.id, claim.fence) in found)
