"""Utilization, cost, and the order of recommendations."""

from typing import Any

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.recommendations.jobs import JOB, METRICS, completed, step

from hostelry.domain.recommendation_job import BenchmarkLoad
from hostelry.recommendations.results import (
    UsagePoint,
    get_cost_per_inference,
    get_recommendation_id,
    list_recommended,
    measure_cpus,
    measure_memory_bytes,
)

LOAD = BenchmarkLoad(
    began_at=100.0, ended_at=110.0, invocations_per_minute=600.0, latency_ms=5.0, num_users=2
)


def point(at: float, cpu_s: float, memory_bytes: int = 1) -> UsagePoint:
    return UsagePoint(at=at, cpu_s=cpu_s, cpu_at=at + 5000.0, memory_bytes=memory_bytes)


@cases(
    "points, cpus, memory_bytes",
    case("no report", [], None, None),
    case("one report", [point(105, 3.0, 7)], None, 7),
    case("two reports during the load", [point(101, 3.0, 7), point(106, 8.0, 9)], 1.0, 9),
    case("reports before and after count, too", [point(96, 0.0), point(114, 36.0)], 2.0, 1),
    case("a report during the load counts alone", [point(95, 0.0), point(105, 10.0)], 1.0, 1),
    case("reports far away", [point(10, 0.0), point(60, 36.0)], None, None),
    case("a copy that was restarted", [point(101, 9.0), point(106, 1.0)], None, 1),
)
def test_utilization(
    points: list[UsagePoint], cpus: float | None, memory_bytes: int | None
) -> None:
    assert measure_cpus(points, LOAD) == cpus
    assert measure_memory_bytes(points, LOAD) == memory_bytes


@cases(
    "metrics, expected",
    case("a price for each call of an hour", {"invocations_per_minute": 100.0}, 0.000125),
    case("no calls", {"invocations_per_minute": 0.0}, None),
)
def test_the_cost_of_an_inference(metrics: dict[str, Any], expected: float | None) -> None:
    assert get_cost_per_inference(replace(METRICS, **metrics), 0.75) == expected


@cases(
    "prices, expected",
    case("by invocations, without prices", {}, [3, 2, 1]),
    case("by invocations, without one price", {"ml.a": 1.0, "ml.b": 9.0}, [3, 2, 1]),
    case("by cost", {"ml.a": 1.0, "ml.b": 9.0, "ml.c": 4.0}, [1, 3, 2]),
)
def test_the_order_of_recommendations(prices: dict[str, float | None], expected: list[int]) -> None:
    steps = (
        completed(1, "ml.a", invocations_per_minute=100.0),
        completed(2, "ml.b", invocations_per_minute=200.0),
        completed(3, "ml.c", invocations_per_minute=300.0),
        step(4, "ml.d"),
    )
    found = list_recommended(replace(JOB, steps=steps), prices)
    assert [it.number for it in found] == expected


def test_an_id_is_the_jobs_name_and_eight_characters_for_each_step() -> None:
    found = [get_recommendation_id(JOB, step(number, "ml.a")) for number in (1, 2)]
    assert all(it.startswith("sizes/") and len(it) == len("sizes/") + 8 for it in found)
    assert len(set(found)) == 2
