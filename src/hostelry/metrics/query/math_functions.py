"""The functions of metric math: FUNCTIONS has them by name, REDUCERS the aggregations.

Source: CloudWatch user guide, "Using math expressions with CloudWatch metrics", functions supported
for metric math.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, pairwise

import msgspec

from hostelry.metrics.query.math_syntax import (
    Apply,
    Binary,
    ExpressionError,
    Listed,
    Name,
    Negative,
    Node,
    Number,
    Text,
)
from hostelry.metrics.query.math_values import (
    SeriesArray,
    TimeSeries,
    Value,
    Word,
    Work,
    across,
    build_series,
    combine,
    finite,
    map_values,
    name_kind,
)

BAND_ADVICE = (
    "compare with a number, or with an earlier value by metric math, as in m1 - 2 * AVG(m1)"
)
NOT_SERVED: Mapping[str, str] = {
    "ANOMALY_DETECTION_BAND": f"there is no anomaly detection here; {BAND_ADVICE}",
    "DB_PERF_INSIGHTS": "there are no databases here",
    "INSIGHT_RULE_METRIC": "there is no Contributor Insights here; use SELECT ... GROUP BY",
    "LAMBDA": "there are no Lambda functions here; publish values by PutMetricData",
    "SERVICE_QUOTA": "metrics have no service quotas here; compare with a number",
}
"""AWS's other functions, and what to use instead."""
MAX_GRID_POINTS = 100_800
EMPTY = TimeSeries("", 0, {})


class EvaluationContext(msgspec.Struct, frozen=True, kw_only=True):
    """Further inputs of a function, in addition to its arguments.

    With `is_rounded` the period that contains `start` is included. `metrics` are the request's own
    series by query id. `search` finds series by a search text, a statistic and a period (None: the
    query's own).
    """

    start: float
    end: float
    is_rounded: bool = False
    period_s: int | None
    metrics: Mapping[str, SeriesArray]
    search: Callable[[str, str, int | None], SeriesArray]
    work: Work = msgspec.field(default_factory=Work)


Arguments = Sequence[Value]
Function = Callable[[Arguments, EvaluationContext], Value]
Reducer = Callable[[list[float]], float]


def _deviation(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((it - mean) ** 2 for it in values) / len(values))


REDUCERS: Mapping[str, Reducer] = {
    "SUM": sum,
    "AVG": lambda values: sum(values) / len(values),
    "MIN": min,
    "MAX": max,
    "STDDEV": _deviation,
    "COUNT": lambda values: float(len(values)),
    "DATAPOINT_COUNT": lambda values: float(len(values)),
}


def apply(name: str, arguments: Arguments, context: EvaluationContext) -> Value:
    """Apply the function `name` to its arguments. Raises ExpressionError."""
    if name in REDUCERS:
        return _reduce(name, arguments, context)
    if name not in FUNCTIONS:
        raise ExpressionError(
            f"There is no function {name:.50} here; there are"
            f" {', '.join(sorted((*REDUCERS, *FUNCTIONS)))}."
        )
    least, most, function = FUNCTIONS[name]
    if not least <= len(arguments) <= most:
        takes = str(least) if least == most else f"{least} to {most}"
        raise ExpressionError(f"{name} takes {takes} arguments, not {len(arguments)}.")
    return function(arguments, context)


def to_array(items: Arguments) -> Value:
    """The array of bracketed series and arrays of series."""
    return tuple(series for item in items for series in _array("An array", item))


def _reduce(name: str, arguments: Arguments, context: EvaluationContext) -> Value:
    """Reduce one series or numbers to a number, and several series to a series."""
    if not arguments:
        raise ExpressionError(f"{name} takes a time series or an array of them.")
    only = arguments[0]
    if len(arguments) == 1 and isinstance(only, TimeSeries):
        context.work.spend(len(only.points))
        return _number(name, list(only.points.values()))
    if all(isinstance(it, float) for it in arguments):
        return _number(name, [it for it in arguments if isinstance(it, float)])
    array = [series for it in arguments for series in _array(name, it)]
    return across(array, REDUCERS[name], context.work)


def _number(name: str, values: list[float]) -> float:
    if not values:
        return 0.0 if name.endswith("COUNT") else math.nan
    try:
        return float(REDUCERS[name](values))
    except OverflowError:
        return math.nan


