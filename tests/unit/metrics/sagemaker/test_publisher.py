"""The publisher emits each sample once, even if the disk fails."""

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace
from tests.unit.metrics.sagemaker.census_sample import HOSTS, MODEL, census
from tests.unit.metrics.sagemaker.load_sample import CHAT, SCOPE, T0, load, report

from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError
from hostelry.domain.load import Distribution, LoadKey, LoadReceipt
from hostelry.domain.metric import (
    ENDPOINT_NAMESPACE,
    MODEL_NAMESPACE,
    OWN_NAMESPACE,
    Metric,
    MetricStat,
    Sample,
)
from hostelry.domain.metric import MetricsConfig as Metrics
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricFilter
from hostelry.metrics.sagemaker.census import Census
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.metrics.sagemaker.publisher import Publisher
from hostelry.metrics.series.store import MemoryMetrics

M0 = T0 - T0 % 60


class FullAtTimes(MemoryMetrics):
    """A store whose disk takes nothing while `is_full`."""

    is_full = False

    def record(self, scope: Scope, samples: Sequence[Sample]) -> None:
        if self.is_full:
            raise RetryableError("the disk is full")
        super().record(scope, samples)

    def emit(self, scope: Scope, samples: Sequence[Sample]) -> None:
        super().record(scope, samples)


class Rig:
    """A load aggregator that one worker reports to, and its publisher."""

    def __init__(self) -> None:
        self.clock = ManualClock(M0 - 10.0)
        self.store = FullAtTimes(self.clock)
        self.aggregator = LoadAggregator(self.clock.now())
        self.publisher = Publisher(self.aggregator, self.store, lambda: self.place, self.clock)
        self.sequence = 0
        self.place = census()
        self.clock.advance(10)

    def seconds(self, num: int, *, arrivals: int = 0, is_reported: bool = True) -> None:
        for _ in range(num):
            second = int(self.clock.now())
            self.clock.advance(1)
            if is_reported:
                self.sequence += 1
                loads = [load(second, arrivals=arrivals, finished=arrivals, on_copies_max=2)]
                self.aggregator.take(report("gateway-1", self.sequence, *loads), self.clock.now())
            self.publisher.publish()

    def use(self, name: str, key: LoadKey) -> dict[int, float]:
        """By period of ten seconds, the number of instances with the metric."""
        names = {"EndpointName": key.endpoint_name, "VariantName": key.variant_name}
        metric = Metric.of(ENDPOINT_NAMESPACE, name, names)
        stat = MetricStat(metric=metric, period_s=10, statistic="SampleCount")
        found = self.store.datapoints(SCOPE, stat, M0 - 60, M0 + 7200)
        return {int(it.at) - M0: it.value for it in found}

    def sums(self, name: str, period_s: int, statistic: str) -> dict[int, float]:
        metric = Metric.of(
            MODEL_NAMESPACE, name, {"InferenceComponentName": CHAT.component_name or ""}
        )
        stat = MetricStat(metric=metric, period_s=period_s, statistic=statistic)
        found = self.store.datapoints(SCOPE, stat, M0 - 60, M0 + 3600)
        return {int(it.at) - M0: it.value for it in found}


def asked(periods: Mapping[LoadKey, Metrics]) -> Census:
    """The sample census with these metrics of endpoints. The use of an idle model is known."""
    found = census()
    variants = {
        key: replace(it, metrics=periods[key])
        for key, it in found.variants.items()
        if key in periods
    }
    return replace(found, variants=variants)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_two_minutes_of_requests_are_there_by_minute_and_by_ten_seconds(rig: Rig) -> None:
    rig.seconds(60, arrivals=3)
    rig.seconds(60)
    assert rig.sums("Invocations", 60, "Sum") == {0: 180.0, 60: 0.0}
    assert rig.sums("InvocationsPerCopy", 60, "Sum") == {0: 90.0, 60: 0.0}
    by_period = rig.sums("ConcurrentRequestsPerCopy", 10, "Maximum")
    assert by_period == {it * 10: 1.0 for it in range(12)}


def test_reports_are_receipted_once_their_load_is_in_the_store(rig: Rig) -> None:
    kept: list[tuple[int, float]] = []

    def keep(receipts: Mapping[str, LoadReceipt]) -> None:
        kept.append((receipts["gateway-1"].sequence, rig.sums("Invocations", 60, "Sum")[0]))

    rig.publisher = Publisher(rig.aggregator, rig.store, lambda: rig.place, rig.clock, keep)
    rig.seconds(30, arrivals=2)
    assert len(kept) > 20
    assert all(stored >= 2.0 * sequence for sequence, stored in kept)
    assert kept[-1][0] >= 28


