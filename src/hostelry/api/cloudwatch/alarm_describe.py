"""DescribeAlarms and DescribeAlarmsForMetric."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hostelry.api.cloudwatch.alarm_rule import metric_of
from hostelry.api.cloudwatch.metric_values import TOKEN_ERROR
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, page_of
from hostelry.base.errors import validation_error
from hostelry.domain.alarm import (
    COMPOSITE_ALARM,
    METRIC_ALARM,
    AlarmRule,
    AlarmState,
    AlarmStatus,
    CompositeAlarm,
    MetricAlarm,
    MissingData,
)
from hostelry.domain.metric import MetricQuery, MetricStat
from hostelry.metrics.series.statistic import is_simple
from hostelry.scaling.decide.alarm_events import Alarm
from hostelry.scaling.decide.composite import alarm_name, children, parse, suppression

PAGE_SIZE = 50
FILTERS = (
    "AlarmNames",
    "AlarmNamePrefix",
    "AlarmTypes",
    "StateValue",
    "ActionPrefix",
    "ChildrenOfAlarmName",
    "ParentsOfAlarmName",
)
SUPPRESSED: Mapping[str, str] = {
    "Alarm": "the suppressor alarm is in ALARM state",
    "WaitPeriod": "the suppressor alarm may still go into ALARM state",
    "ExtensionPeriod": "the suppressor alarm has just left ALARM state",
}


def describe_alarms(context: CallContext, params: Params) -> Result:
    """DescribeAlarms: in the order of names; metric alarms unless AlarmTypes is given."""
    for relation, show in (("ParentsOfAlarmName", brief), ("ChildrenOfAlarmName", short)):
        if params.get(relation) is not None:
            refuse_others(params, relation)
            return shown(context, params, related(context, params[relation], relation), show)
    if params.get("AlarmNames") and params.get("AlarmNamePrefix"):
        raise validation_error("AlarmNames and AlarmNamePrefix cannot be given together.")
    found = [it for it in alarms_of(context, params) if passes(it, params)]
    return shown(context, params, found, lambda it: described(context, it))


def describe_alarms_for_metric(context: CallContext, params: Params) -> Result:
    """DescribeAlarmsForMetric: alarms on just this metric, not those on expressions."""
    wanted = metric_of(params, "Dimensions")
    asked = {
        "statistic": params.get("Statistic") or params.get("ExtendedStatistic"),
        "period_s": params.get("Period"),
        "unit": params.get("Unit"),
    }
    found = [
        alarm
        for alarm in (it.value for it in context.state.metric_alarms.list(context.scope))
        if (stat := alarm.rule.stat) is not None
        and stat.metric == wanted
        and all(value in (None, getattr(stat, name)) for name, value in asked.items())
    ]
    return {"MetricAlarms": [described(context, it) for it in found]}


def alarms_of(context: CallContext, params: Params) -> list[Alarm]:
    """Alarms of the requested types."""
    types = params.get("AlarmTypes") or (METRIC_ALARM,)
    state, scope = context.state, context.scope
    found: list[Alarm] = []
    if METRIC_ALARM in types:
        found += [it.value for it in state.metric_alarms.list(scope)]
    if COMPOSITE_ALARM in types:
        found += [it.value for it in state.composite_alarms.list(scope)]
    return found


def passes(alarm: Alarm, params: Params) -> bool:
    """Whether an alarm meets every filter given."""
    names = params.get("AlarmNames")
    if names and alarm.name not in names:
        return False
    if not alarm.name.startswith(params.get("AlarmNamePrefix") or ""):
        return False
    if params.get("StateValue") not in (None, alarm.status.state.value):
        return False
    prefix = params.get("ActionPrefix")
    actions = (*alarm.actions.alarm, *alarm.actions.ok, *alarm.actions.insufficient_data)
    return not prefix or any(it.startswith(prefix) for it in actions)


def related(context: CallContext, given: str, relation: str) -> list[Alarm]:
    """The alarms whose rules name an alarm, or that its rule names."""
    name = alarm_name(given)
    every = alarms_of(context, {"AlarmTypes": (METRIC_ALARM, COMPOSITE_ALARM)})
    composites = (it for it in every if isinstance(it, CompositeAlarm))
    rules = {it.name: children(parse(it.expression)) for it in composites}
    if relation == "ParentsOfAlarmName":
        return [it for it in every if name in rules.get(it.name, ())]
    named = rules.get(name, ())
    return [it for it in every if it.name in named]


def refuse_others(params: Params, relation: str) -> None:
    """Refuse filters beside one that must stand alone."""
    others = [name for name in FILTERS if name != relation and params.get(name) is not None]
    if others:
        raise validation_error(f"{relation} cannot be given together with {', '.join(others)}.")


def shown(
    context: CallContext, params: Params, alarms: Sequence[Alarm], show: Callable[[Any], Result]
) -> Result:
    """One page of alarms, in the two lists of the answer."""
    tokens = PageTokens(context, "DescribeAlarms", params, TOKEN_ERROR)
    rows = [((it.name, it.name), it) for it in alarms]  # names are unique
    page, following = page_of(tokens, rows, params.get("MaxRecords") or PAGE_SIZE)
    return {
        "MetricAlarms": [show(it) for it in page if isinstance(it, MetricAlarm)],
        "CompositeAlarms": [show(it) for it in page if isinstance(it, CompositeAlarm)],
        **following,
    }


def brief(alarm: Alarm) -> Result:
    """The members of a parent."""
    return {"AlarmName": alarm.name, "AlarmArn": alarm.arn}


def short(alarm: Alarm) -> Result:
    """The members of a child."""
    status = alarm.status
    return brief(alarm) | {
        "StateValue": status.state.value,
        "StateUpdatedTimestamp": status.updated_at,
    }


def described(context: CallContext, alarm: Alarm) -> Result:
    """MetricAlarm or CompositeAlarm of the answer."""
    actions, status = alarm.actions, alarm.status
    common: Result = {
        **short(alarm),
        "AlarmDescription": alarm.given.get("AlarmDescription"),
        "AlarmConfigurationUpdatedTimestamp": alarm.configured_at,
        "ActionsEnabled": actions.enabled,
        "OKActions": list(actions.ok),
        "AlarmActions": list(actions.alarm),
        "InsufficientDataActions": list(actions.insufficient_data),
        "StateReason": status.reason,
        "StateReasonData": status.reason_data,
        "StateTransitionedTimestamp": status.transitioned_at,
    }
    if isinstance(alarm, MetricAlarm):
        return known(common | rule_members(alarm.rule, alarm.given))
    return known(common | composite_members(context, alarm))


def known(members: Result) -> Result:
    """The members that have a value."""
    return {name: value for name, value in members.items() if value is not None}


def rule_members(rule: AlarmRule, given: Mapping[str, Any]) -> Result:
    """The members of a metric alarm's rule; defaults only where they were given."""
    members: Result = {
        "EvaluationPeriods": rule.evaluation_periods,
        "Threshold": rule.threshold,
        "ComparisonOperator": rule.comparison.value,
        "EvaluateLowSampleCountPercentile": given.get("EvaluateLowSampleCountPercentile"),
    }
    if rule.datapoints_to_alarm != rule.evaluation_periods or given.get("DatapointsToAlarm"):
        members["DatapointsToAlarm"] = rule.datapoints_to_alarm
    if rule.missing is not MissingData.MISSING or given.get("TreatMissingData"):
        members["TreatMissingData"] = rule.missing.value
    if rule.stat is None:
        return members | {"Metrics": [query_members(it) for it in rule.queries]}
    stat = rule.stat
    kind = "Statistic" if is_simple(stat.statistic) else "ExtendedStatistic"
    return {
        **members,
        **metric_members(stat),
        "Period": stat.period_s,
        kind: stat.statistic,
        "Unit": stat.unit,
    }


