"""A list of metric queries over a store: what alarms, policies and GetMetricData all ask."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hostelry.base.errors import ServiceError
from hostelry.domain.metric import Datapoint, MetricQuery
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSeries:
    """One time series of a query's result; `points` oldest first, periods without data left out."""

    label: str
    period_s: int
    points: tuple[Datapoint, ...]


def evaluate(
    store: MetricStore, scope: Scope, queries: Sequence[MetricQuery], start: float, end: float
) -> Mapping[str, tuple[ResultSeries, ...]]:
    """The series of every query by its id, over periods that begin in [start, end).

    A query of one metric gives one series, an expression one or (as SEARCH) any number. Queries
    with return_data False are in the result too. Raises ServiceError ValidationError.
    """
    check_queries(queries)
    results = {}
    for query in queries:
        assert query.stat is not None
        points = tuple(store.datapoints(scope, query.stat, start, end))
        label = query.label or query.stat.metric.name
        series = ResultSeries(label=label, period_s=query.stat.period_s, points=points)
        results[query.id] = (series,)
    return results


def check_queries(queries: Sequence[MetricQuery]) -> None:
    """Raise ServiceError ValidationError where the queries cannot be evaluated, data or not."""
    for query in queries:
        if query.stat is None:
            raise ServiceError("ValidationError", f"Error in expression '{query.id}': not yet.")
