"""A list of metric queries over a store: what alarms, policies and GetMetricData all ask."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hostelry.base.errors import ServiceError
from hostelry.domain.metric import Datapoint, Metric, MetricQuery, MetricStat
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricFilter, MetricReader
from hostelry.metrics.query.label import filled, is_dynamic
from hostelry.metrics.query.math_evaluate import WORDS, value_of
from hostelry.metrics.query.math_functions import EvaluationContext
from hostelry.metrics.query.math_syntax import ExpressionError, functions_in, names_in, parse
from hostelry.metrics.query.math_values import Line, Lines, Value, Work, kind_of
from hostelry.metrics.query.search import MAX_FOUND, label_of, parse_search
from hostelry.metrics.series.statistic import statistic

DEFAULT_PERIOD_S = 300
_ID = re.compile(r"[a-z][A-Za-z0-9_]{0,254}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSeries:
    """One time series of a query's result; `points` oldest first, periods without data left out.

    `has_dropped` where points were left out because their values are no numbers.
    """

    label: str
    period_s: int
    points: tuple[Datapoint, ...]
    has_dropped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Every query's series by its id; `cut` are those whose SEARCH found more than it may give."""

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
    """The series of every query by its id, over periods that begin in [start, end).

    With `is_rounded` the period that `start` lies in is in it too. A query of one metric gives one
    series, an expression one or (as SEARCH) any number. Queries with return_data False are in the
    result too. Raises ServiceError ValidationError.

    Source: GetMetricData; CloudWatch user guide, "Using math expressions with CloudWatch metrics".
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
    """As `evaluate`, with what there is to tell of it."""
    evaluation = _Evaluation(store, scope, start, end)
    evaluation.is_rounded = is_rounded
    series = evaluation.run(queries)
    return Results(series=series, cut=tuple(evaluation.cut))


def check_queries(queries: Sequence[MetricQuery]) -> None:
    """Raise ServiceError ValidationError where the queries cannot be evaluated, data or not."""
    _Evaluation(_Nothing(), Scope("", ""), 0.0, 0.0).run(queries)


def is_single(queries: Sequence[MetricQuery], id: str) -> bool:
    """Whether the valid query of that id always gives one series, as an alarm needs."""
    evaluation = _Evaluation(_Nothing(), Scope("", ""), 0.0, 0.0)
    evaluation.run(queries)
    return isinstance(evaluation.values[id], Line)


def uses_search(queries: Sequence[MetricQuery]) -> bool:
    """Whether any of the valid queries applies SEARCH, which alarms may not."""
    expressions = (it.expression for it in queries if it.expression is not None)
    return any("SEARCH" in functions_in(parse(it)) for it in expressions)


class _Evaluation:
    """One list of queries over one store, each value computed once."""

    def __init__(self, store: MetricReader, scope: Scope, start: float, end: float) -> None:
        self.values: dict[str, Value] = {}
        self.is_rounded = False
        self.cut: dict[str, None] = {}  # ids, in order
        self._store = store
        self._scope = scope
        self._start = start
        self._end = end
        self._work = Work()
        self._metrics: dict[str, Lines] = {}

    def run(self, queries: Sequence[MetricQuery]) -> dict[str, tuple[ResultSeries, ...]]:
        """Every query's series, by id."""
        for query in queries:
            _check_shape(query)
        if len({it.id for it in queries}) < len(queries):
            raise ServiceError("ValidationError", "Two of the queries have the same id.")
        for query in queries:
            if query.stat is not None:
                line = self._line(query.stat, query.stat.metric.name)
                self.values[query.id] = line
                self._metrics[query.id] = (line,)
        for query in _in_order(queries):
            self.values[query.id] = self._expression(query)
        return {query.id: _series(query, self.values[query.id]) for query in queries}

    def _expression(self, query: MetricQuery) -> Value:
        around = EvaluationContext(
            start=self._start,
            end=self._end,
            is_rounded=self.is_rounded,
            period_s=query.period_s,
            metrics=self._metrics,
            search=lambda text, stat, period_s: self._search(query, text, stat, period_s),
            work=self._work,
        )
        try:
            value = value_of(parse(query.expression or ""), self.values, around)
        except ExpressionError as error:
            raise _refusal(query, str(error)) from None
        if not isinstance(value, Line | tuple):
            raise _refusal(query, f"It gives {kind_of(value)}, not a time series.")
        if isinstance(value, Line):
            return replace(value, label=query.id)
        return value

    def _line(self, stat: MetricStat, label: str) -> Line:
        start = self._start
        if self.is_rounded:
            start = start // stat.period_s * stat.period_s
        points = self._store.datapoints(self._scope, stat, start, self._end)
        self._work.spend(len(points))
        known = {it.at: it.value for it in points}
        return Line(label, stat.period_s, known, stat)

    def _search(self, query: MetricQuery, text: str, stat: str, period_s: int | None) -> Lines:
        wanted = parse_search(text)
        try:
            statistic(stat)
        except ValueError as error:
            raise ExpressionError(str(error)) from None
        found = self._store.find(self._scope, wanted.filter(self._end))
        metrics = [it for it in found if wanted.fits(it)]
        if len(metrics) > MAX_FOUND:
            self.cut[query.id] = None
        period_s = period_s or query.period_s or DEFAULT_PERIOD_S
        return tuple(
            self._line(MetricStat(metric=it, period_s=period_s, statistic=stat), label_of(it))
            for it in metrics[:MAX_FOUND]
        )


class _Nothing:
    """A store without metrics, over which queries show whether they can be evaluated."""

    def datapoints(
        self, scope: Scope, stat: MetricStat, start: float, end: float
    ) -> Sequence[Datapoint]:
        """None."""
        return ()

    def find(self, scope: Scope, wanted: MetricFilter) -> Sequence[Metric]:
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
    """The expressions, each after all that it names; raises where they go round in a circle."""
    expressions = {it.id: it for it in queries if it.expression is not None}
    needs = {
        id: {it for it in _names(query) if it in expressions} for id, query in expressions.items()
    }
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
    try:
        return set(names_in(parse(query.expression or ""))) - WORDS
    except ExpressionError as error:
        raise _refusal(query, str(error)) from None


def _series(query: MetricQuery, value: Value) -> tuple[ResultSeries, ...]:
    lines = value if isinstance(value, tuple) else (value,)
    found = []
    for line in lines:
        assert isinstance(line, Line)
        label = line.label or query.id
        if query.label:
            is_prefix = isinstance(value, tuple) and not is_dynamic(query.label)
            label = f"{query.label} {label}" if is_prefix else filled(query.label, line)
        points = tuple(Datapoint(at, it) for at, it in line.points.items())
        found.append(
            ResultSeries(
                label=label, period_s=line.period_s, points=points, has_dropped=line.has_dropped
            )
        )
    return tuple(found)


def _refusal(query: MetricQuery, text: str) -> ServiceError:
    """AWS's answer to an expression that it cannot evaluate."""
    what = "expression" if query.expression is not None else "query"
    return ServiceError("ValidationError", f"Error in {what} '{query.id:.255}': {text}")
