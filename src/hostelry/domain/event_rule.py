"""EventBridge: rules that match events, and the targets that they call.

Source: PutRule, PutTargets and Target in the EventBridge API reference.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.domain.scope import Scope

DEFAULT_BUS = "default"
MAX_AGE_S = 86_400
MAX_RETRIES = 185


class RuleTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A target of a rule: the call, its input, and the handling of failures.

    At most one of `input` (a constant), `input_path` and `template` is set. If none is, the whole
    event is the input. `given` is the request.
    """

    id: str
    arn: str
    input: str | None = None
    input_path: str | None = None
    template: str | None = None
    template_paths: Mapping[str, str] = msgspec.field(default_factory=dict)
    max_age_s: float = MAX_AGE_S  # older events are not tried again
    max_retries: int = MAX_RETRIES
    dead_letter_arn: str | None = None
    given: Mapping[str, Any]


class EventRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of the default bus. Its name is the name of its record."""

    scope: Scope
    name: str
    pattern: str
    is_enabled: bool = True
    description: str | None = None
    role_arn: str | None = None
    targets: tuple[RuleTarget, ...] = ()

    @property
    def arn(self) -> str:
        """Its ARN."""
        return rule_arn(self.scope, self.name)


class EventCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call for an event. `text` is the input for the target `target_arn`.

    `source` is the rule's name, or the bucket's ARN. `event_at` is in seconds since the epoch. The
    call is made in the role `role_arn`, if the target has one.
    """

    id: str
    scope: Scope
    source: str
    target_arn: str
    text: str
    event_at: float
    max_age_s: float = MAX_AGE_S
    max_retries: int = MAX_RETRIES
    dead_letter_arn: str | None = None
    chain_length: int = 0
    role_arn: str | None = None


def rule_arn(scope: Scope, name: str) -> str:
    """The ARN of a rule."""
    return f"arn:aws:events:{scope.region}:{scope.account}:rule/{name}"


def bus_arn(scope: Scope) -> str:
    """The ARN of the default bus."""
    return f"arn:aws:events:{scope.region}:{scope.account}:event-bus/{DEFAULT_BUS}"
