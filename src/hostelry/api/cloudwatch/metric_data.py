"""PutMetricData, and the parameters and errors that CloudWatch's operations on metrics share.

Source: PutMetricData, MetricDatum and Dimension in the CloudWatch API reference.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from hostelry.api.context import CallContext, Params, Result
from hostelry.base.errors import RetryableError, ServiceError
from hostelry.domain.metric import Metric, Sample, StatisticSet

TOKEN_ERROR = "InvalidNextToken"
SHORT_PERIODS_S = (1, 5, 10, 20, 30)
DAY_S = 86_400
MAX_METRICS = 1000
MAX_VALUES = 150
MAX_REQUEST_BYTES = 1024 * 1024
OLDEST_S = 14 * 24 * 3600
NEWEST_S = 2 * 3600
LARGEST = 2.0**360
RESERVED = "AWS/"


def invalid_value(message: str) -> ServiceError:
    """The error for a value out of its range."""
    return ServiceError("InvalidParameterValue", message)


def invalid_combination(message: str) -> ServiceError:
    """The error for values that exclude each other."""
    return ServiceError("InvalidParameterCombination", message)


def missing(message: str) -> ServiceError:
    """The error for a missing parameter."""
    return ServiceError("MissingParameter", message)


def parse_dimensions(given: Iterable[Mapping[str, Any]], path: str) -> dict[str, str]:
    """Dimensions by name. Raises InvalidParameterValue."""
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
    """Refuse names of blanks and names with control characters."""
    if not text.isprintable() or not text.strip():
        raise invalid_value(
            f"The value {text!a} for parameter {path} is invalid: a name has printable characters,"
            " one of them no blank."
        )


def check_period(path: str, period_s: int) -> None:
    """Refuse invalid periods."""
    if period_s not in SHORT_PERIODS_S and period_s % 60:
        raise invalid_value(
            f"The value {period_s} of parameter {path} is invalid: a period is"
            f" {', '.join(map(str, SHORT_PERIODS_S))} or a multiple of 60 seconds."
        )


def describe_metric(metric: Metric) -> Result:
    """A Metric of an answer."""
    return {
        "Namespace": metric.namespace,
        "MetricName": metric.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in metric.dimensions],
    }


def put_metric_data(context: CallContext, params: Params) -> Result:
    """PutMetricData: stores every datum, or none if one is refused or the store fails."""
    if len(msgspec.json.encode(params)) > MAX_REQUEST_BYTES:
        raise ServiceError(
            "RequestEntityTooLarge",
            f"A request of PutMetricData has at most {MAX_REQUEST_BYTES} bytes.",
            413,
        )
    namespace = params["Namespace"]
    if namespace.upper().startswith(RESERVED):
        raise invalid_value(
            f"The value {namespace} for parameter Namespace is invalid: names that begin with"
            f" {RESERVED} are the platform's own."
        )
    check_name("Namespace", namespace)
    data = list(_list_data(params))
    if not data:
        raise missing("The parameter MetricData is required.")
    if len(data) > MAX_METRICS:
        raise invalid_value(
            f"The collection MetricData must not have a size greater than {MAX_METRICS}; it has"
            f" {len(data)}."
        )
    samples = [_build_sample(context, namespace, datum, path) for path, datum in data]
    try:
        context.metrics.record(context.scope, samples)
    except RetryableError as error:
        raise ServiceError("InternalServiceFault", str(error), 500) from None
    return {}


def _list_data(params: Params) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every datum with its path. Data of entities is included, and loses its entity."""
    lists = [("MetricData", params.get("MetricData") or ())]
    for number, entity in enumerate(params.get("EntityMetricData") or (), start=1):
        path = f"EntityMetricData.member.{number}.MetricData"
        lists.append((path, entity.get("MetricData") or ()))
    for path, data in lists:
        for number, datum in enumerate(data, start=1):
            yield f"{path}.member.{number}", datum


def _build_sample(
    context: CallContext, namespace: str, datum: Mapping[str, Any], path: str
) -> Sample:
    given = [it for it in ("Value", "Values", "StatisticValues") if datum.get(it) is not None]
    if not given:
        raise missing(
            f"The parameter {path}.Value, {path}.Values or {path}.StatisticValues is required."
        )
    if len(given) > 1:
        raise invalid_combination(
            f"The parameters {' and '.join(f'{path}.{it}' for it in given)} are mutually exclusive."
        )
    check_name(f"{path}.MetricName", datum["MetricName"])
    values, counts = _parse_values(datum, path)
    dimensions = parse_dimensions(datum.get("Dimensions") or (), f"{path}.Dimensions")
    return Sample(
        metric=Metric.of(namespace, datum["MetricName"], dimensions),
        at=_parse_instant(context, datum, path),
        values=values,
        counts=counts,
        statistics=_parse_statistics(datum, path),
        unit=datum.get("Unit") or "None",
        resolution_s=_parse_resolution(datum, path),
    )


def _parse_values(
    datum: Mapping[str, Any], path: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if datum.get("Counts") is not None and datum.get("Values") is None:
        raise invalid_combination(
            f"The parameter {path}.Counts is only valid together with {path}.Values."
        )
    if datum.get("Value") is not None:
        return (_check_number(datum["Value"], f"{path}.Value"),), ()
    if datum.get("Values") is None:
        return (), ()
    values = tuple(_check_number(it, f"{path}.Values") for it in datum["Values"])
    counts = tuple(_check_number(it, f"{path}.Counts") for it in datum.get("Counts") or ())
    if not 1 <= len(values) <= MAX_VALUES:
        raise invalid_value(
            f"The collection {path}.Values must have 1 to {MAX_VALUES} values; it has"
            f" {len(values)}."
        )
    if counts and len(counts) != len(values):
        raise invalid_value(
            f"The parameters {path}.Values and {path}.Counts must have the same size; they have"
            f" {len(values)} and {len(counts)}."
        )
    if any(count < 0 for count in counts):
        raise invalid_value(f"The parameter {path}.Counts must not hold a number below 0.")
    return values, counts


def _parse_statistics(datum: Mapping[str, Any], path: str) -> StatisticSet | None:
    given = datum.get("StatisticValues")
    if given is None:
        return None
    count, total, minimum, maximum = (
        _check_number(given[name], f"{path}.StatisticValues.{name}")
        for name in ("SampleCount", "Sum", "Minimum", "Maximum")
    )
    if count <= 0 or minimum > maximum:
        raise invalid_value(
            f"The parameter {path}.StatisticValues must have a SampleCount over 0 and a Minimum"
            f" not over its Maximum; it has {count}, {minimum} and {maximum}."
        )
    return StatisticSet(sample_count=count, sum=total, minimum=minimum, maximum=maximum)


def _parse_instant(context: CallContext, datum: Mapping[str, Any], path: str) -> float:
    at = datum.get("Timestamp")
    if at is None:
        return context.now
    if not context.now - OLDEST_S <= at <= context.now + NEWEST_S:
        raise invalid_value(
            f"The parameter {path}.Timestamp must specify a time within the past two weeks, and"
            " not more than two hours in the future."
        )
    return float(at)


def _parse_resolution(datum: Mapping[str, Any], path: str) -> int:
    resolution_s: int = datum.get("StorageResolution") or 60
    if resolution_s not in (1, 60):
        raise invalid_value(
            f"The value {resolution_s} for parameter {path}.StorageResolution is invalid: it is 1"
            " or 60."
        )
    return resolution_s


def _check_number(value: float, path: str) -> float:
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise invalid_value(
            f"The value {value} for parameter {path} is invalid: values are numbers from -2^360 to"
            " 2^360."
        )
    return float(value)
