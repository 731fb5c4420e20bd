"""Recommends a scaling policy for an endpoint that a job has measured."""

import math

import msgspec

from hostelry.domain.recommendation_job import BenchmarkMetrics

DEFAULT_TARGET_PERCENT = 50
COOLDOWN_S = 300  # AWS's default for endpoints


class ScalingAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Invocations per minute that an instance should get, and the bounds of instances.

    Bounds are missing (None) if the traffic is not known.
    """

    invocations_per_instance: int
    min_capacity: int | None = None
    max_capacity: int | None = None


def advise_scaling(
    metrics: BenchmarkMetrics,
    num_cpus: float | None,
    target_percent: int,
    least_per_minute: int | None,
    most_per_minute: int | None,
) -> ScalingAdvice:
    """The advice for instances whose CPUs shall be used by `target_percent` each.

    `num_cpus` are the CPUs of an instance. If the use of CPUs was not measured, the measured
    invocations count as their full use.
    """
    used_percent = 100.0
    if metrics.cpu_percent and num_cpus:
        used_percent = min(100.0, metrics.cpu_percent / num_cpus)
    share = min(1.0, target_percent / used_percent)
    target = max(1, math.floor(metrics.invocations_per_minute * share))
    return ScalingAdvice(
        invocations_per_instance=target,
        min_capacity=_count_instances(least_per_minute, target),
        max_capacity=_count_instances(most_per_minute, target),
    )


def _count_instances(per_minute: int | None, target: int) -> int | None:
    return None if per_minute is None else max(1, math.ceil(per_minute / target))
