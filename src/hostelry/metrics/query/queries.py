"""Evaluates metric queries over a store, for alarms, policies and GetMetricData."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from hostelry.base.errors import ServiceError
from hostelry.domain.metric import Datapoint, Metric, MetricQuery, MetricStat
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricFilter, MetricReader
from hostelry.metrics.query.insights import (
    aggregate_metrics,
    group_metrics,
    is_insights,
    matching,
    order_series,
    parse_insights,
    wanted_dimensions,
)
from hostelry.metrics.query.math_functions import (
    NOT_SERVED,
    WORDS,
    EvaluationContext,
    evaluate_node,
)
from hostelry.metrics.query.math_syntax import ExpressionError, functions_in, names_in, parse
from hostelry.metrics.query.math_values import SeriesArray, TimeSeries, Value, Work, name_kind
from hostelry.metrics.query.search import MAX_FOUND, RECENT_S, build_label, parse_search
from hostelry.metrics.series.statistic import statistic

# Dynamic labels: ``${...}`` in a query's label, replaced by properties of its series.
#
# Source: CloudWatch user guide, "Using dynamic labels".


_PART = re.compile(r"\$\{\s*([A-Z_]+)(?:\s*\(\s*(?:'([^']*)'|\"([^\"]*)\")\s*\))?\s*\}")
_OF_VALUES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "AVG": lambda values: sum(values) / len(values),
    "DATAPOINT_COUNT": len,
    "FIRST": lambda values: values[0],
    "LAST": lambda values: values[-1],
    "MAX": max,
    "MIN": min,
    "SUM": sum,
}


def fill_label(label: str, series: TimeSeries) -> str:
    """Replace the known parts of `label`."""
    return _PART.sub(lambda part: _fill_part(part, series), label)


def is_dynamic(label: str) -> bool:
    """True if `label` has parts to replace."""
    return _PART.search(label) is not None


def _fill_part(part: re.Match[str], series: TimeSeries) -> str:
    name, argument = part[1], part[2] or part[3]
    if name == "LABEL":
        return series.label
    if name == "PROP" and argument:
        found = _property(argument, series)
        return part[0] if found is None else found
    if name not in _OF_VALUES:
        return part[0]
    values = list(series.points.values())
    return f"{_OF_VALUES[name](values):g}" if values else "--"


def _property(name: str, series: TimeSeries) -> str | None:
    if name == "Period":
        return str(series.period_s)
    stat = series.stat
    if stat is None:
        return None
    if name.startswith("Dim."):
        return dict(stat.metric.dimensions).get(name.removeprefix("Dim."))
    known = {
        "MetricName": stat.metric.name,
        "Namespace": stat.metric.namespace,
        "Stat": stat.statistic,
    }
    return known.get(name)


DEFAULT_PERIOD_S = 300
MAX_MATCHED = 10_000
"""The metrics that a Metrics Insights query looks at, as on AWS."""
LONGEST_INSIGHTS_S = 14 * 24 * 3600
READ_WORK = 20
"""What reading a metric for a Metrics Insights query counts as, in points."""
_ID = re.compile(r"[a-z][A-Za-z0-9_]{0,254}")


class ResultSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One series of a query's result. `points` are oldest first, without empty periods.

    `has_dropped` is True if points were left out because their values are not numbers.
    """

    label: str
    period_s: int
    points: tuple[Datapoint, ...]
    has_dropped: bool = False


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """Series by query id. `cut` has the ids of searches with more results than they return."""

    series: Mapping[str, tuple[ResultSeries, ...]]
    cut: tuple[str, ...] = ()


def evaluate(
    store: MetricReader,
    scope: Scope,
    queries: Sequence[MetricQuery],
    start: float,
    end: float,
    *,
    is_rounded: bool = False,
) -> Mapping[str, tuple[ResultSeries, ...]]:
    """Series by query id, over periods that begin in [start, end).

    With `is_rounded` the period that contains `start` is included. A metric gives one series, an
    expression one or (as SEARCH) any number. Queries with return_data False are included, too.
    Raises ServiceError ValidationError.

    Source: GetMetricData, and CloudWatch user guide, "Using math expressions with CloudWatch
    metrics".
    """
    return results(store, scope, queries, start, end, is_rounded=is_rounded).series


