"""DescribeAlarms, DescribeAlarmsForMetric and DescribeAlarmHistory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hostelry.api.cloudwatch.alarm_rule import build_metric
from hostelry.api.cloudwatch.metric_data import TOKEN_ERROR
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, get_page
from hostelry.api.refusals import refuse_fields
from hostelry.base.errors import validation_error
from hostelry.domain.alarm import (
    COMPOSITE_ALARM,
    METRIC_ALARM,
    AlarmHistory,
    AlarmHistoryItem,
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
from hostelry.scaling.decide.composite import (
    find_suppression,
    list_children,
    parse,
    parse_alarm_name,
)
from hostelry.store.alarm_log import histories as all_histories

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
HISTORY_PAGE_SIZE = 100


def describe_alarms(context: CallContext, params: Params) -> Result:
    """DescribeAlarms, by name. Metric alarms unless AlarmTypes is given."""
    for relation, show in (
        ("ParentsOfAlarmName", _describe_parent),
        ("ChildrenOfAlarmName", _describe_child),
    ):
        if params.get(relation) is not None:
            _refuse_other_filters(params, relation)
            return _answer_page(
                context, params, _list_related(context, params[relation], relation), show
            )
    if params.get("AlarmNames") and params.get("AlarmNamePrefix"):
        raise validation_error("AlarmNames and AlarmNamePrefix cannot be given together.")
    found = [it for it in _list_alarms(context, params) if _passes(it, params)]
    return _answer_page(context, params, found, lambda it: _describe(context, it))


def describe_alarms_for_metric(context: CallContext, params: Params) -> Result:
    """DescribeAlarmsForMetric: alarms on the metric itself, without alarms on expressions."""
    wanted = build_metric(params, "Dimensions")
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
    return {"MetricAlarms": [_describe(context, it) for it in found]}


def _list_alarms(context: CallContext, params: Params) -> list[Alarm]:
    types = params.get("AlarmTypes") or (METRIC_ALARM,)
    state, scope = context.state, context.scope
    found: list[Alarm] = []
    if METRIC_ALARM in types:
        found += [it.value for it in state.metric_alarms.list(scope)]
    if COMPOSITE_ALARM in types:
        found += [it.value for it in state.composite_alarms.list(scope)]
    return found


def _passes(alarm: Alarm, params: Params) -> bool:
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


def _list_related(context: CallContext, given: str, relation: str) -> list[Alarm]:
    """The parents or children of an alarm."""
    name = parse_alarm_name(given)
    every = _list_alarms(context, {"AlarmTypes": (METRIC_ALARM, COMPOSITE_ALARM)})
    composites = (it for it in every if isinstance(it, CompositeAlarm))
    rules = {it.name: list_children(parse(it.expression)) for it in composites}
    if relation == "ParentsOfAlarmName":
        return [it for it in every if name in rules.get(it.name, ())]
    named = rules.get(name, ())
    return [it for it in every if it.name in named]


def _refuse_other_filters(params: Params, relation: str) -> None:
    others = [name for name in FILTERS if name != relation and params.get(name) is not None]
    if others:
        raise validation_error(f"{relation} cannot be given together with {', '.join(others)}.")


def _answer_page(
    context: CallContext, params: Params, alarms: Sequence[Alarm], show: Callable[[Any], Result]
) -> Result:
    """One page of alarms, in the two lists of the answer."""
    tokens = PageTokens(context, "DescribeAlarms", params, TOKEN_ERROR)
    rows = [((it.name, it.name), it) for it in alarms]  # names are unique
    page, following = get_page(tokens, rows, params.get("MaxRecords") or PAGE_SIZE)
    return {
        "MetricAlarms": [show(it) for it in page if isinstance(it, MetricAlarm)],
        "CompositeAlarms": [show(it) for it in page if isinstance(it, CompositeAlarm)],
        **following,
    }


def _describe_parent(alarm: Alarm) -> Result:
    return {"AlarmName": alarm.name, "AlarmArn": alarm.arn}


def _describe_child(alarm: Alarm) -> Result:
    status = alarm.status
    return _describe_parent(alarm) | {
        "StateValue": status.state.value,
        "StateUpdatedTimestamp": status.updated_at,
    }


def _describe(context: CallContext, alarm: Alarm) -> Result:
    """MetricAlarm or CompositeAlarm of the answer."""
    actions, status = alarm.actions, alarm.status
    common: Result = {
        **_describe_child(alarm),
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
        return _without_none(common | describe_rule(alarm.rule, alarm.given))
    return _without_none(common | _describe_composite(context, alarm))


def _without_none(members: Result) -> Result:
    return {name: value for name, value in members.items() if value is not None}


def describe_rule(rule: AlarmRule, given: Mapping[str, Any]) -> Result:
    """The members of a metric alarm's rule. Defaults are shown only if they were given."""
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
        return members | {"Metrics": [_describe_query(it) for it in rule.queries]}
    stat = rule.stat
    kind = "Statistic" if is_simple(stat.statistic) else "ExtendedStatistic"
    return {
        **members,
        **_describe_metric(stat),
        "Period": stat.period_s,
        kind: stat.statistic,
        "Unit": stat.unit,
    }


