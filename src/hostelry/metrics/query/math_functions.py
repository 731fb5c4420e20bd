"""The functions of metric math.

Source: CloudWatch user guide, "Using math expressions with CloudWatch metrics", functions supported
for metric math.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

from hostelry.metrics.query.math_syntax import ExpressionError
from hostelry.metrics.query.math_values import (
    Line,
    Lines,
    Value,
    Word,
    Work,
    across,
    computed,
    finite,
    kind_of,
)
from hostelry.metrics.query.math_values import mapped as mapped_line

MAX_GRID_POINTS = 100_800


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationContext:
    """What a function may know besides its arguments.

    With `is_rounded` the period that `start` lies in belongs to the time asked for. `metrics` are
    the request's own series by query id. `search` finds series by a search text, a statistic and a
    period (None: the query's own).
    """

    start: float
    end: float
    is_rounded: bool = False
    period_s: int | None
    metrics: Mapping[str, Lines]
    search: Callable[[str, str, int | None], Lines]
    work: Work = field(default_factory=Work)


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
_OF_POINTS: Mapping[str, Callable[[float], float]] = {
    "ABS": abs,
    "CEIL": math.ceil,
    "FLOOR": math.floor,
    "LOG": math.log,
    "LOG10": math.log10,
}
_OF_INSTANTS: Mapping[str, Callable[[float], float]] = {
    "EPOCH": lambda at: at,
    "MINUTE": lambda at: _utc(at).minute,
    "HOUR": lambda at: _utc(at).hour,
    "DAY": lambda at: _utc(at).isoweekday(),
    "DATE": lambda at: _utc(at).day,
    "MONTH": lambda at: _utc(at).month,
    "YEAR": lambda at: _utc(at).year,
}


def apply(name: str, arguments: Arguments, context: EvaluationContext) -> Value:
    """What function `name` makes of its arguments; raises ExpressionError."""
    if name in REDUCERS:
        return _reduce(name, arguments, context)
    if name not in FUNCTIONS:
        raise ExpressionError(
            f"There is no function {name:.50} here; there are"
            f" {', '.join(sorted((*REDUCERS, *FUNCTIONS)))}."
        )
    least, most, function = FUNCTIONS[name]
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise ExpressionError(f"{name} takes {wanted} arguments, not {len(arguments)}.")
    return function(arguments, context)


def listed(items: Arguments) -> Value:
    """The array that brackets make of series and of arrays of series."""
    found: list[Line] = []
    for item in items:
        found += _lines("An array", item)
    return tuple(found)


def _reduce(name: str, arguments: Arguments, context: EvaluationContext) -> Value:
    """One series becomes a number, several become one series."""
    if not arguments:
        raise ExpressionError(f"{name} takes a time series or an array of them.")
    only = arguments[0]
    if len(arguments) == 1 and isinstance(only, Line):
        context.work.spend(len(only.points))
        return _number(name, list(only.points.values()))
    if all(isinstance(it, float) for it in arguments):
        return _number(name, [it for it in arguments if isinstance(it, float)])
    lines = [line for it in arguments for line in _lines(name, it)]
    return across(lines, REDUCERS[name], context.work)


def _number(name: str, values: list[float]) -> float:
    if not values:
        return 0.0 if name.endswith("COUNT") else math.nan
    try:
        return float(REDUCERS[name](values))
    except OverflowError:
        return math.nan


def _each(of: Callable[[Line, EvaluationContext], Line]) -> Function:
    """A function of one series, for series and for arrays of them."""

    def function(arguments: Arguments, context: EvaluationContext) -> Value:
        value = arguments[0]
        if isinstance(value, Line):
            context.work.spend(len(value.points))
            return of(value, context)
        lines = _lines("It", value)
        context.work.spend(sum(len(line.points) for line in lines))
        return tuple(of(line, context) for line in lines)

    return function


def _of_points(of: Callable[[float], float]) -> Function:
    def function(arguments: Arguments, context: EvaluationContext) -> Value:
        value = arguments[0]
        if isinstance(value, float):
            try:
                return float(of(value))
            except (ValueError, OverflowError):
                return math.nan
        return _each(lambda line, here: mapped_line(line, of, here.work))(arguments, context)

    return function


def _of_instants(of: Callable[[float], float]) -> Function:
    return _each(
        lambda line, _: computed(
            line.label, line.period_s, {at: of(at) for at in line.points}, (line,)
        )
    )


def _steps(of: Callable[[float, float], float]) -> Function:
    """A function of how much later and how much more each point is than the one before."""

    def stepped(line: Line, _: EvaluationContext) -> Line:
        pairs = pairwise(line.points.items())
        points = {at: of(at - last, value - was) for (last, was), (at, value) in pairs}
        return computed(line.label, line.period_s, points, (line,))

    return _each(stepped)


def _running_sum(line: Line, _: EvaluationContext) -> Line:
    total = 0.0
    points = {}
    for at, value in line.points.items():
        total += value
        points[at] = total
    return computed(line.label, line.period_s, points, (line,))


def _period(arguments: Arguments, _: EvaluationContext) -> Value:
    return float(_line("PERIOD", arguments[0]).period_s)


def _time_series(arguments: Arguments, context: EvaluationContext) -> Value:
    value = arguments[0]
    if not isinstance(value, float):
        raise ExpressionError(f"TIME_SERIES takes a number, not {kind_of(value)}.")
    grid = _grid(context.period_s or 60, context)
    return computed("", context.period_s or 60, dict.fromkeys(grid, value))


def _fill(arguments: Arguments, context: EvaluationContext) -> Value:
    value, filler = arguments
    if isinstance(value, Line):
        return _filled(value, filler, context)
    return tuple(_filled(line, filler, context) for line in _lines("FILL", value))


def _filled(line: Line, filler: Value, context: EvaluationContext) -> Line:
    grid = _grid(line.period_s, context)
    known = line.points
    if isinstance(filler, float):
        points = {at: known.get(at, filler) for at in grid}
    elif isinstance(filler, Line):
        points = {at: known.get(at, filler.points.get(at, math.nan)) for at in grid}
    elif filler == Word("REPEAT"):
        points = _repeated(known, grid)
    elif filler == Word("LINEAR"):
        points = _interpolated(known, grid)
    else:
        raise ExpressionError(
            f"FILL fills with a number, a time series, REPEAT or LINEAR, not {kind_of(filler)}."
        )
    # The values of finer periods than the grid's, as arrays of mixed periods have, stay.
    return Line(line.label, line.period_s, dict(sorted(finite({**points, **known}).items())))


def _repeated(known: Mapping[float, float], grid: Sequence[float]) -> dict[float, float]:
    points, last = {}, math.nan
    for at in grid:
        last = known.get(at, last)
        points[at] = last
    return points


def _interpolated(known: Mapping[float, float], grid: Sequence[float]) -> dict[float, float]:
    """Gaps between two points on the line through them; what has no neighbour stays empty."""
    points = dict(known)
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
    """The starts of the periods in the time asked for; those of no series are of the query's."""
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
    """IF of a number chooses one value; of a series, point by point."""
    condition = arguments[0]
    yes, *rest = (_branch(it) for it in arguments[1:])
    no = rest[0] if rest else math.nan
    if isinstance(condition, float):
        return yes if condition else no
    if isinstance(yes, tuple) or isinstance(no, tuple):
        raise ExpressionError("IF chooses between numbers and time series, not arrays.")
    if isinstance(condition, tuple):
        return tuple(_chosen(line, yes, no, context) for line in condition)
    return _chosen(_line("IF", condition), yes, no, context)


def _chosen(
    condition: Line, yes: float | Line, no: float | Line, context: EvaluationContext
) -> Line:
    context.work.spend(len(condition.points))
    points = {}
    for at, truth in condition.points.items():
        branch = yes if truth else no
        points[at] = branch.points.get(at, math.nan) if isinstance(branch, Line) else branch
    sources = [it for it in (condition, yes, no) if isinstance(it, Line)]
    has_dropped = any(it.has_dropped for it in sources)
    return Line(condition.label, condition.period_s, finite(points), has_dropped=has_dropped)


def _branch(value: Value) -> float | Line | Lines:
    if isinstance(value, (str, Word)):
        raise ExpressionError(f"IF chooses between numbers and time series, not {kind_of(value)}.")
    return value


def _metrics(arguments: Arguments, context: EvaluationContext) -> Value:
    part = arguments[0] if arguments else ""
    if not isinstance(part, str):
        raise ExpressionError(f"METRICS takes a part of an id in quotes, not {kind_of(part)}.")
    return tuple(line for id, lines in context.metrics.items() if part in id for line in lines)


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
    lines = _lines("SLICE", arguments[0])
    bounds = [_index("SLICE", it) for it in arguments[1:]]
    if len(bounds) == 1:
        return lines[bounds[0]] if bounds[0] < len(lines) else Line("", 0, {})
    return lines[bounds[0] : bounds[1]]


def _sort(arguments: Arguments, context: EvaluationContext) -> Value:
    lines = _lines("SORT", arguments[0])
    by, order = arguments[1], arguments[2]
    if not isinstance(by, Word) or by.text not in REDUCERS:
        raise ExpressionError(f"SORT orders by one of {', '.join(sorted(REDUCERS))}.")
    if not isinstance(order, Word) or order.text not in ("ASC", "DESC"):
        raise ExpressionError("SORT's order is ASC or DESC.")
    context.work.spend(sum(len(line.points) for line in lines))
    known = [line for line in lines if line.points]
    known.sort(
        key=lambda line: REDUCERS[by.text](list(line.points.values())), reverse=order.text == "DESC"
    )
    placed = (*known, *(line for line in lines if not line.points))
    return placed[: _index("SORT", arguments[3])] if len(arguments) == 4 else placed


def _end(name: str, at: int) -> Function:
    def function(arguments: Arguments, _: EvaluationContext) -> Value:
        lines = _lines(name, arguments[0])
        return lines[at] if lines else Line("", 0, {})

    return function


def _metric_count(arguments: Arguments, _: EvaluationContext) -> Value:
    return float(len(_lines("METRIC_COUNT", arguments[0])))


def _remove_empty(arguments: Arguments, _: EvaluationContext) -> Value:
    return tuple(line for line in _lines("REMOVE_EMPTY", arguments[0]) if line.points)


def _index(name: str, value: Value) -> int:
    if not isinstance(value, float) or not value.is_integer() or value < 0:
        raise ExpressionError(f"{name} takes whole numbers from 0, not {kind_of(value)}.")
    return int(value)


def _line(name: str, value: Value) -> Line:
    if not isinstance(value, Line):
        raise ExpressionError(f"{name} takes a time series, not {kind_of(value)}.")
    return value


def _lines(name: str, value: Value) -> Lines:
    if isinstance(value, Line):
        return (value,)
    if not isinstance(value, tuple):
        raise ExpressionError(f"{name} takes time series, not {kind_of(value)}.")
    return value


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


FUNCTIONS: Mapping[str, tuple[int, int, Function]] = {
    **{name: (1, 1, _of_points(of)) for name, of in _OF_POINTS.items()},
    **{name: (1, 1, _of_instants(of)) for name, of in _OF_INSTANTS.items()},
    "DIFF": (1, 1, _steps(lambda _, more: more)),
    "DIFF_TIME": (1, 1, _steps(lambda later_s, _: later_s)),
    "FILL": (2, 2, _fill),
    "FIRST": (1, 1, _end("FIRST", 0)),
    "IF": (2, 3, _if),
    "LAST": (1, 1, _end("LAST", -1)),
    "METRICS": (0, 1, _metrics),
    "METRIC_COUNT": (1, 1, _metric_count),
    "PERIOD": (1, 1, _period),
    "RATE": (1, 1, _steps(lambda later_s, more: more / later_s)),
    "REMOVE_EMPTY": (1, 1, _remove_empty),
    "RUNNING_SUM": (1, 1, _each(_running_sum)),
    "SEARCH": (2, 3, _search),
    "SLICE": (2, 3, _slice),
    "SORT": (3, 4, _sort),
    "TIME_SERIES": (1, 1, _time_series),
}
"""Function by name, with the least and the most arguments that it takes."""
