"""Doing what was decided: the activity first, then the number, then the activity's end.

An activity is PENDING before its number is written and IN_PROGRESS once it is, so that a kill
between any two writes leaves one story: `recover` tells by the number itself how far it came.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from hostelry.autoscaler import activity_texts
from hostelry.autoscaler.activities import UNDER_WAY, ActivityBook
from hostelry.autoscaler.capacity import Capacities, Gone, Resource, Unscalable
from hostelry.base.clock import Clock
from hostelry.base.errors import TerminalError
from hostelry.domain.scaling import (
    ActivityStatus,
    NotScaled,
    Receipt,
    ScalableTarget,
    ScalingActivity,
)
from hostelry.scaling_policy.decision import Decision, not_scaled

LOG = logging.getLogger(__name__)
UNSCALABLE = "TargetServicePutResourceAsUnscalable"
SAME_REFUSAL_S = 600.0
STALE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Why a number is to change: an activity's cause, who decided, and since when load was up."""

    cause: str
    by: str
    load_rose_at: float | None = None


class ScalingExecutor:
    """Writes numbers and tells of them; callers see to it that a target has one call at a time."""

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

    def do(self, target: ScalableTarget, found: Resource, decision: Decision, ask: Ask) -> bool:
        """Set the number that was decided; False where the resource takes none now."""
        now, wanted = self._clock.now(), decision.desired
        if not found.may_become(wanted):
            refusal = not_scaled(UNSCALABLE, found.capacity(target))
            self.refuse(target, found.desired, (refusal,), ask, f"The resource is {found.status}.")
            return False
        receipt = Receipt(
            decided_at=now,
            signal=decision.signal,
            load_rose_at=ask.load_rose_at if wanted > found.desired else None,
            copies_before=tuple(sorted(it.spec.id for it in found.copies)),
        )
        activity = self._book.write(
            self._new(target, found.desired, wanted, ask, receipt=receipt), now
        )
        LOG.info(
            "%s: %s -> %s, %s: %s",
            target.resource_id,
            found.desired,
            wanted,
            ask.cause,
            decision.reason,
        )
        return self._set(target, activity)

    def refuse(
        self,
        target: ScalableTarget,
        current: int,
        reasons: tuple[NotScaled, ...],
        ask: Ask,
        message: str,
    ) -> None:
        """Tell that nothing was changed, once for as long as it is for the same reasons."""
        now = self._clock.now()
        for known in self._book.of(target.scope, target.resource_id, target.dimension):
            if not known.not_scaled:
                break
            fresh = abs(now - known.started_at) < SAME_REFUSAL_S
            if fresh and known.cause == ask.cause and known.not_scaled == reasons:
                return
        activity = self._new(target, current, current, ask)
        refused = replace(
            activity,
            description=activity_texts.ATTEMPTING,
            status=ActivityStatus.FAILED,
            status_message=f"Nothing was changed. {message}"[: activity_texts.MAX_MESSAGE_CHARS],
            not_scaled=reasons,
            ended_at=now,
        )
        self._book.write(refused, now)

    def tell_gone(self, target: ScalableTarget, found: Resource | None, ask: Ask) -> None:
        """Tell, once, that there is nothing any more whose number could be changed."""
        state = "does not exist any more" if found is None else f"is {found.status}"
        why = f"{target.resource_id} {state}"
        mine = self._book.of(target.scope, target.resource_id, target.dimension)
        if mine and mine[0].status is ActivityStatus.FAILED and why in mine[0].status_message:
            return
        now = self._clock.now()
        activity = replace(self._new(target, 0, 0, ask), description=activity_texts.ATTEMPTING)
        self._book.write(_failed(activity, why, now), now)

    def tell_bounds(self, target: ScalableTarget, ask: Ask) -> None:
        """Tell that a schedule gave the target other bounds."""
        now = self._clock.now()
        activity = replace(
            self._new(target, 0, 0, ask),
            description=activity_texts.setting_bounds(target),
            status=ActivityStatus.SUCCESSFUL,
            status_message=activity_texts.bounds_were_set(target),
            ended_at=now,
        )
        self._book.write(activity, now)

    def recover(
        self, target: ScalableTarget | None, found: Resource | None, activity: ScalingActivity
    ) -> None:
        """Finish what a predecessor was killed in: do it where it is still to be done.

        What was decided long ago, or has been overtaken since, is not done.
        """
        now = self._clock.now()
        if found is None or found.is_ending:
            self._book.change(
                activity, **_ending(_failed(activity, "it does not exist any more", now))
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
        text = activity_texts.superseded(activity.dimension, activity.to_capacity, by)
        self._book.change(
            activity, status=ActivityStatus.OVERRIDDEN, status_message=text, ended_at=now
        )

    def _set(self, target: ScalableTarget, activity: ScalingActivity) -> bool:
        now = self._clock.now()
        try:
            self._capacities.set(target, activity.to_capacity, now)
        except Unscalable as error:
            refused = replace(
                _failed(activity, str(error), now),
                not_scaled=(NotScaled(code=UNSCALABLE, current_capacity=activity.from_capacity),),
            )
            self._book.change(
                activity, **_ending(refused), not_scaled=refused.not_scaled, receipt=None
            )
            return False
        except (Gone, TerminalError) as error:
            self._book.change(activity, **_ending(_failed(activity, str(error), now)))
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
        wanted: int,
        ask: Ask,
        *,
        receipt: Receipt | None = None,
    ) -> ScalingActivity:
        return ScalingActivity(
            scope=target.scope,
            id=self._new_id(),
            resource_id=target.resource_id,
            dimension=target.dimension,
            from_capacity=current,
            to_capacity=wanted,
            cause=ask.cause,
            description=activity_texts.setting(target.dimension, wanted),
            status=ActivityStatus.PENDING,
            started_at=self._clock.now(),
            policy_name=ask.by,
            receipt=receipt,
        )


def _failed(activity: ScalingActivity, why: str, now: float) -> ScalingActivity:
    return replace(
        activity,
        status=ActivityStatus.FAILED,
        status_message=activity_texts.failed(activity.dimension, activity.to_capacity, why),
        ended_at=now,
    )


def _ending(after: ScalingActivity) -> dict[str, object]:
    return {
        "status": after.status,
        "status_message": after.status_message,
        "ended_at": after.ended_at,
    }
