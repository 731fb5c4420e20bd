"""From the parameters of PutMetricAlarm to a rule and actions, each field and combination checked.

Source: PutMetricAlarm in the CloudWatch API reference.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.api.context import CallContext, Params
from hostelry.api.refusals import refuse_fields, unsupported
from hostelry.api.rights import check_delivery, is_own
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.alarm import AlarmActions, AlarmRule, Comparison, MissingData
from hostelry.domain.metric import Metric, MetricQuery, MetricStat
from hostelry.metrics.query.math_functions import BAND_ADVICE
from hostelry.metrics.query.queries import check_queries, is_single, uses_search
from hostelry.metrics.series.statistic import statistic
from hostelry.scaling.decide.alarm_events import TargetKind, get_target_kind

MAX_QUERIES = 10
DAY_S, WEEK_S, HOUR_S = 86_400, 604_800, 3_600
SHORT_PERIODS_S = (10, 20, 30)
QUERY_ID = re.compile(r"[a-z][A-Za-z0-9_]*")
SINGLE_METRIC_MEMBERS = (
    "MetricName",
    "Namespace",
    "Dimensions",
    "Period",
    "Unit",
    "Statistic",
    "ExtendedStatistic",
)
NOT_SERVED = (
    "ActionConfiguration",
    "EvaluationCriteria",
    "EvaluationInterval",
    "EvaluationWindow",
    "WarmUpConfiguration",
)
REQUIRED = ("ComparisonOperator", "EvaluationPeriods", "Threshold")
ACTION_FIELDS = ("AlarmActions", "OKActions", "InsufficientDataActions")
KNOWN_ACTIONS = (
    "Hostelry can do: the ARN of a scaling policy (arn:aws:autoscaling:...), the ARN of a topic"
    " (arn:aws:sns:...) that the operator's actions.toml maps to web addresses, and an http:// or"
    " https:// address"
)


def build_rule(context: CallContext, params: Params) -> AlarmRule:
    """The rule of a request. Raises ValidationError."""
    if params.get("ThresholdMetricId") is not None:
        advice = f"There is no anomaly detection here; {BAND_ADVICE}."
        raise unsupported("ThresholdMetricId", advice)
    refuse_fields(params, NOT_SERVED)
    for name in REQUIRED:
        if params.get(name) is None:
            raise validation_error(f"{name} is required for an alarm with a static threshold.")
    num = params["EvaluationPeriods"]
    rule = AlarmRule(
        evaluation_periods=num,
        datapoints_to_alarm=get_datapoints_to_alarm(params),
        threshold=float(params["Threshold"]),
        comparison=parse_comparison(params["ComparisonOperator"]),
        missing=parse_missing(params.get("TreatMissingData")),
        stat=None if params.get("Metrics") else build_stat(params),
        queries=_build_queries(context, params),
        ignores_few_samples=_ignores_few_samples(params),
    )
    _check_span(rule)
    return rule


def get_datapoints_to_alarm(params: Params) -> int:
    """DatapointsToAlarm, by default all evaluation periods."""
    num: int = params["EvaluationPeriods"]
    to_alarm: int = params.get("DatapointsToAlarm") or num
    if to_alarm > num:
        raise validation_error(
            f"DatapointsToAlarm must be less than or equal to EvaluationPeriods; {to_alarm} of"
            f" {num} were asked for."
        )
    return to_alarm


def parse_comparison(given: str) -> Comparison:
    """The comparison. Comparisons with a band of anomaly detection are refused."""
    try:
        return Comparison(given)
    except ValueError:
        raise validation_error(
            f"ComparisonOperator {given} compares with an anomaly detection band, which Hostelry"
            f" does not have; use one of {', '.join(it.value for it in Comparison)}."
        ) from None


def parse_missing(given: str | None) -> MissingData:
    """TreatMissingData, `missing` by default."""
    try:
        return MissingData(given or MissingData.MISSING.value)
    except ValueError:
        values = ", ".join(it.value for it in MissingData)
        raise validation_error(
            f"TreatMissingData '{given}' is not one of the valid values: {values}."
        ) from None


def _ignores_few_samples(params: Params) -> bool:
    """EvaluateLowSampleCountPercentile, which goes with percentiles only."""
    given = params.get("EvaluateLowSampleCountPercentile")
    if given not in (None, "evaluate", "ignore"):
        raise validation_error(
            f"EvaluateLowSampleCountPercentile '{given}' is not one of the valid values:"
            " evaluate, ignore."
        )
    if given is not None and not str(params.get("ExtendedStatistic") or "").startswith("p"):
        raise validation_error(
            "EvaluateLowSampleCountPercentile can only be given with a percentile in"
            " ExtendedStatistic, such as p99."
        )
    return given == "ignore"


def build_stat(params: Params) -> MetricStat:
    """The one metric and statistic of an alarm without Metrics."""
    for name in ("MetricName", "Namespace", "Period"):
        if params.get(name) is None:
            raise validation_error(f"{name} is required; or give Metrics for an expression.")
    simple, extended = params.get("Statistic"), params.get("ExtendedStatistic")
    if (simple is None) == (extended is None):
        raise validation_error("Exactly one of Statistic and ExtendedStatistic must be given.")
    if extended is not None:
        _check_statistic("ExtendedStatistic", extended)
    check_period("Period", params["Period"])
    return MetricStat(
        metric=build_metric(params, "Dimensions"),
        period_s=params["Period"],
        statistic=str(simple or extended),
        unit=params.get("Unit"),
    )


def build_metric(given: Mapping[str, Any], path: str) -> Metric:
    """A metric's identity. Raises ValidationError if a dimension is given twice."""
    dimensions: dict[str, str] = {}
    for dimension in given.get("Dimensions") or ():
        name = dimension["Name"]
        if name in dimensions:
            raise validation_error(f'{path}: the dimension "{name}" is given twice.')
        dimensions[name] = dimension["Value"]
    return Metric.of(given["Namespace"], given["MetricName"], dimensions)


