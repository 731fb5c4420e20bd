"""What the parts of the scaling loop ask of each other."""

from dataclasses import dataclass
from typing import Protocol

from hostelry.domain.alarm import AlarmState
from hostelry.domain.load import Wake
from hostelry.domain.metric import Datapoint
from hostelry.domain.scaling import Dimension
from hostelry.domain.scope import Scope
from hostelry.scaling_policy.decision import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """An alarm asks a policy to act; `values` are the alarm's newest datapoints, in order."""

    scope: Scope
    policy_arn: str
    alarm_name: str
    state: AlarmState
    threshold: float
    values: tuple[Datapoint, ...]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A decision made outside of AWS's policies: `by` is "responsive" or "wake".

    One that `may_lower` takes capacity away; any other is a floor that says how much is needed.
    """

    scope: Scope
    resource_id: str
    dimension: Dimension
    by: str
    decision: Decision
    load_rose_at: float | None
    at: float
    may_lower: bool = False


class Scaler(Protocol):
    """The only one who changes capacity by itself: decides, records the activity, sets the number.

    Safe to be called from any thread, for one target one after the other. None of its methods
    raises for what a user did; what could not be done is told by an activity.
    """

    def trigger(self, trigger: Trigger) -> None:
        """Let the policy decide, with what else is known of its target, and do it."""
        ...

    def propose(self, proposal: Proposal) -> None:
        """Raise (never lower below what AWS's policies ask for) the target's capacity."""
        ...

    def wake(self, wake: Wake) -> None:
        """Give a name without a copy its first one, at once."""
        ...
