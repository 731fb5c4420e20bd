"""Parses PutScalingPolicy's configurations to domain values, and checks fields and combinations.

Source: PutScalingPolicy (TargetTrackingScalingPolicyConfiguration, StepScalingPolicyConfiguration)
in the Application Auto Scaling API reference, and "Step scaling policies" (Step adjustments) in its
user guide.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from hostelry.api.cloudwatch.alarm_rule import build_metric, get_returning_query
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.metric import MetricQuery, MetricStat
from hostelry.domain.scaling import (
    Adjustment,
    Dimension,
    StepAdjustment,
    StepScaling,
    TargetTracking,
)
from hostelry.metrics.query.queries import check_queries, is_single, uses_search
from hostelry.scaling.decide.tracking_alarms import CUSTOMIZED_PERIOD_S, PREDEFINED

DEFAULT_COOLDOWN_S = 300
MAX_STEPS = 20
SINGLE = ("MetricName", "Namespace", "Dimensions", "Statistic", "Unit")
Given = Mapping[str, Any]


def tracking_of(given: Given, dimension: Dimension) -> TargetTracking:
    """The target-tracking policy of a configuration. Raises ValidationException."""
    predefined = given.get("PredefinedMetricSpecification")
    customized = given.get("CustomizedMetricSpecification")
    if (predefined is None) == (customized is None):
        raise validation_error(
            "Exactly one of PredefinedMetricSpecification and CustomizedMetricSpecification must be"
            " given."
        )
    target = float(given["TargetValue"])
    if target <= 0.0:
        raise validation_error(f"TargetValue is {target:g}; it must be greater than 0.")
    return TargetTracking(
        target_value=target,
        scale_out_cooldown_s=_parse_cooldown(given, "ScaleOutCooldown"),
        scale_in_cooldown_s=_parse_cooldown(given, "ScaleInCooldown"),
        disable_scale_in=bool(given.get("DisableScaleIn")),
        predefined=None if predefined is None else _parse_predefined(predefined, dimension),
        queries=() if customized is None else _build_queries(customized),
    )


def _parse_predefined(given: Given, dimension: Dimension) -> str:
    """The predefined metric type, which must be one of the dimension's."""
    name: str = given["PredefinedMetricType"]
    if given.get("ResourceLabel") is not None:
        raise validation_error(
            "ResourceLabel cannot be given: it belongs to metrics of load balancers only."
        )
    fitting = [kind for kind, it in PREDEFINED.items() if it.dimension is dimension]
    if name not in fitting:
        raise validation_error(
            f"PredefinedMetricType {name} cannot be used with {dimension.value}; use one of"
            f" {', '.join(fitting)}."
        )
    return name


def _build_queries(given: Given) -> tuple[MetricQuery, ...]:
    """Build the queries of a customized metric. A single metric has one query."""
    metrics: Sequence[Given] = given.get("Metrics") or ()
    beside = [name for name in SINGLE if given.get(name) is not None]
    if metrics and beside:
        raise validation_error(f"{beside[0]} cannot be given together with Metrics.")
    if not metrics:
        return (_build_single_query(given),)
    queries = tuple(_build_query(one, f"Metrics.{at}") for at, one in enumerate(metrics, start=1))
    check_set(queries)
    return queries


def _build_single_query(given: Given) -> MetricQuery:
    """The query of one metric."""
    for name in ("MetricName", "Namespace", "Statistic"):
        if given.get(name) is None:
            raise validation_error(
                f"CustomizedMetricSpecification.{name} is required, or Metrics for an expression."
            )
    stat = MetricStat(
        metric=build_metric(given, "Dimensions"),
        period_s=CUSTOMIZED_PERIOD_S,
        statistic=given["Statistic"],
        unit=given.get("Unit"),
    )
    return MetricQuery(id="m1", stat=stat)


def _build_query(given: Given, path: str) -> MetricQuery:
    stat, expression = given.get("MetricStat"), given.get("Expression")
    if (stat is None) == (expression is None):
        raise validation_error(
            f"{path} ({given['Id']}) must have exactly one of MetricStat and Expression."
        )
    return MetricQuery(
        id=given["Id"],
        stat=None if stat is None else _build_stat(stat, f"{path}.MetricStat"),
        expression=expression,
        label=given.get("Label"),
        return_data=given.get("ReturnData") is not False,
        period_s=None if expression is None else CUSTOMIZED_PERIOD_S,
    )


def _build_stat(given: Given, path: str) -> MetricStat:
    metric = given["Metric"]
    for name in ("MetricName", "Namespace"):
        if metric.get(name) is None:
            raise validation_error(f"{path}.Metric.{name} is required.")
    return MetricStat(
        metric=build_metric(metric, f"{path}.Metric.Dimensions"),
        period_s=CUSTOMIZED_PERIOD_S,
        statistic=given["Stat"],
        unit=given.get("Unit"),
    )


