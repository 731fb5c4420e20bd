"""Slots of copies that this process has taken, and the requests that it runs."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence

from hostelry.base.clock import Clock
from hostelry.base.concurrency import for_each, run_guarded
from hostelry.domain.routes import EndpointRoute
from hostelry.domain.scope import Scope
from hostelry.jobs.queue.protocol import Claim, QueueCommits
from hostelry.jobs.rules.copy_slots import ChosenCopy, CopyUse, choose_slot, count_free_slots
from hostelry.routing.copy_choice import next_position

LOG = logging.getLogger(__name__)
REFUSED_S = 1.0  # how long a copy that refused a connection gets no request


class CopySlots:
    """Requests in flight by copy. Only this process sends to asynchronous endpoints.

    Args:
        draw: uniform random numbers in [0, 1).
        now_s: seconds of a clock that never goes back.
    """

    def __init__(self, draw: Callable[[], float], now_s: Callable[[], float]) -> None:
        self._draw = draw
        self._now_s = now_s
        self._in_flight: dict[str, int] = {}
        self._blocked_until: dict[str, float] = {}
        self._positions: dict[tuple[Scope, str], dict[str, float]] = {}
        self._freed: Callable[[], None] = lambda: None

    def listen(self, freed: Callable[[], None]) -> None:
        """Call `freed` after each slot that is given back."""
        self._freed = freed

    def free(self, endpoint: EndpointRoute) -> int:
        """Number of requests that the endpoint's copies can take now."""
        return count_free_slots(endpoint, self._use(endpoint), self._now_s())

    def take(self, endpoint: EndpointRoute) -> ChosenCopy | None:
        """Take a free slot of a copy. `give_back` must be called once for it."""
        found = choose_slot(endpoint, self._use(endpoint), self._now_s(), self._draw())
        if found is not None:
            self._pass_turn(endpoint, found.variant_name)
            self._in_flight[found.copy.id] = self.count_in_flight(found.copy.id) + 1
        return found

    def give_back(self, chosen: ChosenCopy) -> None:
        """End a slot."""
        left = self.count_in_flight(chosen.copy.id) - 1
        if left > 0:
            self._in_flight[chosen.copy.id] = left
        else:
            self._in_flight.pop(chosen.copy.id, None)
        self._freed()

    def block(self, chosen: ChosenCopy) -> None:
        """Send no requests to a copy for a moment."""
        now_s = self._now_s()
        known = self._blocked_until.items()
        self._blocked_until = {copy_id: until for copy_id, until in known if until > now_s}
        self._blocked_until[chosen.copy.id] = now_s + REFUSED_S

    def count_in_flight(self, copy_id: str) -> int:
        """Number of requests in flight on a copy."""
        return self._in_flight.get(copy_id, 0)

    def _use(self, endpoint: EndpointRoute) -> CopyUse:
        return CopyUse(
            in_flight=self._in_flight,
            blocked_until=self._blocked_until,
            positions=self._positions.get((endpoint.scope, endpoint.name), {}),
        )

    def _pass_turn(self, endpoint: EndpointRoute, variant_name: str) -> None:
        """Move to the variant's next position, if its traffic shifts."""
        place = (endpoint.scope, endpoint.name)
        shifting = {it.name for it in endpoint.variants if it.shift is not None}
        if not shifting:
            self._positions.pop(place, None)
        elif variant_name in shifting:
            mine = self._positions.setdefault(place, {})
            mine[variant_name] = next_position(mine.get(variant_name, 0.0))


LEASE_S = 30.0
RENEW_S = 8.0
MAX_AT_ONCE = 64


class RunningRequests:
    """The tasks of claimed requests.

    Args:
        commits: commits to the queue, which has the leases.
        clock: the time.
    """

    def __init__(self, commits: QueueCommits, clock: Clock) -> None:
        self._commits = commits
        self._clock = clock
        self._tasks: dict[asyncio.Task[None], Claim] = {}
        self._lost: set[tuple[str, int]] = set()  # at the last renewal

    @property
    def num_running(self) -> int:
        """Number of running requests."""
        return len(self._tasks)

    def start(self, claim: Claim, work: Coroutine[None, None, None]) -> None:
        """Run `work` for a claim."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = claim
        task.add_done_callback(lambda it: self._tasks.pop(it, None))

    async def renew(self) -> None:
        """Extend every lease. A task whose claim is lost for the second time is cancelled.

        The first loss may only mean that the task has just ended its request.
        """
        claims = list(self._tasks.values())
        if not claims:
            return
        kept = await self._renew(claims)
        held = {(it.request.id, it.fence) for it in kept}
        lost = {(it.request.id, it.fence) for it in claims} - held
        twice, self._lost = lost & self._lost, lost
        for task, claim in list(self._tasks.items()):
            if (claim.request.id, claim.fence) in twice:
                LOG.warning("the lease of request %s was lost; it is given up", claim.request.id)
                task.cancel()

    async def is_held(self, claim: Claim) -> bool:
        """Renew a claim before its output becomes visible. False if the claim is lost."""
        return bool(await self._renew([claim]))

    async def drain(self, grace_s: float) -> None:
        """Wait for running requests, and queue the unfinished ones again after `grace_s`."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=grace_s)
        left = dict(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await for_each(left.values(), self._put_back, MAX_AT_ONCE)

    async def _renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """Renew the leases of `claims`, and return the claims that are still held."""
        # The write may have had to wait, so the lease counts from the time of the write.
        return await self._commits.write_once_possible(
            lambda queue: queue.renew(claims, self._clock.now(), LEASE_S)
        )

    async def _put_back(self, claim: Claim) -> None:
        """Queue a request again. If that is impossible now, the next process does it."""
        now = self._clock.now()

        async def put_back() -> None:
            await self._commits.write(
                lambda queue: queue.defer(claim, now, "jobs stopped", now, False)
            )

        await run_guarded(f"queuing request {claim.request.id} again", put_back)