def _describe_metric(stat: MetricStat) -> Result:
    return {
        "Namespace": stat.metric.namespace,
        "MetricName": stat.metric.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in stat.metric.dimensions],
    }


def _describe_query(query: MetricQuery) -> Result:
    members = _without_none(
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
    return members | {"MetricStat": {"Metric": _describe_metric(query.stat), **_without_none(stat)}}


def _describe_composite(context: CallContext, alarm: CompositeAlarm) -> Result:
    members: Result = {"AlarmRule": alarm.expression}
    if alarm.suppressor is None:
        return members
    members |= {
        "ActionsSuppressor": alarm.given.get("ActionsSuppressor", alarm.suppressor),
        "ActionsSuppressorWaitPeriod": int(alarm.suppressor_wait_s),
        "ActionsSuppressorExtensionPeriod": int(alarm.suppressor_extension_s),
    }
    held = find_suppression(alarm, _get_status(context, alarm.suppressor), context.now)
    if held is not None and alarm.status.state is not AlarmState.INSUFFICIENT_DATA:
        members["ActionsSuppressedBy"] = held.by
        members["ActionsSuppressedReason"] = (
            f"Actions are suppressed by {alarm.suppressor}: {SUPPRESSED[held.by]}."
        )
    return members


def _get_status(context: CallContext, name: str) -> AlarmStatus | None:
    state, scope = context.state, context.scope
    found = state.metric_alarms.get(scope, name) or state.composite_alarms.get(scope, name)
    return None if found is None else found.value.status


def describe_alarm_history(context: CallContext, params: Params) -> Result:
    """DescribeAlarmHistory, newest first unless ScanBy is given. Includes deleted alarms."""
    refuse_fields(params, ("AlarmContributorId",))
    descending = params.get("ScanBy") != "TimestampAscending"
    found = [
        ((it.at, f"{it.alarm_name}/{number:06d}"), it)
        for history in _list_histories(context, params)
        for number, it in enumerate(reversed(history.items))
        if _item_passes(it, params)
    ]
    tokens = PageTokens(context, "DescribeAlarmHistory", params, TOKEN_ERROR)
    size = params.get("MaxRecords") or HISTORY_PAGE_SIZE
    page, following = get_page(tokens, found, size, descending=descending)
    return {"AlarmHistoryItems": [_describe_item(it) for it in page], **following}


def _list_histories(context: CallContext, params: Params) -> Iterator[AlarmHistory]:
    state, scope = context.state, context.scope
    if params.get("AlarmName") is None:
        yield from (history for history, _ in all_histories(state, scope))
        return
    found = state.alarm_histories.get(scope, parse_alarm_name(params["AlarmName"]))
    if found is not None:
        yield found.value


def _item_passes(item: AlarmHistoryItem, params: Params) -> bool:
    if item.alarm_type not in (params.get("AlarmTypes") or (METRIC_ALARM,)):
        return False
    if params.get("HistoryItemType") not in (None, item.kind):
        return False
    start, end = params.get("StartDate"), params.get("EndDate")
    return (start is None or item.at >= start) and (end is None or item.at <= end)


def _describe_item(item: AlarmHistoryItem) -> Result:
    return {
        "AlarmName": item.alarm_name,
        "AlarmType": item.alarm_type,
        "Timestamp": item.at,
        "HistoryItemType": item.kind,
        "HistorySummary": item.summary,
        "HistoryData": item.data,
    }
