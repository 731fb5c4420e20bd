"""The page for Prometheus can be parsed, and has the right values."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.metrics.sagemaker.census_sample import census
from tests.unit.metrics.sagemaker.load_sample import T0, load, report

from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError
from hostelry.control.exposition import Exposition
from hostelry.domain.load import Distribution
from hostelry.domain.metric import Metric, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.persistence.durable import DurableMetrics
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.metrics.sagemaker.totals import Totals
from hostelry.metrics.series.budget import DEFAULT_MAX_BYTES
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state

CHAT = {
    "account": "111122223333",
    "region": "us-west-2",
    "endpoint": "ep",
    "variant": "all",
    "component": "chat",
}


class Page:
    """A page over an aggregator with the reports of one second."""

    def __init__(self, folder: Path) -> None:
        aggregator, totals = LoadAggregator(T0 - 60), Totals()
        second = load(
            T0,
            arrivals=7,
            finished=5,
            errors_4xx=1,
            no_capacity=2,
            in_flight_mean=1.5,
            model_latency_us=Distribution(values=(300_000.0,), counts=(4,)),
        )
        aggregator.take(report("gateway-1", 1, second), T0 + 1)
        totals.take(T0, [second])
        state = open_state(MemoryStore())
        self.clock = ManualClock(T0 + 1.0)
        self.metrics = DurableMetrics(folder, self.clock)
        self.exposition = Exposition(totals, aggregator, census, state, self.clock, self.metrics)

    def put(self, scope: Scope, name: str) -> None:
        metric = Metric.of("Mine", name, {})
        self.metrics.record(scope, [Sample(metric=metric, at=T0, values=(1.0,))])

    def value(self, name: str, **labels: str) -> float:
        """The one sample of that name with those labels."""
        families = text_string_to_metric_families(self.exposition.text().decode())
        (found,) = [
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return found


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """Two metrics of one account and one of another were put, in two regions each."""
    page = Page(tmp_path / "metrics")
    for region in ("us-west-2", "eu-west-1"):
        page.put(Scope("111122223333", region), "One")
        page.put(Scope("111122223333", region), "Two")
        page.put(Scope("444455556666", region), "One")
    yield page
    page.metrics.close()


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("hostelry_requests_total", CHAT, 7),
        ("hostelry_requests_finished_total", CHAT, 5),
        ("hostelry_request_errors_total", {**CHAT, "kind": "4xx"}, 1),
        ("hostelry_request_errors_total", {**CHAT, "kind": "no_capacity"}, 2),
        ("hostelry_in_flight", CHAT, 1.5),
        ("hostelry_model_latency_seconds_count", CHAT, 4),
        ("hostelry_model_latency_seconds_bucket", {**CHAT, "le": "0.5"}, 4),
        ("hostelry_model_latency_seconds_bucket", {**CHAT, "le": "0.25"}, 0),
        ("hostelry_copies", CHAT, 2),
        ("hostelry_instances", {"endpoint": "models", "variant": "blue"}, 4),
        ("hostelry_gateway_reporting", {}, 1),
        ("hostelry_metric_store_series", {"account": "111122223333"}, 4),
        ("hostelry_metric_store_series", {"account": "444455556666"}, 2),
        ("hostelry_metric_store_budget_bytes", {}, DEFAULT_MAX_BYTES),
        ("hostelry_metric_store_pressure", {}, 0),
        ("hostelry_metric_store_samples_total", {}, 6),
        ("hostelry_metric_store_evicted_series_total", {}, 0),
        ("hostelry_metric_store_refused_samples_total", {}, 0),
        ("hostelry_metric_store_journal_up", {}, 1),
        ("hostelry_metric_store_unkept", {}, 0),
        ("hostelry_metric_store_snapshot_bytes", {}, 0),
    ],
)
def test_the_page_has(page: Page, name: str, labels: dict[str, str], value: float) -> None:
    assert page.value(name, **labels) == value


def test_bytes_of_accounts_add_up_to_what_the_store_takes(page: Page) -> None:
    accounts = ("111122223333", "444455556666")
    sizes = [page.value("hostelry_metric_store_bytes", account=it) for it in accounts]
    assert sizes[0] == 2 * sizes[1]
    assert sum(sizes) == page.metrics.stats().size_bytes
    assert page.value("hostelry_metric_store_journal_bytes") > 0


def test_the_page_reports_a_disk_that_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "metrics").write_text("a file where the folder should be")
    page = Page(tmp_path / "metrics")
    with pytest.raises(RetryableError):
        page.put(Scope("111122223333", "us-west-2"), "Name")
    assert page.value("hostelry_metric_store_journal_up") == 0
    assert page.value("hostelry_metric_store_unkept") == 0
    assert page.value("hostelry_metric_store_refused_samples_total") == 1
    metric = Metric.of("Ours", "Load", {})
    page.metrics.emit(Scope("1", "r"), [Sample(metric=metric, at=T0, values=(1.0,))])
    assert page.value("hostelry_metric_store_unkept") == 1
    assert page.value("hostelry_metric_store_series", account="1") == 1
    page.metrics.close()


def test_the_page_shows_that_there_are_no_reports(page: Page) -> None:
    page.clock.advance(60)
    assert page.value("hostelry_gateway_reporting") == 0
