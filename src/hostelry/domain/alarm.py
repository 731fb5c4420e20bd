"""CloudWatch alarms: rules, states, actions and history.

Source: PutMetricAlarm, PutCompositeAlarm and DescribeAlarmHistory in the CloudWatch API reference.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from hostelry.domain.metric import MetricQuery, MetricStat
from hostelry.domain.scope import Scope

METRIC_ALARM, COMPOSITE_ALARM = "MetricAlarm", "CompositeAlarm"  # AlarmType


def alarm_arn(scope: Scope, name: str) -> str:
    """The ARN of the alarm of that name."""
    return f"arn:aws:cloudwatch:{scope.region}:{scope.account}:alarm:{name}"


class AlarmState(Enum):
    """StateValue in CloudWatch's API."""

    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


class MissingData(Enum):
    """TreatMissingData in CloudWatch's API."""

    MISSING = "missing"
    NOT_BREACHING = "notBreaching"
    BREACHING = "breaching"
    IGNORE = "ignore"


class Comparison(Enum):
    """ComparisonOperator: compares a datapoint with the threshold."""

    GREATER_OR_EQUAL = "GreaterThanOrEqualToThreshold"
    GREATER = "GreaterThanThreshold"
    LESS = "LessThanThreshold"
    LESS_OR_EQUAL = "LessThanOrEqualToThreshold"


class AlarmRule(msgspec.Struct, frozen=True, kw_only=True):
    """A metric alarm's rule: ALARM if `datapoints_to_alarm` of `evaluation_periods` breach.

    Exactly one of `stat` and `queries` is used. Exactly one query returns data.
    """

    evaluation_periods: int
    datapoints_to_alarm: int
    threshold: float
    comparison: Comparison
    missing: MissingData = MissingData.MISSING
    stat: MetricStat | None = None
    queries: tuple[MetricQuery, ...] = ()
    ignores_few_samples: bool = False  # EvaluateLowSampleCountPercentile is "ignore"

    @property
    def period_s(self) -> int:
        """Seconds of one datapoint."""
        if self.stat is not None:
            return self.stat.period_s
        periods = (it.period_s or (it.stat.period_s if it.stat else None) for it in self.queries)
        return next(it for it in periods if it)


class AlarmActions(msgspec.Struct, frozen=True, kw_only=True):
    """Actions on entering a state: ARNs, or web addresses that get a POST."""

    enabled: bool = True
    alarm: tuple[str, ...] = ()
    ok: tuple[str, ...] = ()
    insufficient_data: tuple[str, ...] = ()

    def on(self, state: AlarmState) -> tuple[str, ...]:
        """The actions of one state, enabled or not."""
        if state is AlarmState.ALARM:
            return self.alarm
        return self.ok if state is AlarmState.OK else self.insufficient_data


class AlarmStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an alarm, and the reason.

    `reason_data` is JSON. `updated_at` is the last write of the state or the reason,
    `transitioned_at` the last change of state, and `previous` the state before it. `acted_at` is
    when the actions for this state were done, or None while they are due.
    """

    state: AlarmState = AlarmState.INSUFFICIENT_DATA
    reason: str = "Unchecked: Initial alarm creation"
    reason_data: str | None = None
    updated_at: float
    transitioned_at: float
    acted_at: float | None = None
    previous: AlarmState | None = None


class MetricAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm on one metric or one expression.

    `owner` is the ARN of the scaling policy that created the alarm, or None for a user's alarm.
    `given` is the request, which DescribeAlarms returns.
    """

    scope: Scope
    name: str
    arn: str
    rule: AlarmRule
    actions: AlarmActions
    status: AlarmStatus
    configured_at: float
    owner: str | None = None
    given: Mapping[str, Any]


class CompositeAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm on the states of other alarms. While `suppressor` is in ALARM, its actions wait.

    `expression` is the request's AlarmRule.
    """

    scope: Scope
    name: str
    arn: str
    expression: str
    actions: AlarmActions
    status: AlarmStatus
    configured_at: float
    suppressor: str | None = None
    suppressor_wait_s: float = 0.0
    suppressor_extension_s: float = 0.0
    given: Mapping[str, Any]


class AlarmHistoryItem(msgspec.Struct, frozen=True, kw_only=True):
    """An event of an alarm. `kind` is HistoryItemType, and `data` is JSON."""

    at: float
    alarm_name: str
    alarm_type: str  # MetricAlarm or CompositeAlarm
    kind: str  # ConfigurationUpdate, StateUpdate or Action
    summary: str
    data: str


class AlarmHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The newest events of an alarm, newest first. The history outlives the alarm."""

    scope: Scope
    alarm_name: str
    items: tuple[AlarmHistoryItem, ...] = ()
