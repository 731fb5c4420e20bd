"""GetMetricData.

Source: GetMetricData in the CloudWatch API reference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hostelry.api.cloudwatch.metric_values import (
    DAY_S,
    TOKEN_ERROR,
    check_period,
    dimensions_of,
    invalid_value,
    missing,
)
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, Position
from hostelry.api.refusals import refuse_fields
from hostelry.base.errors import validation_error
from hostelry.domain.metric import Datapoint, Metric, MetricQuery, MetricStat
from hostelry.metrics.query.queries import MAX_MATCHED, results
from hostelry.metrics.query.search import MAX_FOUND

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSeries:
    """One series of the answer, or the points of it on one page; `place` orders the series."""

    place: str
    id: str
    label: str
    points: Sequence[Datapoint]
    has_dropped: bool = False
    is_whole: bool = True


def get_metric_data(context: CallContext, params: Params) -> Result:
    """The series of every query that returns data, in pages of MaxDatapoints.

    StartTime is rounded down to the period of each query.
    """
    refuse_fields(params, ("LabelOptions",))
    queries = _queries(context, params)
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
    page, following = _page(_behind(every, last, is_ascending=is_ascending), size, tokens)
    return {
        "MetricDataResults": [_shown(it) for it in page],
        "Messages": _messages(found.cut),
        **following,
    }


def _queries(context: CallContext, params: Params) -> list[MetricQuery]:
    given = params["MetricDataQueries"]
    if not 1 <= len(given) <= MAX_QUERIES:
        raise validation_error(
            f"The collection MetricDataQueries must have 1 to {MAX_QUERIES} queries; it has"
            f" {len(given)}."
        )
    return [
        _query(context, query, f"MetricDataQueries.member.{number}")
        for number, query in enumerate(given, start=1)
    ]


def _query(context: CallContext, given: Mapping[str, Any], path: str) -> MetricQuery:
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
        stat=None if stat is None else _stat(stat, f"{path}.MetricStat"),
        expression=given.get("Expression"),
        label=given.get("Label"),
        return_data=given.get("ReturnData") is not False,
        period_s=given.get("Period"),
    )


def _stat(given: Mapping[str, Any], path: str) -> MetricStat:
    metric = given["Metric"]
    for name in ("Namespace", "MetricName"):
        if metric.get(name) is None:
            raise missing(f"The parameter {path}.Metric.{name} is required.")
    _check_period(f"{path}.Period", given["Period"])
    dimensions = dimensions_of(metric.get("Dimensions") or (), f"{path}.Metric.Dimensions")
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


def _behind(
    series: Sequence[AnswerSeries], last: Position | None, *, is_ascending: bool
) -> list[AnswerSeries]:
    """The points after the last one of the page before."""
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


def _page(
    series: Sequence[AnswerSeries], size: int, tokens: PageTokens
) -> tuple[list[AnswerSeries], Result]:
    """As many points as fit, and the member that leads to the rest."""
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


def _messages(cut: Sequence[str]) -> list[Result]:
    """Messages of the whole call. Source: GetMetricData, Messages."""
    if not cut:
        return []
    text = (
        f"Maximum number of allowed metrics exceeded: {', '.join(cut):.500} finds more than"
        f" {MAX_FOUND} time series (with Metrics Insights, or {MAX_MATCHED} metrics), and gives the"
        " first of them. Make the search narrower."
    )
    return [{"Code": "MaxMetricsExceeded", "Value": text}]


def _shown(series: AnswerSeries) -> Result:
    shown = {
        "Id": series.id,
        "Label": series.label,
        "Timestamps": [it.at for it in series.points],
        "Values": [it.value for it in series.points],
        "StatusCode": "Complete" if series.is_whole else "PartialData",
    }
    return {**shown, "Messages": [DROPPED]} if series.has_dropped else shown
