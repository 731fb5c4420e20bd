"""Values of scaling decisions, and the acts and cooldowns that they count from."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

import msgspec

from hostelry.domain.alarm import AlarmState
from hostelry.domain.copy import Copy
from hostelry.domain.load import LoadKey, Wake
from hostelry.domain.metric import Datapoint
from hostelry.domain.scaling import (
    ActivityStatus,
    Dimension,
    NotScaled,
    ScalableTarget,
    ScalingActivity,
)
from hostelry.domain.scope import Scope

# Decisions of policies: the desired capacity and why, or why it is unchanged.
#
# | `move_capacity`: desired, within the bounds, is | decision |
# | --- | --- |
# | further that way than now | that number |
# | not, but without MaxCapacity it would be more | AlreadyAtMaxCapacity |
# | not, on the way in at MinCapacity | AlreadyAtMinCapacity |
# | otherwise not | AlreadyAtDesiredCapacity |


class Direction(Enum):
    """Which way a policy is asked to scale."""

    OUT = "out"
    IN = "in"


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """A target's number now: desired, serving, and its bounds."""

    desired: int
    serving: int
    minimum: int
    maximum: int

    def clamp(self, wanted: int) -> int:
        """`wanted` within the bounds."""
        return max(self.minimum, min(self.maximum, wanted))


class LastAct(msgspec.Struct, frozen=True, kw_only=True):
    """The newest act that cooldowns count from: `at` is when it succeeded, in seconds.

    `since_capacity` is the capacity that it began from, `capacity` the one it led to.
    """

    at: float
    since_capacity: int
    capacity: int


class LastActs(msgspec.Struct, frozen=True, kw_only=True):
    """The newest successful act in each direction, of any policy. None if no act is known.

    Scheduled actions and changes by hand do not count as acts: no cooldown begins with them.
    """

    scale_out: LastAct | None = None
    scale_in: LastAct | None = None


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a policy besides its metric. `pace` divides cooldowns."""

    capacity: Capacity
    acts: LastActs
    now: float
    pace: float = 1.0


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The capacity that a policy desires, which may be the present one.

    `reason` is one sentence with the values that led to it. `signal` has these values by name.
    `not_scaled` says why nothing changes although the policy was triggered.
    """

    desired: int
    reason: str
    signal: Mapping[str, float] = msgspec.field(default_factory=dict)
    not_scaled: tuple[NotScaled, ...] = ()


def move_capacity(
    direction: Direction,
    wanted: int,
    capacity: Capacity,
    reason: str,
    signal: Mapping[str, float],
) -> Decision:
    """`wanted` within the bounds, if it lies in that direction. Else the present number, and why.

    Source: DescribeScalingActivities (NotScaledReasons) in the Application Auto Scaling API
    reference.
    """
    within = capacity.clamp(wanted)
    outwards = direction is Direction.OUT
    if within > capacity.desired if outwards else within < capacity.desired:
        return Decision(desired=within, reason=reason, signal=signal)
    if outwards and wanted > capacity.desired:
        refusal = build_not_scaled("AlreadyAtMaxCapacity", capacity)
    elif not outwards and capacity.desired <= capacity.minimum:
        refusal = build_not_scaled("AlreadyAtMinCapacity", capacity)
    else:
        refusal = build_not_scaled("AlreadyAtDesiredCapacity", capacity)
    return keep_capacity(capacity, reason, signal, refusal)


def keep_capacity(
    capacity: Capacity, reason: str, signal: Mapping[str, float], *refusals: NotScaled
) -> Decision:
    """The present number."""
    return Decision(desired=capacity.desired, reason=reason, signal=signal, not_scaled=refusals)


def build_not_scaled(code: str, capacity: Capacity) -> NotScaled:
    """The refusal with the numbers that AWS gives with its code."""
    return NotScaled(
        code=code,
        max_capacity=capacity.maximum if code == "AlreadyAtMaxCapacity" else None,
        min_capacity=capacity.minimum if code == "AlreadyAtMinCapacity" else None,
        current_capacity=capacity.desired,
    )


# How long a proposal keeps capacity up. It is made again while its reason lasts.
PROPOSAL_S = 30.0


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm that triggers a policy. `values` are the alarm's newest datapoints, in order."""

    scope: Scope
    policy_arn: str
    alarm_name: str
    state: AlarmState
    threshold: float
    values: tuple[Datapoint, ...]
    at: float


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A decision made outside of AWS's policies. `by` is "responsive".

    A proposal that `may_lower` takes capacity away. Any other is a floor: the minimum capacity
    needed.
    """

    scope: Scope
    resource_id: str
    dimension: Dimension
    by: str
    decision: Decision
    load_rose_at: float | None
    at: float
    may_lower: bool = False


class BoundsCheck(msgspec.Struct, frozen=True):
    """The target's bounds may have changed: its capacity has to be within them."""


