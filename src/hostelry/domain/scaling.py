"""Application Auto Scaling: targets, policies, scheduled actions and activities.

Source: RegisterScalableTarget, PutScalingPolicy, PutScheduledAction and DescribeScalingActivities
in the Application Auto Scaling API reference.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from hostelry.domain.metric import MetricQuery
from hostelry.domain.scope import Scope


class Dimension(Enum):
    """ScalableDimension, for SageMaker's resources."""

    INSTANCES = "sagemaker:variant:DesiredInstanceCount"
    COPIES = "sagemaker:inference-component:DesiredCopyCount"
    PROVISIONED_CONCURRENCY = "sagemaker:variant:DesiredProvisionedConcurrency"


class Suspended(msgspec.Struct, frozen=True, kw_only=True):
    """SuspendedState: the kinds of scaling that are suspended."""

    scale_in: bool = False
    scale_out: bool = False
    scheduled: bool = False


class ScalableTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A capacity that is scaled between `min_capacity` and `max_capacity`.

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
    """The name of a target's record."""
    return f"{resource_id}|{dimension.value}"


class TargetTracking(msgspec.Struct, frozen=True, kw_only=True):
    """Keeps a metric near `target_value`. Exactly one of `predefined` and `queries` is used.

    `queries` come from CustomizedMetricSpecification, where a single metric becomes one query.
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


class StepAdjustment(msgspec.Struct, frozen=True, kw_only=True):
    """StepAdjustment. Bounds are relative to the alarm's threshold. None means unbounded."""

    lower: float | None
    upper: float | None
    adjustment: int


class StepScaling(msgspec.Struct, frozen=True, kw_only=True):
    """Changes capacity by the distance of the alarm's metric from its threshold.

    `aggregation` is Average, Minimum or Maximum.
    """

    adjustment: Adjustment
    steps: tuple[StepAdjustment, ...]
    cooldown_s: float
    min_magnitude: int | None = None
    aggregation: str = "Average"


class ScalingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy of one target. Exactly one of `tracking` and `stepping` is set.

    Recorded under `policy_key`. `alarm_names` are the alarms that a target-tracking policy created.
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
    given: Mapping[str, Any] = msgspec.field(default_factory=dict)


def policy_key(resource_id: str, dimension: Dimension, name: str) -> str:
    """The name of a policy's or a scheduled action's record."""
    return f"{target_name(resource_id, dimension)}|{name}"


class ScheduledAction(msgspec.Struct, frozen=True, kw_only=True):
    """A change of bounds at a time. `schedule` is at(...), rate(...) or cron(...), in `timezone`.

    Recorded under `policy_key`. `fired_at` is the scheduled time of the last firing.
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


class NotScaled(msgspec.Struct, frozen=True, kw_only=True):
    """Why a triggered policy changed nothing: an entry of NotScaledReasons."""

    code: str
    max_capacity: int | None = None
    min_capacity: int | None = None
    current_capacity: int | None = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Costs and effects of a scaling activity. Times are seconds since the epoch, None if unknown.

    `load_rose_at` (t0) is when the load exceeded the capacity. `decided_at` (t1) is the decision,
    made from the values in `signal`. `answered_at` (t2) is the first answer of new capacity.
    Requests that waited or failed between t0 and t2 are counted.
    """

    decided_at: float
    signal: Mapping[str, float] = msgspec.field(default_factory=dict)
    load_rose_at: float | None = None
    answered_at: float | None = None
    num_delayed: int = 0
    num_failed: int = 0
    copies_before: tuple[str, ...] = ()  # copies that are not new capacity


class ScalingActivity(msgspec.Struct, frozen=True, kw_only=True):
    """A scaling activity, or an activity that was considered but not done (`not_scaled`).

    Recorded under its id. `policy_name` is the name of the policy or scheduled action that decided
    it, "wake", "responsive", or empty if the bounds required it.
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
