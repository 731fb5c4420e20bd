"""Decisions of policies: the desired capacity and why, or why it is unchanged.

| `towards`: desired, within the bounds, is | decision |
| --- | --- |
| further that way than now | that number |
| not, but without MaxCapacity it would be more | AlreadyAtMaxCapacity |
| not, on the way in at MinCapacity | AlreadyAtMinCapacity |
| otherwise not | AlreadyAtDesiredCapacity |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hostelry.domain.scaling import NotScaled


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
