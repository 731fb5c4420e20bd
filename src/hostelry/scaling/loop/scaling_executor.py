"""Carrying out of plans: the activity first, then the number, then the activity's end.

An activity is PENDING before its number is written and IN_PROGRESS once it is, so that a kill
between any two writes leaves one story: `recover` sees by the number itself how far it came.

| resource of a pending activity | recovery |
| --- | --- |
| missing, or ending | the activity fails |
| has the activity's number | it is in progress |
| has the number from before, the activity is young and within the bounds | the number is set |
| otherwise | the activity is overridden |
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from hostelry.base.clock import Clock
from hostelry.base.errors import TerminalError
from hostelry.domain.scaling import (
    ActivityStatus,
    NotScaled,
    Receipt,
    ScalableTarget,
    ScalingActivity,
)
from hostelry.scaling.decide import activity_texts
from hostelry.scaling.decide.cooldown import UNDER_WAY
from hostelry.scaling.decide.decide import ActivityCause
from hostelry.scaling.decide.decision import Decision, Resource, not_scaled
from hostelry.scaling.loop.activities import ActivityBook
from hostelry.scaling.loop.capacity import Capacities, Gone, Unscalable

LOG = logging.getLogger(__name__)
UNSCALABLE = "TargetServicePutResourceAsUnscalable"
SAME_REFUSAL_S = 600.0
STALE_S = 300.0


class ScalingExecutor:
    """Writes numbers and their activities; for a target callers make one call at a time."""

    def __init__(
        self,
        book: ActivityBook,
        capacities: Capacities,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._book = book
        self._capacities = capacities
        self._clock = clock
        self._new_id = new_id

    def set(
        self, target: ScalableTarget, found: Resource, decision: Decision, cause: ActivityCause
    ) -> bool:
        """Set the number that was decided; False where the resource takes none now."""
        now, desired = self._clock.now(), decision.desired
        receipt = Receipt(
            decided_at=now,
            signal=decision.signal,
            load_rose_at=cause.load_rose_at if desired > found.desired else None,
            copies_before=tuple(sorted(it.spec.id for it in found.copies)),
        )
        activity = self._book.write(
            self._new(target, found.desired, desired, cause, receipt=receipt), now
        )
        LOG.info(
            "%s: %s -> %s, %s: %s",
            target.resource_id,
            found.desired,
            desired,
            cause.text,
            decision.reason,
        )
        return self._set(target, activity)

    def refuse(
        self,
        target: ScalableTarget,
        current: int,
        reasons: tuple[NotScaled, ...],
        cause: ActivityCause,
        message: str,
    ) -> None:
        """Record that nothing was changed, once for as long as it is for the same reasons."""
        now = self._clock.now()
        for known in self._book.of(target.scope, target.resource_id, target.dimension):
            if not known.not_scaled:
                break
            fresh = abs(now - known.started_at) < SAME_REFUSAL_S
            if fresh and known.cause == cause.text and known.not_scaled == reasons:
                return
        activity = self._new(target, current, current, cause)
        refused = replace(
            activity,
            description=activity_texts.ATTEMPTING,
            status=ActivityStatus.FAILED,
            status_message=f"Nothing was changed. {message}"[: activity_texts.MAX_MESSAGE_CHARS],
            not_scaled=reasons,
            ended_at=now,
        )
        self._book.write(refused, now)

    def postpone(self, target: ScalableTarget, found: Resource, cause: ActivityCause) -> None:
        """Record that the resource takes no other number now."""
        refusal = not_scaled(UNSCALABLE, found.capacity(target))
        self.refuse(target, found.desired, (refusal,), cause, f"The resource is {found.status}.")

    def record_gone(
        self, target: ScalableTarget, found: Resource | None, cause: ActivityCause
    ) -> None:
        """Record, once, that the resource whose number is to change does not exist any more."""
        state = "does not exist any more" if found is None else f"is {found.status}"
        why = f"{target.resource_id} {state}"
        mine = self._book.of(target.scope, target.resource_id, target.dimension)
        if mine and mine[0].status is ActivityStatus.FAILED and why in mine[0].status_message:
            return
        now = self._clock.now()
        activity = replace(self._new(target, 0, 0, cause), description=activity_texts.ATTEMPTING)
        self._book.write(_build_failure(activity, why, now), now)

    def record_bounds(self, target: ScalableTarget, action_name: str) -> None:
        """Record that a scheduled action gave the target other bounds."""
        now = self._clock.now()
        cause = ActivityCause(text=activity_texts.by_schedule(action_name), by=action_name)
        activity = replace(
            self._new(target, 0, 0, cause),
            description=activity_texts.setting_bounds(target),
            status=ActivityStatus.SUCCESSFUL,
            status_message=activity_texts.bounds_were_set(target),
            ended_at=now,
        )
        self._book.write(activity, now)

    def recover(
        self, target: ScalableTarget | None, found: Resource | None, activity: ScalingActivity
    ) -> None:
        """Finish an activity that a kill interrupted, as the table above has it."""
        now = self._clock.now()
        if found is None or found.is_ending:
            self._book.change(
                activity, **_ending(_build_failure(activity, "it does not exist any more", now))
            )
        elif found.desired == activity.to_capacity:
            self._in_progress(activity)
        elif (
            target is not None
            and found.desired == activity.from_capacity
            and target.min_capacity <= activity.to_capacity <= target.max_capacity
            and abs(now - activity.started_at) <= STALE_S
        ):
            self._set(target, activity)
        else:
            self.override(activity, "what was set since", now)

    def override(self, activity: ScalingActivity, by: str, now: float) -> None:
        """End an activity that something later has replaced."""
        text = activity_texts.say_superseded(activity.dimension, activity.to_capacity, by)
        self._book.change(
            activity, status=ActivityStatus.OVERRIDDEN, status_message=text, ended_at=now
        )

    def _set(self, target: ScalableTarget, activity: ScalingActivity) -> bool:
        now = self._clock.now()
        try:
            self._capacities.set(target, activity.to_capacity, now)
        except Unscalable as error:
            refused = replace(
                _build_failure(activity, str(error), now),
                not_scaled=(NotScaled(code=UNSCALABLE, current_capacity=activity.from_capacity),),
            )
            self._book.change(
                activity, **_ending(refused), not_scaled=refused.not_scaled, receipt=None
            )
            return False
        except (Gone, TerminalError) as error:
            self._book.change(activity, **_ending(_build_failure(activity, str(error), now)))
            return True
        self._in_progress(activity)
        for earlier in self._book.of(target.scope, target.resource_id, target.dimension):
            if earlier.id != activity.id and earlier.status in UNDER_WAY:
                self.override(earlier, f"activity {activity.id}", now)
        return True

    def _in_progress(self, activity: ScalingActivity) -> None:
        self._book.change(
            activity,
            status=ActivityStatus.IN_PROGRESS,
            status_message=activity_texts.waiting_for(activity.dimension, activity.to_capacity),
        )

    def _new(
        self,
        target: ScalableTarget,
        current: int,
        desired: int,
        cause: ActivityCause,
        *,
        receipt: Receipt | None = None,
    ) -> ScalingActivity:
        return ScalingActivity(
            scope=target.scope,
            id=self._new_id(),
            resource_id=target.resource_id,
            dimension=target.dimension,
            from_capacity=current,
            to_capacity=desired,
            cause=cause.text,
            description=activity_texts.setting(target.dimension, desired),
            status=ActivityStatus.PENDING,
            started_at=self._clock.now(),
            policy_name=cause.by,
            receipt=receipt,
        )


def _build_failure(activity: ScalingActivity, why: str, now: float) -> ScalingActivity:
    return replace(
        activity,
        status=ActivityStatus.FAILED,
        status_message=activity_texts.say_failed(activity.dimension, activity.to_capacity, why),
        ended_at=now,
    )


def _ending(after: ScalingActivity) -> dict[str, object]:
    return {
        "status": after.status,
        "status_message": after.status_message,
        "ended_at": after.ended_at,
    }
