"""Watches the queues: lost leases, expired requests, deleted endpoints, backlog metrics."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from hostelry.base.clock import Clock
from hostelry.base.concurrency import for_each
from hostelry.dataplane.route_table import RouteTable
from hostelry.dataplane.routes import RouteSource
from hostelry.domain.async_request import ScopedMetric
from hostelry.domain.scope import Scope
from hostelry.jobs.control_client import ControlDownError, ControlRefusedError, JobsControl
from hostelry.jobs.dispatch.endings import RequestEnds
from hostelry.jobs.dispatch.metric_reports import AsyncMeasurements
from hostelry.jobs.dispatch.slots import LEASE_S
from hostelry.jobs.queue.protocol import Backlog, Claim, QueueCommits
from hostelry.jobs.rules.async_metrics import build_backlog_samples
from hostelry.jobs.rules.copy_slots import count_copies
from hostelry.jobs.rules.messages import build_gone_reason

LOG = logging.getLogger(__name__)
MAX_ENDED = 100  # requests ended in one look
MAX_AT_ONCE = 16
OWNER = "watch"


class QueueWatch:
    """Looks at all queues, about once a second.

    Args:
        commits: commits to the queue.
        routes: the endpoints that serve.
        control: knows every endpoint.
        ends: ends requests that will not be processed.
        measurements: takes the metrics of queues.
        clock: the time.
        waiting: is called with each queue that has requests.
    """

    def __init__(
        self,
        commits: QueueCommits,
        routes: RouteSource,
        control: JobsControl,
        ends: RequestEnds,
        measurements: AsyncMeasurements,
        clock: Clock,
        waiting: Callable[[Scope, str], None],
    ) -> None:
        self._commits = commits
        self._routes = routes
        self._control = control
        self._ends = ends
        self._measurements = measurements
        self._clock = clock
        self._waiting = waiting

    async def look(self) -> None:
        """Look once. An empty queue is not read."""
        backlog = await self._look() if self._commits.queue.may_have_requests() else []
        self._measurements.set_queues(
            build_queue_metrics(self._routes.table, backlog, self._clock.now())
        )

    async def _look(self) -> list[Backlog]:
        """Put back and end the requests that are due, and return the backlogs that remain."""
        now, table = self._clock.now(), self._routes.table
        released = await self._commits.write(lambda queue: queue.release_lost(now))
        if released:
            LOG.warning("%d requests are queued again: their leases had ended", released)
        overdue = await self._commits.write(
            lambda queue: queue.claim_overdue(OWNER, MAX_ENDED, now, LEASE_S)
        )
        await for_each(
            overdue,
            lambda claim: self._ends.expire(claim, find_variant_name(table, claim)),
            MAX_AT_ONCE,
        )
        backlog = await asyncio.to_thread(self._commits.queue.backlog)
        for queued in backlog:
            if queued.waiting and table.endpoint(queued.scope, queued.endpoint_name) is None:
                await self._end_if_gone(queued)
            elif queued.waiting:
                self._waiting(queued.scope, queued.endpoint_name)
        return backlog

    async def _end_if_gone(self, queued: Backlog) -> None:
        """Fail the requests of an endpoint that control does not have. Other requests wait."""
        place = (queued.scope, queued.endpoint_name)
        try:
            if await self._control.has_endpoint(*place):
                return
        except (ControlDownError, ControlRefusedError):
            return  # the routes may be old, so control must confirm
        now = self._clock.now()
        claims = await self._commits.write(
            lambda queue: queue.claim(*place, OWNER, MAX_ENDED, now, LEASE_S)
        )
        await for_each(
            claims, lambda it: self._ends.fail(it, "", build_gone_reason(it.request)), MAX_AT_ONCE
        )


def build_queue_metrics(
    table: RouteTable, backlog: Iterable[Backlog], now: float
) -> Iterable[ScopedMetric]:
    """Build the metrics of the queues of all asynchronous endpoints, including empty queues."""
    by_place = {(it.scope, it.endpoint_name): it for it in backlog}
    for endpoint in table.endpoints():
        if endpoint.async_inference is None:
            continue
        queued = by_place.get((endpoint.scope, endpoint.name))
        waiting, running, oldest_at = (
            (0, 0, None) if queued is None else (queued.waiting, queued.running, queued.oldest_at)
        )
        copies = count_copies(endpoint)
        for sample in build_backlog_samples(
            endpoint.name, waiting, running, oldest_at, copies, now
        ):
            yield ScopedMetric(scope=endpoint.scope, sample=sample)


def find_variant_name(table: RouteTable, claim: Claim) -> str:
    """Find the first variant of the claim's endpoint, for metrics. Empty if it does not serve."""
    endpoint = table.endpoint(claim.request.scope, claim.request.endpoint_name)
    return endpoint.variants[0].name if endpoint is not None and endpoint.variants else ""
