"""CloudWatch alarms: what is watched, when it alarms, and what then happens.

Source: PutMetricAlarm, PutCompositeAlarm and DescribeAlarmHistory in the CloudWatch API reference.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hostelry.domain.metric import MetricQuery, MetricStat
from hostelry.domain.scope import Scope

METRIC_ALARM, COMPOSITE_ALARM = "MetricAlarm", "CompositeAlarm"  # AlarmType


def alarm_arn(scope: Scope, name: str) -> str:
    """The ARN of the alarm of that name."""
    return f"arn:aws:cloudwatch:{scope.region}:{scope.account}:alarm:{name}"


class AlarmState(Enum):
    """StateValue."""

    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


class MissingData(Enum):
    """TreatMissingData."""

    MISSING = "missing"
    NOT_BREACHING = "notBreaching"
    BREACHING = "breaching"
    IGNORE = "ignore"


class Comparison(Enum):
    """ComparisonOperator, of a datapoint with the threshold."""

    GREATER_OR_EQUAL = "GreaterThanOrEqualToThreshold"
    GREATER = "GreaterThanThreshold"
    LESS = "LessThanThreshold"
    LESS_OR_EQUAL = "LessThanOrEqualToThreshold"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRule:
    """When a metric alarm alarms: `datapoints_to_alarm` of `evaluation_periods` breach.

    Exactly one of `stat` and `queries` is used; of the queries one returns data.
    """

    evaluation_periods: int
    datapoints_to_alarm: int
    threshold: float
    comparison: Comparison
    missing: MissingData = MissingData.MISSING
    stat: MetricStat | None = None
    queries: tuple[MetricQuery, ...] = ()
    ignores_few_samples: bool = False  # EvaluateLowSampleCountPercentile: ignore

    @property
    def period_s(self) -> int:
        """Seconds of one datapoint."""
        if self.stat is not None:
            return self.stat.period_s
        periods = (it.period_s or (it.stat.period_s if it.stat else None) for it in self.queries)
        return next(it for it in periods if it)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmActions:
    """What is done when a state is entered: ARNs, or web addresses that are told by POST."""

    enabled: bool = True
    alarm: tuple[str, ...] = ()
    ok: tuple[str, ...] = ()
    insufficient_data: tuple[str, ...] = ()

    def on(self, state: AlarmState) -> tuple[str, ...]:
        """Those of one state, whether or not they are enabled."""
        if state is AlarmState.ALARM:
            return self.alarm
        return self.ok if state is AlarmState.OK else self.insufficient_data


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmStatus:
    """The state that an alarm is in, and why.

    `reason_data` is JSON. `updated_at` is when the state or its reason was last written,
    `transitioned_at` when the state last became another, and `previous` which state it left then.
    `acted_at` is when the actions of this state were done; None while they still have to be.
    """

    state: AlarmState = AlarmState.INSUFFICIENT_DATA
    reason: str = "Unchecked: Initial alarm creation"
    reason_data: str | None = None
    updated_at: float
    transitioned_at: float
    acted_at: float | None = None
    previous: AlarmState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricAlarm:
    """An alarm on one metric or one expression.

    `owner` is the ARN of the scaling policy that made it; None for a user's own. `given` is the
    request, echoed by DescribeAlarms.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeAlarm:
    """An alarm on the states of other alarms; `suppressor` keeps its actions back while it alarms.

    `expression` is AlarmRule as it was given.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmHistoryItem:
    """Something that happened to an alarm; `kind` is HistoryItemType, `data` is JSON."""

    at: float
    alarm_name: str
    alarm_type: str  # MetricAlarm or CompositeAlarm
    kind: str  # ConfigurationUpdate, StateUpdate or Action
    summary: str
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmHistory:
    """What happened to one alarm, newest first, as much as is kept; it outlives the alarm."""

    scope: Scope
    alarm_name: str
    items: tuple[AlarmHistoryItem, ...] = ()
