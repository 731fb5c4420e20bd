"""Series of a Metrics Insights query from the metrics that it matches.

Observations are aggregated over all metrics of a group: AVG is the sum of all divided by their
number, not the mean of means.

Source: CloudWatch user guide, "Query components and syntax in CloudWatch Metrics Insights".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from hostelry.domain.metric import Metric
from hostelry.metrics.query.insights import ACCOUNT, MAX_SERIES, Condition, Insights
from hostelry.metrics.query.math_functions import REDUCERS
from hostelry.metrics.query.math_values import TimeSeries

OTHER = "Other"
STATISTICS: Mapping[str, str] = {"COUNT": "SampleCount", "MAX": "Maximum", "MIN": "Minimum"}
Read = Callable[[Metric, str], Mapping[float, float]]
Group = tuple[str, ...]


def matching(query: Insights, metrics: Iterable[Metric], account: str) -> list[Metric]:
    """The metrics that meet every condition; one without the label meets none on it."""
    found = []
    for metric in metrics:
        labels = labels_of(metric, account)
        if all(_meets(it, labels, account) for it in query.conditions):
            found.append(metric)
    return found


def labels_of(metric: Metric, account: str) -> Mapping[str, str]:
    """The labels of a metric: its dimensions, and its account."""
    return {**dict(metric.dimensions), ACCOUNT: account}


def grouped(
    query: Insights, metrics: Iterable[Metric], account: str
) -> Mapping[Group, Sequence[Metric]]:
    """The metrics by their values of GROUP BY, in that order; all in one without the clause."""
    groups: dict[Group, list[Metric]] = {}
    for metric in metrics:
        labels = labels_of(metric, account)
        groups.setdefault(tuple(labels.get(it, OTHER) for it in query.group_by), []).append(metric)
    return dict(sorted(groups.items()))


def aggregated(query: Insights, metrics: Sequence[Metric], read: Read) -> dict[float, float]:
    """The observations of all metrics by period; `read` gives a statistic of one metric."""
    if query.function in ("MAX", "MIN"):
        of = max if query.function == "MAX" else min
        return _joined([read(it, STATISTICS[query.function]) for it in metrics], of)
    if query.function == "COUNT":
        return _joined([read(it, "SampleCount") for it in metrics], sum)
    sums = _joined([read(it, "Sum") for it in metrics], sum)
    if query.function == "SUM":
        return sums
    counts = _joined([read(it, "SampleCount") for it in metrics], sum)
    return {at: total / counts[at] for at, total in sums.items() if counts.get(at)}


def ordered(query: Insights, series: Sequence[TimeSeries]) -> tuple[tuple[TimeSeries, ...], bool]:
    """The series that the query returns, and whether more than MAX_SERIES were left out."""
    found = list(series)
    if query.order_by is not None:
        of = REDUCERS[query.order_by]
        known = [it for it in found if it.points]
        known.sort(key=lambda it: of(list(it.points.values())), reverse=query.is_descending)
        found = [*known, *(it for it in found if not it.points)]
    limit = query.limit or MAX_SERIES
    return tuple(found[:limit]), query.limit is None and len(found) > limit


def _meets(condition: Condition, labels: Mapping[str, str], account: str) -> bool:
    value = labels.get(condition.label)
    wanted = account if condition.value is None else condition.value
    return value is not None and (value == wanted) == condition.is_equal


def _joined(
    parts: Sequence[Mapping[float, float]], of: Callable[[list[float]], float]
) -> dict[float, float]:
    by_instant: dict[float, list[float]] = {}
    for part in parts:
        for at, value in part.items():
            by_instant.setdefault(at, []).append(value)
    return {at: float(of(by_instant[at])) for at in sorted(by_instant)}
