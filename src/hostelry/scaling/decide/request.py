"""Requests for another capacity: an alarm's trigger, a proposal, a wake, or new bounds."""

from dataclasses import dataclass

from hostelry.domain.alarm import AlarmState
from hostelry.domain.load import Wake
from hostelry.domain.metric import Datapoint
from hostelry.domain.scaling import Dimension
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.decision import Decision

# For so long a proposal keeps capacity up; it is made again while its reason lasts.
PROPOSAL_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """An alarm that triggers a policy; `values` are the alarm's newest datapoints, in order."""

    scope: Scope
    policy_arn: str
    alarm_name: str
    state: AlarmState
    threshold: float
    values: tuple[Datapoint, ...]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A decision made outside of AWS's policies: `by` is "responsive".

    One that `may_lower` takes capacity away; any other is a floor: the capacity needed at least.
    """

    scope: Scope
    resource_id: str
    dimension: Dimension
    by: str
    decision: Decision
    load_rose_at: float | None
    at: float
    may_lower: bool = False


@dataclass(frozen=True, slots=True)
class BoundsCheck:
    """The target's bounds may have changed: its capacity has to be within them."""


Request = Trigger | Proposal | Wake | BoundsCheck