def check_set(queries: Sequence[MetricQuery]) -> None:
    """Refuse queries that do not lead to one series of numbers."""
    returning = get_returning_query(queries)
    try:
        check_queries(queries)
        single = is_single(queries, returning)
        searches = uses_search(queries)
    except ServiceError as error:
        raise validation_error(f"Metrics cannot be used: {error.message}") from None
    if not single:
        raise validation_error(f'Metrics: "{returning}" must give one time series, not several.')
    if searches:
        raise validation_error("Metrics: SEARCH is not supported on Metric Alarms.")


def _parse_cooldown(given: Given, name: str) -> float:
    """A cooldown in seconds. The default is 300, as for every target of SageMaker."""
    cooldown_s = given.get(name)
    if cooldown_s is None:
        return float(DEFAULT_COOLDOWN_S)
    if cooldown_s < 0:
        raise validation_error(f"{name} is {cooldown_s}; it must be 0 seconds or more.")
    return float(cooldown_s)


def stepping_of(given: Given) -> StepScaling:
    """The step policy of a configuration. Raises ValidationException."""
    if given.get("AdjustmentType") is None:
        raise validation_error("StepScalingPolicyConfiguration.AdjustmentType is required.")
    adjustment = Adjustment(given["AdjustmentType"])
    steps = tuple(
        StepAdjustment(
            lower=step.get("MetricIntervalLowerBound"),
            upper=step.get("MetricIntervalUpperBound"),
            adjustment=step["ScalingAdjustment"],
        )
        for step in given.get("StepAdjustments") or ()
    )
    check_steps(steps)
    check_adjustments(steps, adjustment)
    return StepScaling(
        adjustment=adjustment,
        steps=steps,
        cooldown_s=_parse_cooldown(given, "Cooldown"),
        min_magnitude=_parse_magnitude(given, adjustment),
        aggregation=given.get("MetricAggregationType") or "Average",
    )


def _parse_magnitude(given: Given, adjustment: Adjustment) -> int | None:
    """MinAdjustmentMagnitude, which only percentages have."""
    magnitude = given.get("MinAdjustmentMagnitude")
    if magnitude is None:
        return None
    if adjustment is not Adjustment.PERCENT:
        raise validation_error(
            "MinAdjustmentMagnitude can only be given with AdjustmentType"
            f" {Adjustment.PERCENT.value}."
        )
    if magnitude < 1:
        raise validation_error(f"MinAdjustmentMagnitude is {magnitude}; it must be at least 1.")
    return int(magnitude)


def check_adjustments(steps: Sequence[StepAdjustment], adjustment: Adjustment) -> None:
    """Refuse exact capacities below 0."""
    for step in steps:
        if adjustment is Adjustment.EXACT and step.adjustment < 0:
            raise validation_error(
                f"ScalingAdjustment is {step.adjustment}; with {Adjustment.EXACT.value} it must be"
                " 0 or more."
            )


def check_steps(steps: Sequence[StepAdjustment]) -> None:
    """Refuse intervals that overlap, leave gaps or have invalid ends."""
    if not steps:
        raise validation_error("StepAdjustments is required, with at least one step adjustment.")
    if len(steps) > MAX_STEPS:
        raise ServiceError(
            "LimitExceededException",
            f"{len(steps)} step adjustments; a policy has at most {MAX_STEPS}.",
        )
    for step in steps:
        check_interval(step)
    for name, without in (
        ("MetricIntervalLowerBound", [it for it in steps if it.lower is None]),
        ("MetricIntervalUpperBound", [it for it in steps if it.upper is None]),
    ):
        if len(without) > 1:
            raise validation_error(f"At most one step adjustment may have no {name}.")
    ordered = sorted(steps, key=lambda it: (it.lower is not None, it.lower or 0.0))
    for one, following in pairwise(ordered):
        if one.upper is None or following.lower is None or one.upper != following.lower:
            raise validation_error(
                f"Step adjustments must neither overlap nor leave gaps: one ends at {one.upper},"
                f" the next begins at {following.lower}."
            )
    check_ends(ordered[0], ordered[-1])


def check_interval(step: StepAdjustment) -> None:
    """Refuse an interval without bounds, or one that is empty."""
    if step.lower is None and step.upper is None:
        raise validation_error(
            "A step adjustment must have MetricIntervalLowerBound, MetricIntervalUpperBound or"
            " both."
        )
    if step.lower is not None and step.upper is not None and step.lower >= step.upper:
        raise validation_error(
            f"MetricIntervalLowerBound {step.lower:g} must be less than MetricIntervalUpperBound"
            f" {step.upper:g}."
        )


def check_ends(first: StepAdjustment, last: StepAdjustment) -> None:
    """Refuse steps that cover a side of the threshold without reaching infinity there."""
    if first.lower is not None and first.lower < 0.0:
        raise validation_error(
            "A step adjustment without MetricIntervalLowerBound is required, since one has a"
            f" negative one ({first.lower:g})."
        )
    if last.upper is not None and last.upper > 0.0:
        raise validation_error(
            "A step adjustment without MetricIntervalUpperBound is required, since one has a"
            f" positive one ({last.upper:g})."
        )