def _each(of: Callable[[TimeSeries, Work], TimeSeries]) -> Function:
    """A function of one series, which is applied to each series of an array, too."""

    def function(arguments: Arguments, context: EvaluationContext) -> Value:
        value = arguments[0]
        array = _array("It", value)
        context.work.spend(_num_points(array))
        found = tuple(of(series, context.work) for series in array)
        return found[0] if isinstance(value, TimeSeries) else found

    return function


def _apply_to_values(of: Callable[[float], float]) -> Function:
    """A function of a number, which is applied to each value of series, too."""
    of_series = _each(lambda series, work: map_values(series, of, work))

    def function(arguments: Arguments, context: EvaluationContext) -> Value:
        value = arguments[0]
        if not isinstance(value, float):
            return of_series(arguments, context)
        try:
            return float(of(value))
        except (ValueError, OverflowError):
            return math.nan

    return function


def _apply_to_instants(of: Callable[[datetime], float]) -> Function:
    """A function of the instants of a series, in UTC."""

    def apply_to_series(series: TimeSeries, _: Work) -> TimeSeries:
        return _replace_points(
            series, {at: of(datetime.fromtimestamp(at, UTC)) for at in series.points}
        )

    return _each(apply_to_series)


def _steps(of: Callable[[float, float], float]) -> Function:
    """A function of the time and the value by which each point exceeds the one before."""

    def apply_to_series(series: TimeSeries, _: Work) -> TimeSeries:
        pairs = pairwise(series.points.items())
        steps = {at: of(at - last, value - was) for (last, was), (at, value) in pairs}
        return _replace_points(series, steps)

    return _each(apply_to_series)


def _running_sum(series: TimeSeries, _: Work) -> TimeSeries:
    totals = accumulate(series.points.values())
    return _replace_points(series, dict(zip(series.points, totals, strict=True)))


def _replace_points(series: TimeSeries, points: Mapping[float, float]) -> TimeSeries:
    return build_series(series.label, series.period_s, points, (series,))


def _time_series(arguments: Arguments, context: EvaluationContext) -> Value:
    value = arguments[0]
    if not isinstance(value, float):
        raise ExpressionError(f"TIME_SERIES takes a number, not {name_kind(value)}.")
    period_s = context.period_s or 60
    return build_series("", period_s, dict.fromkeys(_grid(period_s, context), value))


def _fill(arguments: Arguments, context: EvaluationContext) -> Value:
    value, filler = arguments
    found = tuple(_fill_series(series, filler, context) for series in _array("FILL", value))
    return found[0] if isinstance(value, TimeSeries) else found


def _fill_series(series: TimeSeries, filler: Value, context: EvaluationContext) -> TimeSeries:
    grid = _grid(series.period_s, context)
    known = series.points
    if isinstance(filler, float):
        points = dict.fromkeys(grid, filler)
    elif isinstance(filler, TimeSeries):
        points = {at: filler.points.get(at, math.nan) for at in grid}
    elif filler == Word("REPEAT"):
        points = _repeat(known, grid)
    elif filler == Word("LINEAR"):
        points = _interpolate(known, grid)
    else:
        raise ExpressionError(
            f"FILL fills with a number, a time series, REPEAT or LINEAR, not {name_kind(filler)}."
        )
    # All known points stay, because arrays of mixed periods have points between the grid's points.
    filled = dict(sorted(finite({**points, **known}).items()))
    return TimeSeries(series.label, series.period_s, filled)


def _repeat(known: Mapping[float, float], grid: Sequence[float]) -> dict[float, float]:
    points, last = {}, math.nan
    for at in grid:
        last = known.get(at, last)
        points[at] = last
    return points


def _interpolate(known: Mapping[float, float], grid: Sequence[float]) -> dict[float, float]:
    """Fill gaps between points on the line through their neighbours."""
    points: dict[float, float] = {}
    anchors = iter(pairwise(known.items()))
    current = next(anchors, None)
    for at in grid:
        while current is not None and current[1][0] < at:
            current = next(anchors, None)
        if current is None:
            break
        (first, low), (last, high) = current
        if first < at < last:
            points[at] = low + (high - low) * (at - first) / (last - first)
    return points


