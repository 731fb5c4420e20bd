"""Events of an alarm: its next status, its history, and the kinds of its actions."""

import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from hostelry.domain.alarm import (
    COMPOSITE_ALARM,
    METRIC_ALARM,
    AlarmHistoryItem,
    AlarmState,
    AlarmStatus,
    CompositeAlarm,
    MetricAlarm,
)
from hostelry.scaling.decide.alarm import encode_compact

# Kinds of alarm actions: a scaling policy, a topic, or a web address.
#
# Source: AlarmActions of PutMetricAlarm in the CloudWatch API reference.


POLICY = re.compile(
    r"arn:[\w-]+:autoscaling:[\w-]+:\d{12}:scalingPolicy:[^:]+:resource/sagemaker/.+:policyName/.+"
)
TOPIC = re.compile(r"arn:[\w-]+:sns:[\w-]+:\d{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?")


class TargetKind(Enum):
    """How an action is done."""

    POLICY = "a scaling policy"
    TOPIC = "a topic"
    ADDRESS = "a web address"


def get_target_kind(action: str) -> TargetKind | None:
    """The kind of target that `action` names. None if the action cannot be done here."""
    if POLICY.fullmatch(action):
        return TargetKind.POLICY
    if TOPIC.fullmatch(action):
        return TargetKind.TOPIC
    return TargetKind.ADDRESS if _is_address(action) else None


def _is_address(action: str) -> bool:
    if not action.isprintable() or " " in action:
        return False
    try:
        parts = urlsplit(action)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


# Events of an alarm: its next status, and the items of its history.
#
# Source: DescribeAlarmHistory in the CloudWatch API reference. HistoryData has the form of
# AWS's own alarms.


Alarm = MetricAlarm | CompositeAlarm

MAX_SUMMARY = 255
MAX_DATA = 4095
KEPT_ITEMS = 100
KEPT_S = 30 * 86_400.0


def build_status(now: float) -> AlarmStatus:
    """The status of an alarm that was just made."""
    return AlarmStatus(updated_at=now, transitioned_at=now, acted_at=now)


def move_status(
    status: AlarmStatus, state: AlarmState, reason: str, reason_data: str | None, now: float
) -> AlarmStatus:
    """The status with a new state or reason. The actions of a new state are pending."""
    after = replace(status, state=state, reason=reason, reason_data=reason_data, updated_at=now)
    if state is status.state:
        return after
    return replace(after, transitioned_at=now, acted_at=None, previous=status.state)


def is_pending(alarm: Alarm) -> bool:
    """Whether the actions of the state that the alarm is in have still to be done."""
    status = alarm.status
    if status.acted_at is not None or status.previous is None:
        return False
    return alarm.actions.enabled and bool(alarm.actions.on(status.state))


def get_alarm_type(alarm: Alarm) -> str:
    """MetricAlarm or CompositeAlarm."""
    return METRIC_ALARM if isinstance(alarm, MetricAlarm) else COMPOSITE_ALARM


def build_configuration_item(alarm: Alarm, kind: str, at: float) -> AlarmHistoryItem:
    """A ConfigurationUpdate. `kind` is Create, Update or Delete."""
    verb = {"Create": "created", "Update": "updated", "Delete": "deleted"}[kind]
    content = {"version": "1.0", "type": kind}
    given = {name[:1].lower() + name[1:]: value for name, value in alarm.given.items()}
    return AlarmHistoryItem(
        at=at,
        alarm_name=alarm.name,
        alarm_type=get_alarm_type(alarm),
        kind="ConfigurationUpdate",
        summary=_shorten(f'Alarm "{alarm.name}" {verb}'),
        data=_choose_fitting([{**content, f"{verb}Alarm": given}, content]),
    )


def build_transition_item(alarm: Alarm, before: AlarmStatus, at: float) -> AlarmHistoryItem:
    """A StateUpdate: the alarm was in `before`, and is in its status now."""
    states = (before, alarm.status)
    variants = [
        {
            "version": "1.0",
            "oldState": _describe_state(states[0], with_data=with_old),
            "newState": _describe_state(states[1], with_data=with_new),
        }
        for with_old, with_new in ((True, True), (False, True), (False, False))
    ]
    return AlarmHistoryItem(
        at=at,
        alarm_name=alarm.name,
        alarm_type=get_alarm_type(alarm),
        kind="StateUpdate",
        summary=f"Alarm updated from {before.state.value} to {alarm.status.state.value}",
        data=_choose_fitting(variants),
    )


def build_action_item(
    alarm: Alarm, action: str, problem: str | None, at: float
) -> AlarmHistoryItem:
    """An Action: done, or failed for a `problem`."""
    content: dict[str, Any] = {
        "actionState": "Succeeded" if problem is None else "Failed",
        "notificationResource": action,
        "stateValue": alarm.status.state.value,
        "stateUpdateTimestamp": round(alarm.status.transitioned_at * 1000),
        "error": problem,
    }
    done = "Successfully executed" if problem is None else "Failed to execute"
    return AlarmHistoryItem(
        at=at,
        alarm_name=alarm.name,
        alarm_type=get_alarm_type(alarm),
        kind="Action",
        summary=_shorten(f"{done} action {action}"),
        data=_choose_fitting([content]),
    )


def select_kept_items(
    items: Sequence[AlarmHistoryItem], now: float
) -> tuple[AlarmHistoryItem, ...]:
    """As much of a history, newest first, as is kept: items of 30 days, and the newest 100."""
    return tuple(it for it in items if it.at > now - KEPT_S)[:KEPT_ITEMS]


def _describe_state(status: AlarmStatus, *, with_data: bool) -> Mapping[str, Any]:
    members: dict[str, Any] = {"stateValue": status.state.value, "stateReason": status.reason}
    if with_data and status.reason_data is not None:
        members["stateReasonData"] = _parse_json(status.reason_data)
    return members


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _choose_fitting(variants: Sequence[Mapping[str, Any]]) -> str:
    """The first of the variants that is short enough. If none is, the last one, cut."""
    texts = [encode_compact(it) for it in variants]
    return next((it for it in texts if len(it) <= MAX_DATA), texts[-1][:MAX_DATA])


def _shorten(summary: str) -> str:
    return summary if len(summary) <= MAX_SUMMARY else summary[: MAX_SUMMARY - 3] + "..."
