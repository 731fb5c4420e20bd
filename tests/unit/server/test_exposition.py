"""The page for Prometheus: that it can be parsed, and what it says."""

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.metrics.census_sample import census
from tests.unit.metrics.load_sample import T0, load, report

from hostelry.base.clock import ManualClock
from hostelry.domain.load import Distribution
from hostelry.metrics.load_board import LoadBoard
from hostelry.metrics.totals import Totals
from hostelry.server.exposition import Exposition
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
    """A page over a board that heard of one second."""

    def __init__(self) -> None:
        board, totals = LoadBoard(T0 - 60), Totals()
        second = load(
            T0,
            arrivals=7,
            finished=5,
            errors_4xx=1,
            no_capacity=2,
            in_flight_mean=1.5,
            model_latency_us=Distribution(values=(300_000.0,), counts=(4,)),
        )
        board.take(report("gateway-1", 1, second), T0 + 1)
        totals.take(T0, [second])
        state = open_state(MemoryStore())
        self.clock = ManualClock(T0 + 1.0)
        self.exposition = Exposition(totals, board, census, state, self.clock)

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
    ],
)
def test_the_page_has(name: str, labels: dict[str, str], value: float) -> None:
    assert Page().value(name, **labels) == value


def test_without_reports_the_page_says_so() -> None:
    page = Page()
    page.clock.advance(60)
    assert page.value("hostelry_gateway_reporting") == 0
