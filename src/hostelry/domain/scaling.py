"""Application Auto Scaling: what can be scaled, by which policies, and what was done.

Source: RegisterScalableTarget, PutScalingPolicy, PutScheduledAction and DescribeScalingActivities
in the Application Auto Scaling API reference.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hostelry.domain.metric import MetricQuery
from hostelry.domain.scope import Scope


class Dimension(Enum):
    """ScalableDimension, as far as SageMaker has one."""

    INSTANCES = "sagemaker:variant:DesiredInstanceCount"
    COPIES = "sagemaker:inference-component:DesiredCopyCount"
    PROVISIONED_CONCURRENCY = "sagemaker:variant:DesiredProvisionedConcurrency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """SuspendedState: what is not done for now."""

    scale_in: bool = False
    scale_out: bool = False
    scheduled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalableTarget:
    """A number that may be scaled: between `min_capacity` and `max_capacity`.

    Recorded under `target_name(resource_id, dimension)`.
    """

    scope: Scope
    resource_id: str  # endpoint/NAME/variant/NAME or inference-component/NAME
    dimension: Dimension
    arn: str
    min_capacity: int
    max_capacity: int
    role_arn: str
    created_at: float
    suspended: Suspended = Suspended()


def target_name(resource_id: str, dimension: Dimension) -> str:
    """What a target's record is named."""
    return f"{resource_id}|{dimension.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTracking:
    """Keep a metric near `target_value`; exactly one of `predefined` and `queries` is used.

    `queries` are those of CustomizedMetricSpecification; a single metric is one query.
    """

    target_value: float
    scale_out_cooldown_s: float
    scale_in_cooldown_s: float
    disable_scale_in: bool = False
    predefined: str | None = None
    queries: tuple[MetricQuery, ...] = ()


class Adjustment(Enum):
    """AdjustmentType."""

    CHANGE = "ChangeInCapacity"
    PERCENT = "PercentChangeInCapacity"
    EXACT = "ExactCapacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAdjustment:
    """One StepAdjustment; bounds are relative to the alarm's threshold, None is without end."""

    lower: float | None
    upper: float | None
    adjustment: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScaling:
    """Change capacity by how far the alarm's metric is from its threshold.

    `aggregation` is Average, Minimum or Maximum.
    """

    adjustment: Adjustment
    steps: tuple[StepAdjustment, ...]
    cooldown_s: float
    min_magnitude: int | None = None
    aggregation: str = "Average"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """A policy of one target; exactly one of `tracking` and `stepping` is set.

    Recorded under `policy_key`. `alarm_names` are the alarms that a target-tracking policy made.
    """

    scope: Scope
    name: str
    arn: str
    resource_id: str
    dimension: Dimension
    created_at: float
    tracking: TargetTracking | None = None
    stepping: StepScaling | None = None
    alarm_names: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)


def policy_key(resource_id: str, dimension: Dimension, name: str) -> str:
    """What a policy's or a scheduled action's record is named."""
    return f"{target_name(resource_id, dimension)}|{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledAction:
    """New bounds at a time; `schedule` is at(...), rate(...) or cron(...), in `timezone`.

    Recorded under `policy_key`. `fired_at` is the instant, by the schedule, of the last firing.
    """

    scope: Scope
    name: str
    arn: str
    resource_id: str
    dimension: Dimension
    schedule: str
    timezone: str
    created_at: float
    start_at: float | None = None
    end_at: float | None = None
    min_capacity: int | None = None
    max_capacity: int | None = None
    fired_at: float | None = None


class ActivityStatus(Enum):
    """StatusCode of a scaling activity."""

    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    SUCCESSFUL = "Successful"
    OVERRIDDEN = "Overridden"
    UNFULFILLED = "Unfulfilled"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotScaled:
    """Why a policy that was triggered changed nothing: one of NotScaledReasons."""

    code: str
    max_capacity: int | None = None
    min_capacity: int | None = None
    current_capacity: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a scaling act cost and gave; instants in seconds since the epoch, None: not yet known.

    `load_rose_at` (t0) is when the load left what the capacity could carry, `decided_at` (t1) when
    this was decided by `signal`'s values, `answered_at` (t2) when new capacity first answered.
    Requests that waited or failed are those between t0 and t2.
    """

    decided_at: float
    signal: Mapping[str, float] = field(default_factory=dict)
    load_rose_at: float | None = None
    answered_at: float | None = None
    num_delayed: int = 0
    num_failed: int = 0
    copies_before: tuple[str, ...] = ()  # whose answers are not those of new capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingActivity:
    """One act of scaling, or one that was considered and not done (`not_scaled`).

    Recorded under its id. `policy_name` is what decided it: a policy's name, a scheduled action's,
    "wake", "responsive", or empty for the bounds themselves.
    """

    scope: Scope
    id: str
    resource_id: str
    dimension: Dimension
    from_capacity: int
    to_capacity: int
    cause: str
    description: str
    status: ActivityStatus
    started_at: float
    ended_at: float | None = None
    status_message: str = ""
    details: str = ""
    policy_name: str = ""
    not_scaled: tuple[NotScaled, ...] = ()
    receipt: Receipt | None = None