def _check_statistic(path: str, name: str) -> None:
    try:
        statistic(name)
    except ValueError as error:
        raise validation_error(f"{path}: {error}") from None


def check_period(path: str, period_s: int) -> None:
    """Refuse invalid periods of alarms."""
    if period_s not in SHORT_PERIODS_S and period_s % 60:
        raise validation_error(
            f"{path} is {period_s}; valid are 10, 20, 30 and any multiple of 60 seconds."
        )


def _check_span(rule: AlarmRule) -> None:
    span_s = rule.period_s * rule.evaluation_periods
    limit_s, word = (DAY_S, "a day") if rule.period_s < HOUR_S else (WEEK_S, "seven days")
    if span_s > limit_s:
        raise validation_error(
            f"Metrics cannot be checked across more than {word} (EvaluationPeriods * Period must be"
            f" <= {limit_s}); {rule.evaluation_periods} * {rule.period_s} is {span_s}."
        )


def _build_queries(context: CallContext, params: Params) -> tuple[MetricQuery, ...]:
    """The queries of an alarm on an expression. Empty for an alarm on one metric."""
    given: Sequence[Mapping[str, Any]] = params.get("Metrics") or ()
    if not given:
        return ()
    for name in SINGLE_METRIC_MEMBERS:
        if params.get(name) is not None:
            raise validation_error(f"{name} cannot be given together with Metrics.")
    queries = tuple(
        _build_query(context, one, f"Metrics.{number}") for number, one in enumerate(given, start=1)
    )
    _check_set(queries)
    return queries


