"""Values of metric math (numbers, series and arrays of series), and the operators on them.

    left and right of an operator    result
    ------------------------------   --------------------------------------------------
    number, number                   number
    series, number                   series
    series, series                   series, where both have a point
    array, number or series          array
    any other                        ExpressionError

A point that would not be a number (a division by zero, the logarithm of a negative number) is left
out, as on CloudWatch.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence

import msgspec

from hostelry.domain.metric import MetricStat
from hostelry.metrics.query.math_syntax import ExpressionError

MAX_WORK_POINTS = 2_000_000


class TimeSeries(msgspec.Struct, frozen=True):
    """A time series: value by instant, oldest first. A series of one metric has its `stat`.

    `has_dropped` is True if a point was left out because its value was not a number.
    """

    label: str
    period_s: int
    points: Mapping[float, float]
    stat: MetricStat | None = None
    has_dropped: bool = False


class Word(msgspec.Struct, frozen=True):
    """A keyword in a function's arguments, such as REPEAT or ASC."""

    text: str


SeriesArray = tuple[TimeSeries, ...]
Value = float | str | Word | TimeSeries | SeriesArray
Operation = Callable[[float, float], float]


class Work:
    """Budget of points to compute, so that a costly request is refused instead."""

    def __init__(self, limit: int = MAX_WORK_POINTS) -> None:
        self._left = limit

    def spend(self, num_points: int) -> None:
        """Account for points before they are computed. Raises ExpressionError above the limit.

        Each call costs one more, so that operations on empty series are bounded, too.
        """
        self._left -= num_points + 1
        if self._left < 0:
            raise ExpressionError(
                f"The queries compute more than {MAX_WORK_POINTS} points in all; ask for a shorter"
                " time, a longer period or fewer metrics."
            )


def _divide(left: float, right: float) -> float:
    return left / right if right else math.nan


def _power(left: float, right: float) -> float:
    try:
        return math.pow(left, right)
    except (ValueError, OverflowError):
        return math.nan


OPERATORS: Mapping[str, Operation] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "^": _power,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "AND": lambda left, right: float(bool(left) and bool(right)),
    "OR": lambda left, right: float(bool(left) or bool(right)),
}


def combine(sign: str, left: Value, right: Value, work: Work) -> Value:
    """The result of an operator, by the table above. Raises ExpressionError."""
    operation = OPERATORS[sign]
    if isinstance(left, tuple) and isinstance(right, tuple):
        raise _mismatch(sign, left, right)
    if isinstance(left, tuple):
        return tuple(_pair(sign, operation, it, right, work) for it in left)
    if isinstance(right, tuple):
        return tuple(_pair(sign, operation, left, it, work) for it in right)
    if isinstance(left, float) and isinstance(right, float):
        return float(operation(left, right))
    return _pair(sign, operation, left, right, work)


def _pair(sign: str, operation: Operation, left: Value, right: Value, work: Work) -> TimeSeries:
    if isinstance(left, TimeSeries) and isinstance(right, TimeSeries):
        work.spend(len(left.points))
        other = right.points
        both = {at: operation(it, other[at]) for at, it in left.points.items() if at in other}
        period_s = max(left.period_s, right.period_s)
        return build_series(left.label, period_s, both, (left, right))
    if isinstance(left, TimeSeries) and isinstance(right, float):
        return map_values(left, lambda it: operation(it, right), work)
    if isinstance(left, float) and isinstance(right, TimeSeries):
        return map_values(right, lambda it: operation(left, it), work)
    raise _mismatch(sign, left, right)


def map_values(series: TimeSeries, of: Callable[[float], float], work: Work) -> TimeSeries:
    """The series with `of` applied to each value."""
    work.spend(len(series.points))
    found = {}
    for at, it in series.points.items():
        try:
            found[at] = of(it)
        except (ValueError, OverflowError):
            found[at] = math.nan
    return build_series(series.label, series.period_s, found, (series,))


def build_series(
    label: str, period_s: int, points: Mapping[float, float], sources: Sequence[TimeSeries] = ()
) -> TimeSeries:
    """Build a series of the finite points. Notes if a point, or a point of a source, is dropped."""
    known = finite(points)
    has_dropped = len(known) < len(points) or any(it.has_dropped for it in sources)
    return TimeSeries(label, period_s, known, has_dropped=has_dropped)


def finite(points: Mapping[float, float]) -> dict[float, float]:
    """The points whose values are finite, as floats."""
    return {at: float(value) for at, value in points.items() if math.isfinite(value)}


def across(
    array: Sequence[TimeSeries], of: Callable[[list[float]], float], work: Work
) -> TimeSeries:
    """The series of `of` applied to all values of an instant, where any series has one."""
    work.spend(sum(len(series.points) for series in array))
    by_instant: dict[float, list[float]] = {}
    for series in array:
        for at, value in series.points.items():
            by_instant.setdefault(at, []).append(value)
    period_s = max((series.period_s for series in array), default=0)
    points = {at: of(by_instant[at]) for at in sorted(by_instant)}
    return build_series("", period_s, points, array)


def name_kind(value: Value) -> str:
    """The kind of a value, for messages."""
    if isinstance(value, TimeSeries):
        return "a time series"
    if isinstance(value, tuple):
        return "an array of time series"
    if isinstance(value, Word):
        return f"the word {value.text}"
    return "a number" if isinstance(value, float) else "a text"


def _mismatch(sign: str, left: Value, right: Value) -> ExpressionError:
    return ExpressionError(
        f"Unsupported operands for '{sign}': {name_kind(left)} and {name_kind(right)}."
    )
