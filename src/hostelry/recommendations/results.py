"""Results of steps: utilization, cost, and the order of recommendations."""

import hashlib
import math
from collections.abc import Iterable, Sequence

import msgspec

from hostelry.domain.recommendation_job import (
    BenchmarkLoad,
    BenchmarkMetrics,
    BenchmarkStep,
    RecommendationJob,
    RecommendationStatus,
)

MAX_RECOMMENDATIONS = 10  # that AWS's shape allows
SLACK_S = 6.0  # reports of usage come every 5 s, so the report before a window counts, too
MINUTES_PER_HOUR = 60
ID_CHARS = 8


class UsagePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a step's copies: CPU seconds since their start, at `cpu_at` of their machine."""

    at: float
    cpu_s: float
    cpu_at: float
    memory_bytes: int


def measure_cpus(points: Sequence[UsagePoint], load: BenchmarkLoad) -> float | None:
    """CPUs that were busy during the load. None without two reports about it."""
    inside = [it for it in points if load.began_at <= it.at <= load.ended_at]
    during = inside if len(inside) > 1 else _select_points(points, load)
    if len(during) < 2:
        return None
    first, last = during[0], during[-1]
    if last.cpu_at <= first.cpu_at or last.cpu_s < first.cpu_s:
        return None
    return (last.cpu_s - first.cpu_s) / (last.cpu_at - first.cpu_at)


def measure_memory_bytes(points: Sequence[UsagePoint], load: BenchmarkLoad) -> int | None:
    """The most memory during the load. None without a report about it."""
    return max((it.memory_bytes for it in _select_points(points, load)), default=None)


def _select_points(points: Iterable[UsagePoint], load: BenchmarkLoad) -> list[UsagePoint]:
    return [it for it in points if load.began_at - SLACK_S <= it.at <= load.ended_at + SLACK_S]


def get_cost_per_inference(metrics: BenchmarkMetrics, price_per_hour: float) -> float | None:
    """The price of an invocation at the best load. None without an invocation."""
    per_hour = metrics.invocations_per_minute * MINUTES_PER_HOUR
    return price_per_hour / per_hour if per_hour > 0 else None


def get_recommendation_id(job: RecommendationJob, step: BenchmarkStep) -> str:
    """The id of a step's recommendation, in AWS's form: the job's name and eight characters."""
    digest = hashlib.sha256(f"{job.arn} {job.created_at} {step.number}".encode()).hexdigest()
    return f"{job.name}/{digest[:ID_CHARS]}"


def list_recommended(
    job: RecommendationJob, prices: dict[str, float | None]
) -> list[BenchmarkStep]:
    """The completed steps on instance types, the best first.

    The best has the lowest price per invocation if every type has a price, else the most
    invocations.
    """
    found = [
        step
        for step in job.steps
        if step.status is RecommendationStatus.COMPLETED and step.instance_type is not None
    ]
    is_priced = all(prices.get(it.instance_type or "") is not None for it in found)

    def rank(step: BenchmarkStep) -> tuple[float, int]:
        metrics, price = step.metrics, prices.get(step.instance_type or "")
        assert metrics is not None, "a completed step has metrics"
        if not is_priced or price is None:
            return -metrics.invocations_per_minute, step.number
        cost = get_cost_per_inference(metrics, price)
        return math.inf if cost is None else cost, step.number

    return sorted(found, key=rank)[:MAX_RECOMMENDATIONS]