def metric_members(stat: MetricStat) -> Result:
    """A metric's identity."""
    return {
        "Namespace": stat.metric.namespace,
        "MetricName": stat.metric.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in stat.metric.dimensions],
    }


def query_members(query: MetricQuery) -> Result:
    """A MetricDataQuery."""
    members = known(
        {
            "Id": query.id,
            "Expression": query.expression,
            "Label": query.label,
            "ReturnData": query.return_data,
            "Period": query.period_s,
        }
    )
    if query.stat is None:
        return members
    stat = {"Period": query.stat.period_s, "Stat": query.stat.statistic, "Unit": query.stat.unit}
    return members | {"MetricStat": {"Metric": metric_members(query.stat), **known(stat)}}


def composite_members(context: CallContext, alarm: CompositeAlarm) -> Result:
    """The members that only composite alarms have."""
    members: Result = {"AlarmRule": alarm.expression}
    if alarm.suppressor is None:
        return members
    members |= {
        "ActionsSuppressor": alarm.given.get("ActionsSuppressor", alarm.suppressor),
        "ActionsSuppressorWaitPeriod": int(alarm.suppressor_wait_s),
        "ActionsSuppressorExtensionPeriod": int(alarm.suppressor_extension_s),
    }
    held = suppression(alarm, status_of(context, alarm.suppressor), context.now)
    if held is not None and alarm.status.state is not AlarmState.INSUFFICIENT_DATA:
        members["ActionsSuppressedBy"] = held.by
        members["ActionsSuppressedReason"] = (
            f"Actions are suppressed by {alarm.suppressor}: {SUPPRESSED[held.by]}."
        )
    return members


def status_of(context: CallContext, name: str) -> AlarmStatus | None:
    """The status of an alarm of either kind."""
    state, scope = context.state, context.scope
    found = state.metric_alarms.get(scope, name) or state.composite_alarms.get(scope, name)
    return None if found is None else found.value.status
