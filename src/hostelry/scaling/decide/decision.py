"""Values of a decision: the request, the resource, and the desired capacity with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hostelry.domain.alarm import AlarmState
from hostelry.domain.copy import Copy
from hostelry.domain.load import LoadKey, Wake
from hostelry.domain.metric import Datapoint
from hostelry.domain.scaling import Dimension, NotScaled, ScalableTarget
from hostelry.domain.scope import Scope

# Decisions of policies: the desired capacity and why, or why it is unchanged.
#
# | `towards`: desired, within the bounds, is | decision |
# | --- | --- |
# | further that way than now | that number |
# | not, but without MaxCapacity it would be more | AlreadyAtMaxCapacity |
# | not, on the way in at MinCapacity | AlreadyAtMinCapacity |
# | otherwise not | AlreadyAtDesiredCapacity |


class Direction(Enum):
    """Which way a policy is asked to scale."""

    OUT = "out"
    IN = "in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A target's number now: desired, serving, and its bounds."""

    desired: int
    serving: int
    minimum: int
    maximum: int

    def clamped(self, wanted: int) -> int:
        """`wanted` within the bounds."""
        return max(self.minimum, min(self.maximum, wanted))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAct:
    """The newest act that cooldowns count from: `at` is when it succeeded, in seconds.

    `since_capacity` is the capacity that it began from, `capacity` the one it led to.
    """

    at: float
    since_capacity: int
    capacity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastActs:
    """The newest successful act each way, whichever policy asked for it; None: none is known.

    Scheduled actions and changes by hand are no acts here: no cooldown begins with them.
    """

    scale_out: LastAct | None = None
    scale_in: LastAct | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The input of a policy besides its metric; `pace` divides cooldowns."""

    capacity: Capacity
    acts: LastActs
    now: float
    pace: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The capacity that a policy desires, which may be the present one.

    `reason` is one sentence with the values that led to it; `signal` has those values by name.
    `not_scaled` says why nothing changes although the policy was triggered.
    """

    desired: int
    reason: str
    signal: Mapping[str, float] = field(default_factory=dict)
    not_scaled: tuple[NotScaled, ...] = ()


def towards(
    direction: Direction,
    wanted: int,
    capacity: Capacity,
    reason: str,
    signal: Mapping[str, float],
) -> Decision:
    """`wanted` within the bounds, as far as it lies that way; else the present number, and why not.

    Source: DescribeScalingActivities (NotScaledReasons) in the Application Auto Scaling API
    reference.
    """
    within = capacity.clamped(wanted)
    outwards = direction is Direction.OUT
    if within > capacity.desired if outwards else within < capacity.desired:
        return Decision(desired=within, reason=reason, signal=signal)
    if outwards and wanted > capacity.desired:
        refusal = not_scaled("AlreadyAtMaxCapacity", capacity)
    elif not outwards and capacity.desired <= capacity.minimum:
        refusal = not_scaled("AlreadyAtMinCapacity", capacity)
    else:
        refusal = not_scaled("AlreadyAtDesiredCapacity", capacity)
    return unchanged(capacity, reason, signal, refusal)


def unchanged(
    capacity: Capacity, reason: str, signal: Mapping[str, float], *refusals: NotScaled
) -> Decision:
    """The present number."""
    return Decision(desired=capacity.desired, reason=reason, signal=signal, not_scaled=refusals)


def not_scaled(code: str, capacity: Capacity) -> NotScaled:
    """The refusal with the numbers that AWS gives with its code."""
    return NotScaled(
        code=code,
        max_capacity=capacity.maximum if code == "AlreadyAtMaxCapacity" else None,
        min_capacity=capacity.minimum if code == "AlreadyAtMinCapacity" else None,
        current_capacity=capacity.desired,
    )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A component's copies, or a variant's instances.

    `is_settled`: in service, nothing under way. `may_grow`: a larger number may be set at once,
    since all that is under way is a change of the number itself. `problem` says why it is not as
    desired. `keys` are the names whose requests it carries: with a base those of its adapters.
    `copies` are all of its copies. `created_at` distinguishes it from a predecessor of its name.
    """

    keys: tuple[LoadKey, ...]
    desired: int
    serving: int
    status: str
    is_settled: bool
    may_grow: bool
    is_ending: bool
    problem: str | None = None
    copies: tuple[Copy, ...] = ()
    created_at: float = 0.0

    def capacity(self, target: ScalableTarget) -> Capacity:
        """The number with the target's bounds."""
        return Capacity(
            desired=self.desired,
            serving=self.serving,
            minimum=target.min_capacity,
            maximum=target.max_capacity,
        )

    def may_become(self, desired: int) -> bool:
        """Return whether another number may be set now.

        A smaller one too where the larger one has no room: waiting would not help.
        """
        if self.is_settled:
            return True
        return self.may_grow and (desired > self.desired or self.problem is not None)