Request = Trigger | Proposal | Wake | BoundsCheck


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A component's copies, or a variant's instances.

    `is_settled`: in service, nothing under way. `may_grow`: a larger number may be set at once,
    since only a change of the number itself is under way. `problem` says why the resource is not as
    desired. `keys` are the names whose requests it carries: with a base, also its adapters.
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


WAKE = "wake"
UNDER_WAY = frozenset({ActivityStatus.PENDING, ActivityStatus.IN_PROGRESS})
DONE = frozenset({ActivityStatus.SUCCESSFUL, ActivityStatus.UNFULFILLED, *UNDER_WAY})


def find_last_acts(activities: Sequence[ScalingActivity], now: float) -> LastActs:
    """The newest act each way, by a target's activities, newest first."""
    return LastActs(
        scale_out=find_newest_act(activities, now, outwards=True),
        scale_in=find_newest_act(activities, now, outwards=False),
    )


def find_last_wake(activities: Sequence[ScalingActivity], now: float) -> LastAct | None:
    """The newest act that began because requests waited."""
    return find_newest_act([it for it in activities if it.policy_name == WAKE], now, outwards=True)


def find_newest_act(
    activities: Sequence[ScalingActivity], now: float, *, outwards: bool
) -> LastAct | None:
    """The newest act that way.

    | newest act that way | counts |
    | --- | --- |
    | successful, or unfulfilled | from its end |
    | pending, or in progress | as done now: its cooldown cannot have ended |
    | failed, overridden, not scaled | not at all, but the one before it may |
    | of bounds, or of a scheduled action | not at all: no cooldown begins with them |

    An act that replaced others while they were under way began where the first of those began.
    """
    mine = list(select_acts(activities, outwards=outwards))
    act = next((it for it in mine if it.status in DONE), None)
    if act is None:
        return None
    under_way = act.status in UNDER_WAY or act.ended_at is None
    return LastAct(
        at=now if under_way else (act.ended_at or now),
        since_capacity=find_start_capacity(act, mine),
        capacity=act.to_capacity,
    )


def select_acts(
    activities: Sequence[ScalingActivity], *, outwards: bool
) -> Iterator[ScalingActivity]:
    """The acts of policies, wakes and proposals that way, newest first."""
    for activity in activities:
        change = activity.to_capacity - activity.from_capacity
        is_that_way = change > 0 if outwards else change < 0
        if is_that_way and activity.policy_name and not activity.not_scaled:
            yield activity


def find_start_capacity(act: ScalingActivity, acts: Sequence[ScalingActivity]) -> int:
    """The capacity before `act`, and before those that it replaced while they were under way."""
    start = act
    for earlier in acts[acts.index(act) + 1 :]:
        is_replaced = earlier.status is ActivityStatus.OVERRIDDEN
        if not is_replaced or earlier.to_capacity != start.from_capacity:
            break
        start = earlier
    return start.from_capacity


def find_act_in_force(
    acts: LastActs, direction: Direction, cooldown_s: float, pace: float, now: float
) -> LastAct | None:
    """The act in that direction whose cooldown lasts at `now`. None if a new act is allowed.

    An act in the other direction ends it: scaling out aborts the cooldown of scaling in. The
    cooldown counts from the act's success, and `pace` divides it.

    | last act that way | in force |
    | --- | --- |
    | none, or an act the other way came later | no |
    | its cooldown / pace is over | no |
    | further in the future than a cooldown: the clock was set back | no |
    | otherwise | yes |

    Source: "Target tracking scaling policies" and "Step scaling policies" (Cooldown period) in the
    Application Auto Scaling user guide.
    """
    outwards = direction is Direction.OUT
    act = acts.scale_out if outwards else acts.scale_in
    other = acts.scale_in if outwards else acts.scale_out
    if act is None or (other is not None and other.at > act.at):
        return None
    return act if get_remaining_s(act, cooldown_s, pace, now) > 0.0 else None


def get_remaining_s(act: LastAct, cooldown_s: float, pace: float, now: float) -> float:
    """Seconds until the cooldown that began with `act` ends. 0 if it has ended.

    An act that lies further ahead than a whole cooldown was timed by a clock that has since been
    set back. It holds nothing back.
    """
    lasts_s = cooldown_s / pace
    left_s = act.at + lasts_s - now
    return left_s if 0.0 < left_s <= 2.0 * lasts_s else 0.0