def _grid(period_s: int, context: EvaluationContext) -> list[float]:
    """The starts of the periods in the requested time. Period 0 means the query's period."""
    period_s = period_s or context.period_s or 60
    first, last = -(-context.start // period_s), -(-context.end // period_s)
    if context.is_rounded:
        first = context.start // period_s
    if last - first > MAX_GRID_POINTS:
        raise ExpressionError(
            f"The time asked for has {int(last - first)} periods of {period_s} s; at most"
            f" {MAX_GRID_POINTS} can be filled."
        )
    context.work.spend(max(int(last - first), 0))
    return [float(number * period_s) for number in range(int(first), int(last))]


def _if(arguments: Arguments, context: EvaluationContext) -> Value:
    """The value of IF.

    condition     branches             result
    -----------   ------------------   -----------------------------------
    number        any                  one of the branches
    series        numbers and series   series, chosen point by point
    array         numbers and series   array of such series
    any           a text or a word     ExpressionError
    not a number  an array             ExpressionError
    """
    condition = arguments[0]
    yes, *rest = (_branch(it) for it in arguments[1:])
    no = rest[0] if rest else math.nan
    if isinstance(condition, float):
        return yes if condition else no
    if isinstance(yes, tuple) or isinstance(no, tuple):
        raise ExpressionError("IF chooses between numbers and time series, not arrays.")
    if isinstance(condition, tuple):
        return tuple(_choose(series, yes, no, context) for series in condition)
    return _choose(_series("IF", condition), yes, no, context)


def _choose(
    condition: TimeSeries,
    yes: float | TimeSeries,
    no: float | TimeSeries,
    context: EvaluationContext,
) -> TimeSeries:
    context.work.spend(len(condition.points))
    points = {}
    for at, truth in condition.points.items():
        branch = yes if truth else no
        points[at] = branch.points.get(at, math.nan) if isinstance(branch, TimeSeries) else branch
    sources = [it for it in (condition, yes, no) if isinstance(it, TimeSeries)]
    has_dropped = any(it.has_dropped for it in sources)
    return TimeSeries(condition.label, condition.period_s, finite(points), has_dropped=has_dropped)


def _branch(value: Value) -> float | TimeSeries | SeriesArray:
    if isinstance(value, (str, Word)):
        raise ExpressionError(
            f"IF chooses between numbers and time series, not {name_kind(value)}."
        )
    return value


def _metrics(arguments: Arguments, context: EvaluationContext) -> Value:
    part = arguments[0] if arguments else ""
    if not isinstance(part, str):
        raise ExpressionError(f"METRICS takes a part of an id in quotes, not {name_kind(part)}.")
    return tuple(series for id, array in context.metrics.items() if part in id for series in array)


def _search(arguments: Arguments, context: EvaluationContext) -> Value:
    text, stat = arguments[0], arguments[1]
    period_s = arguments[2] if len(arguments) == 3 else None
    if not isinstance(text, str) or not isinstance(stat, str):
        raise ExpressionError("SEARCH takes a search text and a statistic, both in quotes.")
    if period_s is not None and (
        not isinstance(period_s, float) or not period_s.is_integer() or not 1 <= period_s <= 86400
    ):
        raise ExpressionError("SEARCH's period is a whole number of seconds from 1 to 86400.")
    return context.search(text, stat, None if period_s is None else int(period_s))


def _slice(arguments: Arguments, _: EvaluationContext) -> Value:
    array = _array("SLICE", arguments[0])
    bounds = [_index("SLICE", it) for it in arguments[1:]]
    if len(bounds) == 1:
        return array[bounds[0]] if bounds[0] < len(array) else EMPTY
    return array[bounds[0] : bounds[1]]


def _sort(arguments: Arguments, context: EvaluationContext) -> Value:
    array = _array("SORT", arguments[0])
    by, order = arguments[1], arguments[2]
    if not isinstance(by, Word) or by.text not in REDUCERS:
        raise ExpressionError(f"SORT orders by one of {', '.join(sorted(REDUCERS))}.")
    if not isinstance(order, Word) or order.text not in ("ASC", "DESC"):
        raise ExpressionError("SORT's order is ASC or DESC.")
    context.work.spend(sum(len(series.points) for series in array))
    known = [series for series in array if series.points]
    known.sort(
        key=lambda series: REDUCERS[by.text](list(series.points.values())),
        reverse=order.text == "DESC",
    )
    placed = (*known, *(series for series in array if not series.points))
    return placed[: _index("SORT", arguments[3])] if len(arguments) == 4 else placed


def _apply_to_array(name: str, of: Callable[[SeriesArray], Value]) -> Function:
    """A function of one array."""
    return lambda arguments, _: of(_array(name, arguments[0]))


def _index(name: str, value: Value) -> int:
    if not isinstance(value, float) or not value.is_integer() or value < 0:
        raise ExpressionError(f"{name} takes whole numbers from 0, not {name_kind(value)}.")
    return int(value)


def _series(name: str, value: Value) -> TimeSeries:
    if not isinstance(value, TimeSeries):
        raise ExpressionError(f"{name} takes a time series, not {name_kind(value)}.")
    return value


def _num_points(array: SeriesArray) -> int:
    return sum(len(series.points) for series in array)


def _array(name: str, value: Value) -> SeriesArray:
    if isinstance(value, TimeSeries):
        return (value,)
    if not isinstance(value, tuple):
        raise ExpressionError(f"{name} takes time series, not {name_kind(value)}.")
    return value


FUNCTIONS: Mapping[str, tuple[int, int, Function]] = {
    "ABS": (1, 1, _apply_to_values(abs)),
    "CEIL": (1, 1, _apply_to_values(math.ceil)),
    "DATE": (1, 1, _apply_to_instants(lambda at: at.day)),
    "DAY": (1, 1, _apply_to_instants(datetime.isoweekday)),
    "DIFF": (1, 1, _steps(lambda _, more: more)),
    "DIFF_TIME": (1, 1, _steps(lambda later_s, _: later_s)),
    "EPOCH": (1, 1, _apply_to_instants(datetime.timestamp)),
    "FILL": (2, 2, _fill),
    "FIRST": (1, 1, _apply_to_array("FIRST", lambda array: array[0] if array else EMPTY)),
    "FLOOR": (1, 1, _apply_to_values(math.floor)),
    "HOUR": (1, 1, _apply_to_instants(lambda at: at.hour)),
    "IF": (2, 3, _if),
    "LAST": (1, 1, _apply_to_array("LAST", lambda array: array[-1] if array else EMPTY)),
    "LOG": (1, 1, _apply_to_values(math.log)),
    "LOG10": (1, 1, _apply_to_values(math.log10)),
    "METRICS": (0, 1, _metrics),
    "METRIC_COUNT": (1, 1, _apply_to_array("METRIC_COUNT", lambda array: float(len(array)))),
    "MINUTE": (1, 1, _apply_to_instants(lambda at: at.minute)),
    "MONTH": (1, 1, _apply_to_instants(lambda at: at.month)),
    "PERIOD": (1, 1, lambda arguments, _: float(_series("PERIOD", arguments[0]).period_s)),
    "RATE": (1, 1, _steps(lambda later_s, more: more / later_s)),
    "REMOVE_EMPTY": (
        1, 1, _apply_to_array("REMOVE_EMPTY", lambda array: tuple(it for it in array if it.points)),
    ),
    "RUNNING_SUM": (1, 1, _each(_running_sum)),
    "SEARCH": (2, 3, _search),
    "SLICE": (2, 3, _slice),
    "SORT": (3, 4, _sort),
    "TIME_SERIES": (1, 1, _time_series),
    "YEAR": (1, 1, _apply_to_instants(lambda at: at.year)),
}  # fmt: skip
"""Functions by name, with the least and the most arguments that each takes."""


WORDS = frozenset({"REPEAT", "LINEAR", "ASC", "DESC", *REDUCERS})
"""Names in arguments of functions that are not ids of queries."""


def evaluate_node(node: Node, known: Mapping[str, Value], context: EvaluationContext) -> Value:
    """Evaluate `node`. `known` has the values of ids. Raises ExpressionError."""
    match node:
        case Number(value):
            return value
        case Text(value):
            return value
        case Name(id):
            return _find_value(id, known)
        case Negative(of):
            return combine("*", -1.0, evaluate_node(of, known, context), context.work)
        case Binary(sign, left, right):
            first = evaluate_node(left, known, context)
            return combine(sign, first, evaluate_node(right, known, context), context.work)
        case Listed(items):
            return _evaluate_items([evaluate_node(it, known, context) for it in items], context)
        case Apply(function, arguments):
            return apply(function, [evaluate_node(it, known, context) for it in arguments], context)


def _find_value(id: str, known: Mapping[str, Value]) -> Value:
    if id in known:
        return known[id]
    if id in WORDS:
        return Word(id)
    raise ExpressionError(f"There is no query with the id '{id:.100}'.")


def _evaluate_items(items: list[Value], context: EvaluationContext) -> Value:
    context.work.spend(len(items))
    return to_array(items)
