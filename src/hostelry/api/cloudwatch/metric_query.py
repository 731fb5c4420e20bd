"""GetMetricData, GetMetricStatistics and ListMetrics.

Source: these operations in the CloudWatch API reference.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.api.cloudwatch.metric_data import (
    DAY_S,
    TOKEN_ERROR,
    check_period,
    describe_metric,
    invalid_combination,
    invalid_value,
    missing,
    parse_dimensions,
)
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, Position, get_page
from hostelry.api.refusals import refuse_fields
from hostelry.base.errors import validation_error
from hostelry.domain.metric import Datapoint, Metric, MetricQuery, MetricStat
from hostelry.metrics.protocol import MetricFilter
from hostelry.metrics.query.queries import MAX_MATCHED, results
from hostelry.metrics.query.search import MAX_FOUND
from hostelry.metrics.series.statistic import statistic

MAX_QUERIES = 500
MAX_DATAPOINTS = 100_800
DROPPED: Result = {
    "Code": "ArithmeticError",
    "Value": (
        "One or more data-points have been dropped due to non-numeric values (NaN, -Infinite,"
        " +Infinite)"
    ),
}
"""Message of a result with such points. Source: GetMetricData, as recorded in Grafana's tests."""
MAX_STATISTICS = 1440
PAGE_SIZE = 500
TWO_WEEKS_S = 14 * 24 * 3600
RECENTLY_S = 3 * 3600


class AnswerSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One series of the answer, or its points on one page. `place` orders the series."""

    place: str
    id: str
    label: str
    points: Sequence[Datapoint]
    has_dropped: bool = False
    is_whole: bool = True


def get_metric_data(context: CallContext, params: Params) -> Result:
    """GetMetricData: the series of each query that returns data, in pages of MaxDatapoints.

    StartTime is rounded down to the period of each query.
    """
    refuse_fields(params, ("LabelOptions",))
    queries = _parse_queries(context, params)
    start, end = params["StartTime"], params["EndTime"]
    if start >= end:
        raise validation_error("The parameter StartTime must be less than the parameter EndTime.")
    size = params.get("MaxDatapoints") or MAX_DATAPOINTS
    if not 1 <= size <= MAX_DATAPOINTS:
        raise invalid_value(f"The parameter MaxDatapoints is 1 to {MAX_DATAPOINTS}; it is {size}.")
    tokens = PageTokens(context, "GetMetricData", params, TOKEN_ERROR)
    last = tokens.last_position()
    found = results(
        context.metrics, context.scope, queries, float(start), float(end), is_rounded=True
    )
    is_ascending = params.get("ScanBy") == "TimestampAscending"
    every = [
        AnswerSeries(
            place=f"{at:04}/{number:06}",
            id=query.id,
            label=series.label,
            points=series.points if is_ascending else series.points[::-1],
            has_dropped=series.has_dropped,
        )
        for at, query in enumerate(queries)
        if query.return_data
        for number, series in enumerate(found.series[query.id])
    ]
    page, following = _cut_page(_skip_to(every, last, is_ascending=is_ascending), size, tokens)
    return {
        "MetricDataResults": [_describe(it) for it in page],
        "Messages": _build_messages(found.cut),
        **following,
    }


def _parse_queries(context: CallContext, params: Params) -> list[MetricQuery]:
    given = params["MetricDataQueries"]
    if not 1 <= len(given) <= MAX_QUERIES:
        raise validation_error(
            f"The collection MetricDataQueries must have 1 to {MAX_QUERIES} queries; it has"
            f" {len(given)}."
        )
    return [
        _parse_query(context, query, f"MetricDataQueries.member.{number}")
        for number, query in enumerate(given, start=1)
    ]


def _parse_query(context: CallContext, given: Mapping[str, Any], path: str) -> MetricQuery:
    if given.get("AccountId") not in (None, context.scope.account):
        raise invalid_value(
            f"The value {given['AccountId']} for parameter {path}.AccountId is invalid: only"
            " metrics of the caller's own account can be read."
        )
    if given.get("Period") is not None:
        _check_period(f"{path}.Period", given["Period"])
    stat = given.get("MetricStat")
    return MetricQuery(
        id=given["Id"],
        stat=None if stat is None else _parse_stat(stat, f"{path}.MetricStat"),
        expression=given.get("Expression"),
        label=given.get("Label"),
        return_data=given.get("ReturnData") is not False,
        period_s=given.get("Period"),
    )


def _parse_stat(given: Mapping[str, Any], path: str) -> MetricStat:
    metric = given["Metric"]
    for name in ("Namespace", "MetricName"):
        if metric.get(name) is None:
            raise missing(f"The parameter {path}.Metric.{name} is required.")
    _check_period(f"{path}.Period", given["Period"])
    dimensions = parse_dimensions(metric.get("Dimensions") or (), f"{path}.Metric.Dimensions")
    return MetricStat(
        metric=Metric.of(metric["Namespace"], metric["MetricName"], dimensions),
        period_s=given["Period"],
        statistic=given["Stat"],
        unit=given.get("Unit"),
    )


def _check_period(path: str, period_s: int) -> None:
    check_period(path, period_s)
    if period_s > DAY_S:
        raise invalid_value(f"The parameter {path} is at most {DAY_S} seconds; it is {period_s}.")


def _skip_to(
    series: Sequence[AnswerSeries], last: Position | None, *, is_ascending: bool
) -> list[AnswerSeries]:
    """The points after the last point of the previous page."""
    if last is None:
        return list(series)
    at, place = float(last[0]), last[1]
    rest = []
    for one in series:
        points = one.points
        if one.place == place:
            points = [it for it in points if (it.at > at if is_ascending else it.at < at)]
        if one.place > place or (one.place == place and points):
            rest.append(replace(one, points=points))
    return rest


def _cut_page(
    series: Sequence[AnswerSeries], size: int, tokens: PageTokens
) -> tuple[list[AnswerSeries], Result]:
    """The points that fit in a page, and the token to the rest."""
    num_left = sum(len(it.points) for it in series)
    page: list[AnswerSeries] = []
    for one in series:
        points = one.points[:size]
        size -= len(points)
        num_left -= len(points)
        page.append(replace(one, points=points, is_whole=len(points) == len(one.points)))
        if size == 0 and num_left > 0:
            return page, tokens.next_members((points[-1].at, one.place))
    return page, {}


def _build_messages(cut: Sequence[str]) -> list[Result]:
    """Messages of the whole call. Source: GetMetricData, Messages."""
    if not cut:
        return []
    text = (
        f"Maximum number of allowed metrics exceeded: {', '.join(cut):.500} finds more than"
        f" {MAX_FOUND} time series (with Metrics Insights, or {MAX_MATCHED} metrics), and gives the"
        " first of them. Make the search narrower."
    )
    return [{"Code": "MaxMetricsExceeded", "Value": text}]


def _describe(series: AnswerSeries) -> Result:
    shown = {
        "Id": series.id,
        "Label": series.label,
        "Timestamps": [it.at for it in series.points],
        "Values": [it.value for it in series.points],
        "StatusCode": "Complete" if series.is_whole else "PartialData",
    }
    return {**shown, "Messages": [DROPPED]} if series.has_dropped else shown


def get_metric_statistics(context: CallContext, params: Params) -> Result:
    """GetMetricStatistics: the oldest period first. Each unit has separate datapoints.

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
    start, end = _parse_interval(params)
    dimensions = parse_dimensions(params.get("Dimensions") or (), "Dimensions")
    metric = Metric.of(params["Namespace"], params["MetricName"], dimensions)
    units = context.metrics.units(context.scope, metric)
    wanted = params.get("Unit")
    found: list[Result] = []
    for unit in units:
        if wanted in (None, unit):
            found += _list_datapoints(context, params, metric, unit, (start, end))
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