def test_no_gateway_no_datapoint(rig: Rig) -> None:
    rig.seconds(20, arrivals=1)
    rig.seconds(160, is_reported=False)
    rig.seconds(10)
    assert sorted(rig.sums("ConcurrentRequestsPerCopy", 10, "Maximum")) == [0, 10, 180]


def test_a_full_disk_does_not_keep_from_seeing_what_is_published(rig: Rig) -> None:
    rig.seconds(20, arrivals=1)
    rig.store.is_full = True
    rig.seconds(20, arrivals=1)
    assert rig.sums("Invocations", 60, "Sum") == {0: 40.0}
    rig.store.is_full = False
    rig.seconds(20, arrivals=1)
    assert rig.sums("Invocations", 60, "Sum") == {0: 60.0}


def test_a_late_report_is_added(rig: Rig) -> None:
    rig.seconds(10, arrivals=1)
    rig.aggregator.take(report("gateway-2", 1, load(M0, arrivals=5, finished=5)), rig.clock.now())
    rig.seconds(50, arrivals=1)
    assert rig.sums("Invocations", 60, "Sum") == {0: 65.0}


def test_requests_of_a_job_are_usage_alone_and_counted_once(rig: Rig) -> None:
    hidden = replace(CHAT, endpoint_name="transform-job/nightly", component_name=None)
    rig.seconds(5)
    mine = report("jobs", 1, load(M0, hidden, arrivals=7, finished=7))
    for _ in range(2):
        rig.aggregator.take(mine, rig.clock.now())
    rig.seconds(10)
    spaces = (MODEL_NAMESPACE, OWN_NAMESPACE)
    found = [it for name in spaces for it in rig.store.find(SCOPE, MetricFilter(namespace=name))]
    assert {it.name for it in found if "nightly" in str(it.dimensions)} == {"UsageRequests"}
    dimensions = {"EndpointName": "transform job nightly", "VariantName": CHAT.variant_name}
    metric = Metric.of(OWN_NAMESPACE, "UsageRequests", dimensions)
    stat = MetricStat(metric=metric, period_s=300, statistic="Sum")
    points = rig.store.datapoints(SCOPE, stat, M0 - 300, M0 + 300)
    assert [it.value for it in points] == [7.0]


def test_usage_is_published_at_the_end_of_each_configured_period() -> None:
    # api.md 6.1: a value an instance (SampleCount is their number), at the period asked for
    fast, slow = Metrics(is_enhanced=True, period_s=10), Metrics(period_s=60)
    rig = Rig()
    rig.place = asked({HOSTS: fast, MODEL: slow})
    rig.seconds(121)
    found = {key: rig.use("MemoryUtilization", key) for key in (HOSTS, MODEL)}
    assert found[HOSTS] == {it * 10: 1.0 for it in range(12)}
    assert found[MODEL] == {0: 4.0, 60: 4.0}


def test_usage_is_published_once_for_a_period_also_where_the_clock_is_set() -> None:
    rig = Rig()
    rig.place = asked({HOSTS: Metrics(period_s=10)})
    rig.seconds(20)
    rig.clock.advance(3600)
    rig.seconds(20)
    rig.clock.advance(-3600)
    rig.seconds(20)
    found = rig.use("MemoryUtilization", HOSTS)
    assert found == dict.fromkeys((0, 10, 40, 50, 3610, 3620, 3630), 1.0)


def test_an_asynchronous_endpoint_publishes_errors_and_the_models_latency_only() -> None:
    rig = Rig()
    found = census()
    hosts = replace(found.variants[HOSTS], takes_components=False, is_async=True)
    rig.place = replace(found, variants={HOSTS: hosts}, components={})
    for second in range(M0, M0 + 61):
        rig.clock.advance(1)
        rig.sequence += 1
        took = Distribution(values=(900.0,), counts=(1,))
        loads = [load(second, key=HOSTS, arrivals=1, finished=1, model_latency_us=took)]
        rig.aggregator.take(report("jobs", rig.sequence, *loads), rig.clock.now())
        rig.publisher.publish()
    stored = rig.store.find(SCOPE, MetricFilter(namespace=MODEL_NAMESPACE))
    assert {it.name for it in stored} == {
        "Invocation4XXErrors",
        "Invocation5XXErrors",
        "ModelLatency",
    }
