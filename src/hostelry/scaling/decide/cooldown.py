"""Cooldowns, and the acts that they count from."""

from collections.abc import Iterator, Sequence

from hostelry.domain.scaling import ActivityStatus, ScalingActivity
from hostelry.scaling.decide.decision import Direction, LastAct, LastActs

# The acts that cooldowns count from, by a target's activities.
#
# | newest act that way | counts |
# | --- | --- |
# | successful, or unfulfilled | from its end |
# | pending, or in progress | as done now: its cooldown cannot have ended |
# | failed, overridden, not scaled | not at all; the one before it may |
# | of bounds, or of a scheduled action | not at all: no cooldown begins with them |
#
# An act that replaced others while they were under way began where the first of those began.


WAKE = "wake"
UNDER_WAY = frozenset({ActivityStatus.PENDING, ActivityStatus.IN_PROGRESS})
DONE = frozenset({ActivityStatus.SUCCESSFUL, ActivityStatus.UNFULFILLED, *UNDER_WAY})


def last_acts(activities: Sequence[ScalingActivity], now: float) -> LastActs:
    """The newest act each way, by a target's activities, newest first."""
    return LastActs(
        scale_out=newest(activities, now, outwards=True),
        scale_in=newest(activities, now, outwards=False),
    )


def last_wake(activities: Sequence[ScalingActivity], now: float) -> LastAct | None:
    """The newest act that began because requests waited."""
    return newest([it for it in activities if it.policy_name == WAKE], now, outwards=True)


def newest(activities: Sequence[ScalingActivity], now: float, *, outwards: bool) -> LastAct | None:
    """The newest act that way."""
    mine = list(select_acts(activities, outwards=outwards))
    act = next((it for it in mine if it.status in DONE), None)
    if act is None:
        return None
    under_way = act.status in UNDER_WAY or act.ended_at is None
    return LastAct(
        at=now if under_way else (act.ended_at or now),
        since_capacity=began_from(act, mine),
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


def began_from(act: ScalingActivity, acts: Sequence[ScalingActivity]) -> int:
    """The capacity before `act`, and before those that it replaced while they were under way."""
    start = act
    for earlier in acts[acts.index(act) + 1 :]:
        is_replaced = earlier.status is ActivityStatus.OVERRIDDEN
        if not is_replaced or earlier.to_capacity != start.from_capacity:
            break
        start = earlier
    return start.from_capacity


# Cooldowns: which earlier act still counts, and for how long.
#
# | last act that way | in force |
# | --- | --- |
# | none, or an act the other way came later | no |
# | its cooldown / pace is over | no |
# | further in the future than a cooldown: the clock was set back | no |
# | otherwise | yes |
#
# Source: "Target tracking scaling policies" and "Step scaling policies" (Cooldown period) in the
# Application Auto Scaling user guide.


def act_in_force(
    acts: LastActs, direction: Direction, cooldown_s: float, pace: float, now: float
) -> LastAct | None:
    """The act that way whose cooldown lasts at `now`; None where nothing holds a new one back.

    An act the other way ends it: scaling out aborts the cooldown of scaling in. The cooldown counts
    from the act's success, and `pace` divides it.
    """
    outwards = direction is Direction.OUT
    act = acts.scale_out if outwards else acts.scale_in
    other = acts.scale_in if outwards else acts.scale_out
    if act is None or (other is not None and other.at > act.at):
        return None
    return act if remaining_s(act, cooldown_s, pace, now) > 0.0 else None


def remaining_s(act: LastAct, cooldown_s: float, pace: float, now: float) -> float:
    """Seconds until the cooldown that began with `act` ends; 0 where it has ended.

    An act further in the future than a whole cooldown was timed by a clock that has since been set
    back, and holds nothing back.
    """
    lasts_s = cooldown_s / pace
    left_s = act.at + lasts_s - now
    return left_s if 0.0 < left_s <= 2.0 * lasts_s else 0.0