def _parse_interval(params: Params) -> tuple[float, float]:
    """Parse the requested interval, in whole periods. Refuses more than MAX_STATISTICS periods."""
    period_s = params["Period"]
    check_period("Period", period_s)
    start, end = params["StartTime"] // period_s * period_s, params["EndTime"]
    if params["StartTime"] >= end:
        raise invalid_combination(
            "The parameter StartTime must be less than the parameter EndTime."
        )
    asked = int(-(-(end - params["StartTime"]) // period_s))
    if asked > MAX_STATISTICS:
        raise invalid_combination(
            f"You have requested up to {asked} datapoints, which exceeds the limit of"
            f" {MAX_STATISTICS}. You may reduce the datapoints requested by increasing Period, or"
            " decreasing the time range."
        )
    return float(start), float(end)


def _list_datapoints(
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


def list_metrics(context: CallContext, params: Params) -> Result:
    """ListMetrics: matching metrics with data in the last two weeks, or 3 hours. 500 per page."""
    if params.get("OwningAccount") not in (None, context.scope.account):
        raise invalid_value(
            f"The value {params['OwningAccount']} for parameter OwningAccount is invalid: only"
            " metrics of the caller's own account can be listed."
        )
    recent_s = RECENTLY_S if params.get("RecentlyActive") else TWO_WEEKS_S
    wanted = MetricFilter(
        namespace=params.get("Namespace"),
        name=params.get("MetricName"),
        dimensions={it["Name"]: it.get("Value") for it in params.get("Dimensions") or ()},
        since=context.now - recent_s,
    )
    rows = [((0.0, _sort_key(it)), it) for it in context.metrics.find(context.scope, wanted)]
    tokens = PageTokens(context, "ListMetrics", params, TOKEN_ERROR)
    page, following = get_page(tokens, rows, PAGE_SIZE)
    if params.get("IncludeLinkedAccounts"):
        following["OwningAccounts"] = [context.scope.account] * len(page)
    return {"Metrics": [describe_metric(it) for it in page], **following}


def _sort_key(metric: Metric) -> str:
    """Build a text that sorts in the order of metrics."""
    parts = (metric.namespace, metric.name, *(text for pair in metric.dimensions for text in pair))
    return "\0".join(parts)
