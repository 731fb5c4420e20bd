"""Dynamic labels: ``${...}`` in a query's label, replaced by properties of its series.

Source: CloudWatch user guide, "Using dynamic labels".
"""

import re
from collections.abc import Callable, Mapping, Sequence

from hostelry.metrics.query.math_values import TimeSeries

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


def filled(label: str, series: TimeSeries) -> str:
    """`label` with its known parts replaced."""
    return _PART.sub(lambda part: _filled(part, series), label)


def is_dynamic(label: str) -> bool:
    """Whether `label` has parts to replace."""
    return _PART.search(label) is not None


def _filled(part: re.Match[str], series: TimeSeries) -> str:
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