def _build_query(context: CallContext, given: Mapping[str, Any], path: str) -> MetricQuery:
    name, stat, expression = given["Id"], given.get("MetricStat"), given.get("Expression")
    if not QUERY_ID.fullmatch(name):
        raise validation_error(
            f"{path}.Id '{name}' must begin with a small letter and have only letters, digits and"
            " underscores."
        )
    if (stat is None) == (expression is None):
        raise validation_error(f"{path} ({name}) must have exactly one of MetricStat, Expression.")
    if given.get("AccountId") not in (None, context.scope.account):
        raise validation_error(f"{path}.AccountId: metrics of other accounts cannot be watched.")
    period_s = given.get("Period")
    if period_s is not None:
        check_period(f"{path}.Period", period_s)
    return MetricQuery(
        id=name,
        stat=None if stat is None else _build_metric_stat(stat, f"{path}.MetricStat"),
        expression=expression,
        label=given.get("Label"),
        return_data=given.get("ReturnData") is not False,
        period_s=period_s,
    )


def _build_metric_stat(given: Mapping[str, Any], path: str) -> MetricStat:
    metric = given["Metric"]
    for name in ("Namespace", "MetricName"):
        if metric.get(name) is None:
            raise validation_error(f"{path}.Metric.{name} is required.")
    check_period(f"{path}.Period", given["Period"])
    _check_statistic(f"{path}.Stat", given["Stat"])
    return MetricStat(
        metric=build_metric(metric, f"{path}.Metric.Dimensions"),
        period_s=given["Period"],
        statistic=given["Stat"],
        unit=given.get("Unit"),
    )


def _check_set(queries: Sequence[MetricQuery]) -> None:
    """Refuse queries unless one returns data and all have one period."""
    num = sum(1 for it in queries if it.stat is not None)
    if num > MAX_QUERIES:
        raise validation_error(f"Metrics has {num} metrics; an alarm has at most {MAX_QUERIES}.")
    returning = get_returning_query(queries)
    periods = {it.stat.period_s for it in queries if it.stat is not None}
    periods |= {it.period_s for it in queries if it.period_s is not None}
    if len(periods) != 1:
        listed = ", ".join(map(str, sorted(periods))) or "none"
        raise validation_error(
            f"Every metric of Metrics must have the same Period; here there are: {listed}."
        )
    try:
        check_queries(queries)
    except ServiceError as error:
        raise validation_error(f"Invalid metrics list: {error.message}") from None
    if uses_search(queries):
        raise validation_error("SEARCH is not supported on Metric Alarms.")
    if not is_single(queries, returning):
        raise validation_error(
            f"Invalid metrics list: '{returning}' must give one time series, as an alarm needs."
        )


def get_returning_query(queries: Sequence[MetricQuery]) -> str:
    """The id of the only query that returns data. Raises ValidationError."""
    returning = [it.id for it in queries if it.return_data]
    if len(returning) != 1:
        raise validation_error(
            "Exactly one element of Metrics must have ReturnData true, which is what it is when it"
            f" is not given; here they are: {', '.join(returning) or 'none'}."
        )
    return returning[0]


def build_actions(
    context: CallContext, params: Params, kinds: Sequence[TargetKind] = tuple(TargetKind)
) -> AlarmActions:
    """The actions of a request. Raises ValidationError for other kinds than `kinds`."""
    given: Mapping[str, Sequence[str]] = {name: params.get(name) or () for name in ACTION_FIELDS}
    for name, actions in given.items():
        for action in actions:
            _check_action(context, name, action, kinds)
    return AlarmActions(
        enabled=params.get("ActionsEnabled") is not False,
        alarm=tuple(given["AlarmActions"]),
        ok=tuple(given["OKActions"]),
        insufficient_data=tuple(given["InsufficientDataActions"]),
    )


def _check_action(
    context: CallContext, field: str, action: str, kinds: Sequence[TargetKind]
) -> None:
    kind = get_target_kind(action)
    if kind is None:
        raise validation_error(f"{field}: the action '{action}' is not supported. {KNOWN_ACTIONS}.")
    if kind not in kinds:
        raise validation_error(
            f"{field}: the action '{action}' is {kind.value}, which a composite alarm cannot have."
        )
    if action.startswith("arn:aws:sns:"):
        if not is_own(context, action):
            raise validation_error(
                f"{field}: the topic '{action}' is not of account {context.scope.account}."
            )
        check_delivery(context, action)
