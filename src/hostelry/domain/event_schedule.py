"""EventBridge Scheduler: schedules that call an operation, and their groups.

Source: CreateSchedule and Target in the EventBridge Scheduler API reference.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.domain.scope import Scope

DEFAULT_GROUP = "default"
MAX_AGE_S = 86_400
MAX_RETRIES = 185


class ScheduleTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The operation that a schedule calls, its input, and the handling of failures."""

    arn: str
    input: str | None = None
    max_age_s: float = MAX_AGE_S  # older events are not tried again
    max_retries: int = MAX_RETRIES
    dead_letter_arn: str | None = None


class ScheduledExecution(msgspec.Struct, frozen=True, kw_only=True):
    """A firing under way. `attempt` calls were made, and the next call is due at `next_at`."""

    id: str
    scheduled_at: float
    next_at: float
    attempt: int = 0
    problem: str | None = None


class EventSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule. Recorded under `schedule_key`.

    `window_s` is the length of its flexible time window, 0 without a window. `fired_at` is the
    scheduled time of the last firing since `modified_at`. `given` is the request.
    """

    scope: Scope
    group: str
    name: str
    created_at: float
    modified_at: float
    expression: str
    timezone: str
    target: ScheduleTarget
    is_enabled: bool = True
    start_at: float | None = None
    end_at: float | None = None
    window_s: float = 0.0
    deletes_itself: bool = False
    fired_at: float | None = None
    execution: ScheduledExecution | None = None
    given: Mapping[str, Any]

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"{_arn_start(self.scope)}:schedule/{self.group}/{self.name}"


class ScheduleGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of schedules. The group `default` always exists, and has no record."""

    scope: Scope
    name: str
    created_at: float
    client_token: str | None = None

    @property
    def arn(self) -> str:
        """Its ARN."""
        return group_arn(self.scope, self.name)


def schedule_key(group: str, name: str) -> str:
    """The name of a schedule's record."""
    return f"{group}/{name}"


def group_arn(scope: Scope, name: str) -> str:
    """The ARN of a group."""
    return f"{_arn_start(scope)}:schedule-group/{name}"


def _arn_start(scope: Scope) -> str:
    return f"arn:aws:scheduler:{scope.region}:{scope.account}"
