"""What metric math computes with: numbers, series and arrays of series, and the operators on them.

A point whose value would not be a number (a division by zero, the logarithm of a negative) is left
out, as CloudWatch leaves it out.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hostelry.domain.metric import MetricStat
from hostelry.metrics.query.math_syntax import ExpressionError

MAX_WORK_POINTS = 2_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """A time series: value by instant, oldest first; `stat` where it is one metric's own.

    `has_dropped` where a value on the way to it was no number, and so its point was left out.
    """

    label: str
    period_s: int
    points: Mapping[float, float]
    stat: MetricStat | None = None
    has_dropped: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """A function's own word, as REPEAT or ASC."""

    text: str


Lines = tuple[Line, ...]
Value = float | str | Word | Line | Lines
Operation = Callable[[float, float], float]


class Work:
    """Points computed so far; a request that asks for too many is refused, not computed."""

    def __init__(self, limit: int = MAX_WORK_POINTS) -> None:
        self._left = limit

    def spend(self, num_points: int) -> None:
        """Account for points about to be computed; raises ExpressionError when there are too many.

        Each call counts for itself too, so that many operations on nothing end as well.
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
    """`left` sign `right`; of two series, where both have a point. Raises ExpressionError."""
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


def _pair(sign: str, operation: Operation, left: Value, right: Value, work: Work) -> Line:
    if isinstance(left, Line) and isinstance(right, Line):
        work.spend(len(left.points))
        other = right.points
        both = {at: operation(it, other[at]) for at, it in left.points.items() if at in other}
        period_s = max(left.period_s, right.period_s)
        return computed(left.label, period_s, both, (left, right))
    if isinstance(left, Line) and isinstance(right, float):
        return mapped(left, lambda it: operation(it, right), work)
    if isinstance(left, float) and isinstance(right, Line):
        return mapped(right, lambda it: operation(left, it), work)
    raise _mismatch(sign, left, right)


def mapped(line: Line, of: Callable[[float], float], work: Work) -> Line:
    """The series of `of` each point."""
    work.spend(len(line.points))
    found = {}
    for at, it in line.points.items():
        try:
            found[at] = of(it)
        except (ValueError, OverflowError):
            found[at] = math.nan
    return computed(line.label, line.period_s, found, (line,))


def computed(
    label: str, period_s: int, points: Mapping[float, float], sources: Sequence[Line] = ()
) -> Line:
    """The series of the points that are numbers; it tells where one is none, as `sources` do."""
    known = finite(points)
    has_dropped = len(known) < len(points) or any(it.has_dropped for it in sources)
    return Line(label, period_s, known, has_dropped=has_dropped)


def finite(points: Mapping[float, float]) -> dict[float, float]:
    """The points whose values are numbers, as floats."""
    return {at: float(value) for at, value in points.items() if math.isfinite(value)}


def across(lines: Sequence[Line], of: Callable[[list[float]], float], work: Work) -> Line:
    """One series of what `of` makes of all values of an instant, wherever any line has one."""
    work.spend(sum(len(line.points) for line in lines))
    by_instant: dict[float, list[float]] = {}
    for line in lines:
        for at, value in line.points.items():
            by_instant.setdefault(at, []).append(value)
    period_s = max((line.period_s for line in lines), default=0)
    points = {at: of(by_instant[at]) for at in sorted(by_instant)}
    return computed("", period_s, points, lines)


def kind_of(value: Value) -> str:
    """What a value is, in words for messages."""
    if isinstance(value, Line):
        return "a time series"
    if isinstance(value, tuple):
        return "an array of time series"
    if isinstance(value, Word):
        return f"the word {value.text}"
    return "a number" if isinstance(value, float) else "a text"


def _mismatch(sign: str, left: Value, right: Value) -> ExpressionError:
    return ExpressionError(
        f"Unsupported operands for '{sign}': {kind_of(left)} and {kind_of(right)}."
    )
