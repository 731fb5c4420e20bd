"""Metrics in the parameters of CloudWatch's data operations, and their errors.

Source: CloudWatch API reference, MetricDatum, Dimension, GetMetricData, GetMetricStatistics.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from hostelry.api.context import Result
from hostelry.base.errors import ServiceError
from hostelry.domain.metric import Metric

TOKEN_ERROR = "InvalidNextToken"
SHORT_PERIODS_S = (1, 5, 10, 20, 30)
DAY_S = 86_400


def invalid_value(message: str) -> ServiceError:
    """The error for a value out of its range."""
    return ServiceError("InvalidParameterValue", message)


def invalid_combination(message: str) -> ServiceError:
    """The error for values that exclude each other."""
    return ServiceError("InvalidParameterCombination", message)


def missing(message: str) -> ServiceError:
    """The error for a missing parameter."""
    return ServiceError("MissingParameter", message)


def dimensions_of(given: Iterable[Mapping[str, Any]], path: str) -> dict[str, str]:
    """Dimensions by name; raises InvalidParameterValue for what CloudWatch does not take."""
    found: dict[str, str] = {}
    for number, dimension in enumerate(given, start=1):
        name, value = dimension["Name"], dimension["Value"]
        where = f"{path}.member.{number}"
        if name in found:
            raise invalid_value(f"The dimension '{name}' of parameter {where}.Name is given twice.")
        if name.startswith(":"):
            raise invalid_value(f"The parameter {where}.Name '{name}' must not begin with ':'.")
        for word, text in (("Name", name), ("Value", value)):
            if not text.isascii() or not text.isprintable() or not text.strip():
                raise invalid_value(
                    f"The parameter {where}.{word} {text!a} must consist of printable ASCII"
                    " characters, one of them no blank."
                )
        found[name] = value
    return found


def check_name(path: str, text: str) -> None:
    """Refuse names with control characters, or of blanks."""
    if not text.isprintable() or not text.strip():
        raise invalid_value(
            f"The value {text!a} for parameter {path} is invalid: a name has printable characters,"
            " one of them no blank."
        )


def check_period(path: str, period_s: int) -> None:
    """Refuse periods that no metric has."""
    if period_s not in SHORT_PERIODS_S and period_s % 60:
        raise invalid_value(
            f"The value {period_s} of parameter {path} is invalid: a period is"
            f" {', '.join(map(str, SHORT_PERIODS_S))} or a multiple of 60 seconds."
        )


def shown(metric: Metric) -> Result:
    """A Metric as answers show it."""
    return {
        "Namespace": metric.namespace,
        "MetricName": metric.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in metric.dimensions],
    }
