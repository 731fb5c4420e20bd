"""Which acts cooldowns count from, by a target's activities. Pure."""

from collections.abc import Iterator, Sequence

from hostelry.autoscaler.activities import UNDER_WAY
from hostelry.domain.scaling import ActivityStatus, ScalingActivity
from hostelry.scaling_policy.decision import LastAct, LastActs

WAKE = "wake"
DONE = frozenset({ActivityStatus.SUCCESSFUL, ActivityStatus.UNFULFILLED, *UNDER_WAY})


def last_acts(activities: Sequence[ScalingActivity], now: float) -> LastActs:
    """The newest act each way, by a target's activities, newest first.

    One that is under way counts as done now: its cooldown cannot have ended. Scheduled actions and
    the bounds themselves are no acts: no cooldown begins with them.
    """
    return LastActs(
        scale_out=newest(activities, now, outwards=True),
        scale_in=newest(activities, now, outwards=False),
    )


def last_wake(activities: Sequence[ScalingActivity], now: float) -> LastAct | None:
    """The newest act that began because requests waited."""
    return newest([it for it in activities if it.policy_name == WAKE], now, outwards=True)


def newest(activities: Sequence[ScalingActivity], now: float, *, outwards: bool) -> LastAct | None:
    """The newest act that way."""
    mine = list(acts_of(activities, outwards=outwards))
    act = next((it for it in mine if it.status in DONE), None)
    if act is None:
        return None
    under_way = act.status in UNDER_WAY or act.ended_at is None
    return LastAct(
        at=now if under_way else (act.ended_at or now),
        since_capacity=began_from(act, mine),
        capacity=act.to_capacity,
    )


def acts_of(activities: Sequence[ScalingActivity], *, outwards: bool) -> Iterator[ScalingActivity]:
    """What policies, wakes and proposals did that way, newest first."""
    for it in activities:
        is_that_way = (
            it.to_capacity > it.from_capacity if outwards else it.to_capacity < it.from_capacity
        )
        if is_that_way and it.policy_name and not it.not_scaled:
            yield it


def began_from(act: ScalingActivity, acts: Sequence[ScalingActivity]) -> int:
    """The capacity before `act`, and before those that it replaced while they were under way."""
    start = act
    for it in acts[acts.index(act) + 1 :]:
        is_replaced = it.status is ActivityStatus.OVERRIDDEN
        if not is_replaced or it.to_capacity != start.from_capacity:
            break
        start = it
    return start.from_capacity