def results(
    store: MetricReader,
    scope: Scope,
    queries: Sequence[MetricQuery],
    start: float,
    end: float,
    *,
    is_rounded: bool = False,
) -> Results:
    """As `evaluate`, with the ids of truncated searches."""
    evaluation = _Evaluation(store, scope, start, end)
    evaluation.is_rounded = is_rounded
    series = evaluation.run(queries)
    return Results(series=series, cut=tuple(evaluation.cut))


def check_queries(queries: Sequence[MetricQuery]) -> None:
    """Raise ServiceError ValidationError for queries that are invalid whatever the data."""
    _Evaluation(_Nothing(), Scope("", ""), 0.0, 0.0).run(queries)


def is_single(queries: Sequence[MetricQuery], id: str) -> bool:
    """Whether the valid query of that id always gives one series, as alarms require."""
    evaluation = _Evaluation(_Nothing(), Scope("", ""), 0.0, 0.0)
    evaluation.run(queries)
    return isinstance(evaluation.values[id], TimeSeries)


def uses_search(queries: Sequence[MetricQuery]) -> bool:
    """Whether any of the valid queries uses SEARCH, which alarms must not."""
    expressions = (it.expression for it in queries if it.expression is not None)
    return any("SEARCH" in functions_in(parse(it)) for it in expressions if not is_insights(it))


def _is_insights(query: MetricQuery) -> bool:
    return query.expression is not None and is_insights(query.expression)


class _Evaluation:
    """The evaluation of a list of queries over a store. Each value is computed once."""

    def __init__(self, store: MetricReader, scope: Scope, start: float, end: float) -> None:
        self.values: dict[str, Value] = {}
        self.is_rounded = False
        self.cut: dict[str, None] = {}  # ids, in order
        self._store = store
        self._scope = scope
        self._start = start
        self._end = end
        self._work = Work()
        self._metrics: dict[str, SeriesArray] = {}

    def run(self, queries: Sequence[MetricQuery]) -> dict[str, tuple[ResultSeries, ...]]:
        """Series by query id."""
        for query in queries:
            _check_shape(query)
        if len({it.id for it in queries}) < len(queries):
            raise ServiceError("ValidationError", "Two of the queries have the same id.")
        for query in queries:
            if query.stat is not None:
                series = self._metric_series(query.stat, query.stat.metric.name)
                self.values[query.id] = series
                self._metrics[query.id] = (series,)
        for query in _in_order(queries):
            self.values[query.id] = self._expression(query)
        return {query.id: _series(query, self.values[query.id]) for query in queries}

    def _expression(self, query: MetricQuery) -> Value:
        context = EvaluationContext(
            start=self._start,
            end=self._end,
            is_rounded=self.is_rounded,
            period_s=query.period_s,
            metrics=self._metrics,
            search=lambda text, stat, period_s: self._search(query, text, stat, period_s),
            work=self._work,
        )
        try:
            if _is_insights(query):
                value = self._insights(query)
            else:
                value = evaluate_node(parse(query.expression or ""), self.values, context)
        except ExpressionError as error:
            raise _refusal(query, str(error)) from None
        if not isinstance(value, TimeSeries | tuple):
            raise _refusal(query, f"It gives {name_kind(value)}, not a time series.")
        if isinstance(value, TimeSeries):
            return replace(value, label=query.id)
        return value

    def _insights(self, query: MetricQuery) -> Value:
        """One series, or with GROUP BY an array of one for each group that has data."""
        asked, account = parse_insights(query.expression or ""), self._scope.account
        if self._end - self._start > LONGEST_INSIGHTS_S:
            raise ExpressionError("A Metrics Insights query covers at most two weeks.")
        dimensions = wanted_dimensions(asked)
        wanted = MetricFilter(
            namespace=asked.namespace,
            name=asked.name,
            dimensions=dimensions,
            exact=asked.labels is not None,
            since=self._end - RECENT_S,
        )
        found = matching(asked, self._store.find(self._scope, wanted), account)
        if len(found) > MAX_MATCHED:
            self.cut[query.id] = None
        period_s = query.period_s or DEFAULT_PERIOD_S
        series = []
        for group, metrics in group_metrics(asked, found[:MAX_MATCHED], account).items():
            points = aggregate_metrics(asked, metrics, partial(self._points, period_s))
            series.append(TimeSeries(" ".join(group), period_s, points))
        if not asked.group_by:
            return series[0] if series else TimeSeries(query.id, period_s, {})
        returned, is_cut = order_series(asked, [it for it in series if it.points])
        if is_cut:
            self.cut[query.id] = None
        return returned

    def _points(self, period_s: int, metric: Metric, name: str) -> Mapping[float, float]:
        """A statistic of one metric for a Metrics Insights query."""
        self._work.spend(READ_WORK)
        stat = MetricStat(metric=metric, period_s=period_s, statistic=name)
        return self._metric_series(stat, "").points

    def _metric_series(self, stat: MetricStat, label: str) -> TimeSeries:
        start = self._start
        if self.is_rounded:
            start = start // stat.period_s * stat.period_s
        points = self._store.datapoints(self._scope, stat, start, self._end)
        self._work.spend(len(points))
        known = {it.at: it.value for it in points}
        return TimeSeries(label, stat.period_s, known, stat)

    def _search(
        self, query: MetricQuery, text: str, stat: str, period_s: int | None
    ) -> SeriesArray:
        search = parse_search(text)
        try:
            statistic(stat)
        except ValueError as error:
            raise ExpressionError(str(error)) from None
        found = self._store.find(self._scope, search.filter(self._end))
        metrics = [it for it in found if search.fits(it)]
        if len(metrics) > MAX_FOUND:
            self.cut[query.id] = None
        period_s = period_s or query.period_s or DEFAULT_PERIOD_S
        stats = [
            MetricStat(metric=metric, period_s=period_s, statistic=stat)
            for metric in metrics[:MAX_FOUND]
        ]
        return tuple(self._metric_series(it, build_label(it.metric)) for it in stats)


