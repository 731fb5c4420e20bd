"""Notification of an alarm's action: SNS's envelope around CloudWatch's JSON.

Source: Amazon SNS Developer Guide, "HTTP/HTTPS notification JSON format"; the messages that
CloudWatch alarms publish.
"""

import uuid
from collections.abc import Mapping
from typing import Any

from hostelry.domain.alarm import AlarmRule, AlarmState, MetricAlarm
from hostelry.domain.metric import Metric, MetricQuery, MetricStat
from hostelry.metrics.series.statistic import is_simple
from hostelry.scaling.decide.alarm_events import Alarm
from hostelry.scaling.decide.alarm_reasons import dense, long_instant

MAX_SUBJECT = 100
MESSAGE_IDS = uuid.UUID("6f1c2a52-8c55-4f0f-9f0d-5d6d5f2a7a11")


def notification(alarm: Alarm, action: str, now: float) -> tuple[Mapping[str, str], bytes]:
    """Headers and body of the POST that notifies `action` of the alarm's present state.

    A resent notification of a state has the same MessageId.
    """
    message_id = message_id_of(alarm, action)
    body = {
        "Type": "Notification",
        "MessageId": message_id,
        "TopicArn": action,
        "Subject": subject(alarm),
        "Message": dense(message(alarm)),
        "Timestamp": long_instant(now).replace("+0000", "Z"),
        "SignatureVersion": "1",
        "Signature": "",
        "SigningCertURL": "",
        "UnsubscribeURL": "",
    }
    headers = {
        "Content-Type": "text/plain; charset=UTF-8",
        "x-amz-sns-message-type": "Notification",
        "x-amz-sns-message-id": message_id,
        "x-amz-sns-topic-arn": action.encode("ascii", "replace").decode(),
    }
    return headers, dense(body).encode()


def message_id_of(alarm: Alarm, action: str) -> str:
    """The id of the notification of the alarm's present state."""
    status = alarm.status
    identity = f"{alarm.arn} {status.state.value} {status.transitioned_at!r} {action}"
    return str(uuid.uuid5(MESSAGE_IDS, identity))


def subject(alarm: Alarm) -> str:
    """One line of at most 100 characters."""
    text = f'{alarm.status.state.value}: "{alarm.name}" in {alarm.scope.region}'
    return text if len(text) <= MAX_SUBJECT else text[: MAX_SUBJECT - 3] + "..."


def message(alarm: Alarm) -> Mapping[str, Any]:
    """CloudWatch's JSON of an alarm that changed its state."""
    status, actions = alarm.status, alarm.actions
    before = status.previous or AlarmState.INSUFFICIENT_DATA
    common = {
        "AlarmName": alarm.name,
        "AlarmDescription": alarm.given.get("AlarmDescription"),
        "AWSAccountId": alarm.scope.account,
        "AlarmConfigurationUpdatedTimestamp": long_instant(alarm.configured_at),
        "NewStateValue": status.state.value,
        "NewStateReason": status.reason,
        "StateChangeTime": long_instant(status.transitioned_at),
        "Region": alarm.scope.region,
        "AlarmArn": alarm.arn,
        "OldStateValue": before.value,
        "OKActions": actions.ok,
        "AlarmActions": actions.alarm,
        "InsufficientDataActions": actions.insufficient_data,
    }
    if isinstance(alarm, MetricAlarm):
        return common | {"Trigger": trigger(alarm.rule, alarm.given)}
    return common | {"AlarmRule": alarm.expression}


def trigger(rule: AlarmRule, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Trigger member: the rule of a metric alarm."""
    common = {
        "Period": rule.period_s,
        "EvaluationPeriods": rule.evaluation_periods,
        "DatapointsToAlarm": rule.datapoints_to_alarm,
        "ComparisonOperator": rule.comparison.value,
        "Threshold": rule.threshold,
        "TreatMissingData": rule.missing.value,
        "EvaluateLowSampleCountPercentile": given.get("EvaluateLowSampleCountPercentile") or "",
    }
    if rule.stat is None:
        return common | {"Metrics": [query_members(it) for it in rule.queries]}
    stat = rule.stat
    if is_simple(stat.statistic):
        kind = {"StatisticType": "Statistic", "Statistic": stat.statistic.upper()}
    else:
        kind = {"StatisticType": "ExtendedStatistic", "ExtendedStatistic": stat.statistic}
    return {**metric_members(stat.metric), **kind, "Unit": stat.unit, **common}


def metric_members(metric: Metric) -> Mapping[str, Any]:
    """A metric's identity."""
    return {
        "MetricName": metric.name,
        "Namespace": metric.namespace,
        "Dimensions": [{"value": value, "name": name} for name, value in metric.dimensions],
    }


def query_members(query: MetricQuery) -> Mapping[str, Any]:
    """One query of an expression."""
    members = {
        "Id": query.id,
        "Label": query.label,
        "Expression": query.expression,
        "ReturnData": query.return_data,
    }
    return members if query.stat is None else members | {"MetricStat": stat_members(query.stat)}


def stat_members(stat: MetricStat) -> Mapping[str, Any]:
    """One statistic of one metric."""
    return {
        "Metric": metric_members(stat.metric),
        "Period": stat.period_s,
        "Stat": stat.statistic,
    }
