"""GetMetricStatistics.

Source: GetMetricStatistics in the CloudWatch API reference.
"""

from collections.abc import Sequence

from hostelry.api.cloudwatch.metric_values import (
    check_period,
    dimensions_of,
    invalid_combination,
    invalid_value,
)
from hostelry.api.context import CallContext, Params, Result
from hostelry.domain.metric import Metric, MetricStat
from hostelry.metrics.series.statistic import statistic

MAX_DATAPOINTS = 1440


def get_metric_statistics(context: CallContext, params: Params) -> Result:
    """The statistics of one metric, oldest period first; each unit has datapoints of its own.

    StartTime is rounded down to a multiple of Period.
    """
    simple: Sequence[str] = params.get("Statistics") or ()
    extended: Sequence[str] = params.get("ExtendedStatistics") or ()
    if bool(simple) == bool(extended):
        raise invalid_combination(
            "At least one of the parameters Statistics and ExtendedStatistics must be specified,"
            " and not both."
        )
    for number, name in enumerate(extended, start=1):
        _check_extended(number, name)
    start, end = _time(params)
    dimensions = dimensions_of(params.get("Dimensions") or (), "Dimensions")
    metric = Metric.of(params["Namespace"], params["MetricName"], dimensions)
    units = context.metrics.units(context.scope, metric)
    wanted = params.get("Unit")
    found: list[Result] = []
    for unit in units:
        if wanted in (None, unit):
            found += _datapoints(context, params, metric, unit, (start, end))
    found.sort(key=lambda it: it["Timestamp"])
    return {"Label": metric.name, "Datapoints": found}


def _check_extended(number: int, name: str) -> None:
    try:
        statistic(name)
    except ValueError as error:
        raise invalid_value(
            f"The value {name} for parameter ExtendedStatistics.member.{number} is not supported:"
            f" {error}"
        ) from None


def _time(params: Params) -> tuple[float, float]:
    """The requested interval, in whole periods; refuses more than MAX_DATAPOINTS of them."""
    period_s = params["Period"]
    check_period("Period", period_s)
    start, end = params["StartTime"] // period_s * period_s, params["EndTime"]
    if params["StartTime"] >= end:
        raise invalid_combination(
            "The parameter StartTime must be less than the parameter EndTime."
        )
    asked = int(-(-(end - params["StartTime"]) // period_s))
    if asked > MAX_DATAPOINTS:
        raise invalid_combination(
            f"You have requested up to {asked} datapoints, which exceeds the limit of"
            f" {MAX_DATAPOINTS}. You may reduce the datapoints requested by increasing Period, or"
            " decreasing the time range."
        )
    return float(start), float(end)


def _datapoints(
    context: CallContext, params: Params, metric: Metric, unit: str, time: tuple[float, float]
) -> list[Result]:
    by_instant: dict[float, Result] = {}
    for name in (*(params.get("Statistics") or ()), *(params.get("ExtendedStatistics") or ())):
        stat = MetricStat(metric=metric, period_s=params["Period"], statistic=name, unit=unit)
        for point in context.metrics.datapoints(context.scope, stat, *time):
            shown = by_instant.setdefault(point.at, {"Timestamp": point.at, "Unit": unit})
            if params.get("Statistics"):
                shown[name] = point.value
            else:
                shown.setdefault("ExtendedStatistics", {})[name] = point.value
    return list(by_instant.values())