class _Nothing:
    """An empty store, to check queries without data."""

    def datapoints(
        self, scope: Scope, stat: MetricStat, start: float, end: float
    ) -> Sequence[Datapoint]:
        """None."""
        return ()

    def find(self, scope: Scope, metric_filter: MetricFilter) -> Sequence[Metric]:
        """None."""
        return ()

    def units(self, scope: Scope, metric: Metric) -> Sequence[str]:
        """None."""
        return ()


def _check_shape(query: MetricQuery) -> None:
    if not _ID.fullmatch(query.id):
        raise _refusal(
            query, "An id begins with a lower-case letter and has letters, digits and _ only."
        )
    if (query.stat is None) == (query.expression is None):
        raise _refusal(query, "A query has either a MetricStat or an Expression.")
    if query.stat is not None:
        try:
            statistic(query.stat.statistic)
        except ValueError as error:
            raise _refusal(query, str(error)) from None


def _in_order(queries: Sequence[MetricQuery]) -> list[MetricQuery]:
    """Sort the expressions in topological order. Raises if their dependencies have a circle."""
    expressions = {it.id: it for it in queries if it.expression is not None}
    needs = {id: _names(query) & expressions.keys() for id, query in expressions.items()}
    ordered: list[MetricQuery] = []
    while needs:
        ready = [id for id, names in needs.items() if not names]
        if not ready:
            query = expressions[next(iter(needs))]
            raise _refusal(query, "It depends on itself by way of the queries that it names.")
        for id in ready:
            del needs[id]
            ordered.append(expressions[id])
        for names in needs.values():
            names.difference_update(ready)
    return ordered


def _names(query: MetricQuery) -> set[str]:
    if _is_insights(query):
        return set()
    try:
        tree = parse(query.expression or "")
    except ExpressionError as error:
        raise _refusal(query, str(error)) from None
    for function in functions_in(tree):
        if function in NOT_SERVED:
            raise _refusal(query, f"{function}: {NOT_SERVED[function]}.")
    return set(names_in(tree)) - WORDS


def _series(query: MetricQuery, value: Value) -> tuple[ResultSeries, ...]:
    array = value if isinstance(value, tuple) else (value,)
    found = []
    for series in array:
        assert isinstance(series, TimeSeries)
        label = series.label or query.id
        if query.label:
            is_prefix = isinstance(value, tuple) and not is_dynamic(query.label)
            label = f"{query.label} {label}" if is_prefix else fill_label(query.label, series)
        points = tuple(Datapoint(at, it) for at, it in series.points.items())
        found.append(
            ResultSeries(
                label=label, period_s=series.period_s, points=points, has_dropped=series.has_dropped
            )
        )
    return tuple(found)


def _refusal(query: MetricQuery, text: str) -> ServiceError:
    """AWS's error for an expression that it cannot evaluate."""
    what = "expression" if query.expression is not None else "query"
    return ServiceError("ValidationError", f"Error in {what} '{query.id:.255}': {text}")
