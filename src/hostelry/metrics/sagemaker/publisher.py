"""Publishes the seconds that the load aggregator closes to the metric store."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hostelry.base.clock import Clock
from hostelry.domain.load import LoadReceipt, SecondLoad
from hostelry.domain.metric import MODEL_NAMESPACE
from hostelry.metrics.protocol import MetricWriter
from hostelry.metrics.sagemaker.census import Census, ScopedSample, select_period
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.metrics.sagemaker.load_metrics import by_scope
from hostelry.metrics.sagemaker.publication import Publication
from hostelry.metrics.sagemaker.serverless import Setups, setup_times, setups
from hostelry.metrics.sagemaker.totals import Totals
from hostelry.metrics.sagemaker.usage import PartNames
from hostelry.metrics.sagemaker.utilization import cpus_used, utilization

# Metrics of requests that asynchronous endpoints publish. The jobs process publishes the metrics of
# their queues. Source: SageMaker developer guide, "Monitoring asynchronous inference endpoints".
OF_REQUESTS = frozenset({"Invocation4XXErrors", "Invocation5XXErrors", "ModelLatency"})


def select_published(samples: Iterable[ScopedSample], census: Census) -> Iterator[ScopedSample]:
    """Yield the samples, without metrics that asynchronous endpoints do not publish."""
    queued = {
        (key.scope, ("EndpointName", key.endpoint_name))
        for key, variant in census.variants.items()
        if variant.is_async
    }
    if not queued:
        yield from samples
        return
    for scope, sample in samples:
        metric = sample.metric
        is_kept = metric.namespace != MODEL_NAMESPACE or metric.name in OF_REQUESTS
        if is_kept or not any((scope, it) in queued for it in metric.dimensions):
            yield scope, sample


TICK_S = 1.0
MAX_SECONDS_BEHIND = 900


class Publisher:
    """The task that publishes the seconds of `aggregator` to `store`, and adds them to `totals`.

    `census` returns everything in service now. `keep` takes the receipts of the reports whose load
    was given to `store` just before. `part_names` has the names that earlier metrics have.
    """

    def __init__(
        self,
        aggregator: LoadAggregator,
        store: MetricWriter,
        census: Callable[[], Census],
        clock: Clock,
        keep: Callable[[Mapping[str, LoadReceipt]], None] | None = None,
        part_names: PartNames | None = None,
    ) -> None:
        self._keep = keep
        self._aggregator = aggregator
        self._store = store
        self._census = census
        self._clock = clock
        self.totals = Totals()
        self._publication = Publication(part_names)
        self._closed: deque[tuple[int, Sequence[SecondLoad]]] = deque(maxlen=MAX_SECONDS_BEHIND)
        self._due: list[ScopedSample] = []
        self._setups: Setups | None = None
        self._use: dict[int, tuple[int, Census]] = {}  # by period: the present one's start
        self._noticed: Callable[[], object] = lambda: None
        aggregator.subscribe(self._note)

    async def run(self) -> None:
        """Publish until cancelled."""
        loop, closed = asyncio.get_running_loop(), asyncio.Event()
        self._noticed = lambda: loop.call_soon_threadsafe(closed.set)
        try:
            while True:
                closed.clear()
                await asyncio.to_thread(self.publish)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await closed.wait()
        finally:
            self._noticed = lambda: None

    def _note(self, second: int, loads: Sequence[SecondLoad]) -> None:
        self._closed.append((second, loads))
        self._noticed()

    def publish(self) -> None:
        """Publish the seconds that closed since the last call."""
        self._aggregator.tick(self._clock.now())
        receipts: Mapping[str, LoadReceipt] = {}
        if self._closed:
            census = self._census()
            self._measure_setups(census)
            while self._closed:
                second, loads = self._closed.popleft()
                taken = self._publication.take(second, loads, census)
                self._due.extend(select_published(taken, census))
                self.totals.take(second, loads)
            # Before late counts are taken, because later reports are not in the metrics yet.
            receipts = {} if self._keep is None else self._aggregator.receipts(second)
            late = self._aggregator.late()
            self._due.extend(select_published(self._publication.late(late, census), census))
            self.totals.take_late(late)
            jobs = self._aggregator.take_job_loads()
            self._due.extend(self._publication.sample_jobs(jobs, census))
            self._measure_use(census)
        due, self._due = self._due, []
        for scope, mine in by_scope(due).items():
            self._store.emit(scope, mine)
        if receipts and self._keep is not None:
            self._keep(receipts)

    def _measure_setups(self, census: Census) -> None:
        """Add the set-up times of environments proven since the last call. The first adds none."""
        known, self._setups = self._setups, setups(census)
        if known is not None:
            self._due.extend(setup_times(int(self._clock.now()), known, census))

    def _measure_use(self, census: Census) -> None:
        """Add the usage of copies, at the end of each period that an endpoint's metrics have."""
        now = self._clock.now()
        hosts = (*census.variants.values(), *census.transforms.values())
        periods = {it.metrics.period_s for it in hosts}
        self._use = {it: seen for it, seen in self._use.items() if it in periods}
        for period_s in periods:
            start = int(now // period_s) * period_s
            since, before = self._use.setdefault(period_s, (start, census))
            if start > since:
                mine = select_period(period_s, census)
                self._due.extend(utilization(start - period_s, mine, cpus_used(before, census)))
            if start != since:
                self._use[period_s] = (start, census)
