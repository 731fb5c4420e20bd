"""Acts of scaling: they are written with their activities, then followed until they end.

An activity is PENDING before its number is written and IN_PROGRESS once it is, so that a kill
between any two writes leaves one story: `recover` sees by the number itself how far it came.

| resource of a pending activity | recovery |
| --- | --- |
| missing, or ending | the activity fails |
| has the activity's number | it is in progress |
| has the number from before, the activity is young and within the bounds | the number is set |
| otherwise | the activity is overridden |

| resource of an act in progress | end |
| --- | --- |
| missing, or ending | Failed |
| its number is another by now | Overridden |
| settled, and as much serves as desired, or nothing is wrong | Successful |
| settled otherwise, or after `FULFIL_S` | Unfulfilled |
"""

import logging
from collections.abc import Callable

from msgspec.structs import replace

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
from hostelry.scaling.decide.decide import ActivityCause
from hostelry.scaling.decide.decision import UNDER_WAY, Decision, Resource, build_not_scaled
from hostelry.scaling.decide.load_signals import LOOK_BACK_S, find_first_answer
from hostelry.scaling.loop.activities import ActivityBook
from hostelry.scaling.loop.capacity import Capacities, Gone, Unscalable
from hostelry.scaling.loop.loads import LoadReader, add_loads

LOG = logging.getLogger(__name__)


UNSCALABLE = "TargetServicePutResourceAsUnscalable"
SAME_REFUSAL_S = 600.0
STALE_S = 300.0


class ScalingExecutor:
    """Writes numbers and their activities. Callers make one call at a time for a target."""

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
        """Set the number that was decided. False if the resource takes no number now."""
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
        refusal = build_not_scaled(UNSCALABLE, found.capacity(target))
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
        cause = ActivityCause(text=activity_texts.build_schedule_cause(action_name), by=action_name)
        activity = replace(
            self._new(target, 0, 0, cause),
            description=activity_texts.describe_bounds(target),
            status=ActivityStatus.SUCCESSFUL,
            status_message=activity_texts.confirm_bounds(target),
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
                activity,
                **_build_ending(_build_failure(activity, "it does not exist any more", now)),
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
        text = activity_texts.describe_superseded(activity.dimension, activity.to_capacity, by)
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
                activity, **_build_ending(refused), not_scaled=refused.not_scaled, receipt=None
            )
            return False
        except (Gone, TerminalError) as error:
            self._book.change(activity, **_build_ending(_build_failure(activity, str(error), now)))
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
            status_message=activity_texts.describe_waiting(
                activity.dimension, activity.to_capacity
            ),
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
            description=activity_texts.describe_act(target.dimension, desired),
            status=ActivityStatus.PENDING,
            started_at=self._clock.now(),
            policy_name=cause.by,
            receipt=receipt,
        )


def _build_failure(activity: ScalingActivity, why: str, now: float) -> ScalingActivity:
    return replace(
        activity,
        status=ActivityStatus.FAILED,
        status_message=activity_texts.describe_failed(
            activity.dimension, activity.to_capacity, why
        ),
        ended_at=now,
    )


def _build_ending(after: ScalingActivity) -> dict[str, object]:
    return {
        "status": after.status,
        "status_message": after.status_message,
        "ended_at": after.ended_at,
    }


FULFIL_S = 1800.0
ANSWER_S = 600.0  # for so long the first answer of new capacity is waited for after its act


class ActivityTracker:
    """Acts that have not ended, or whose receipts are incomplete. Used by one thread.

    Durations are of a clock that never jumps, from when this process first saw an act.
    """

    def __init__(
        self,
        book: ActivityBook,
        capacities: Capacities,
        aggregator: LoadReader,
        executor: ScalingExecutor,
    ) -> None:
        self._book = book
        self._capacities = capacities
        self._aggregator = aggregator
        self._executor = executor
        self._seen_at: dict[str, float] = {}

    def look(self, activity: ScalingActivity, now: float, steady_now: float) -> None:
        """Write the progress of one act."""
        since = self._seen_at.setdefault(activity.id, steady_now)
        found = self._capacities.find(activity.scope, activity.resource_id, activity.dimension)
        if activity.status is ActivityStatus.IN_PROGRESS:
            activity = self._end_if_over(activity, found, now, steady_now - since >= FULFIL_S)
        if found is not None and activity.receipt is not None:
            self._complete(activity, activity.receipt, found)

    def is_open(self, activity: ScalingActivity, now: float, steady_now: float) -> bool:
        """Return whether the act has not ended, or its receipt may still change."""
        if activity.status in UNDER_WAY:
            return True
        grew = activity.to_capacity > activity.from_capacity and not activity.not_scaled
        waits = (
            grew
            and activity.receipt is not None
            and activity.receipt.answered_at is None
            and activity.status is not ActivityStatus.FAILED
            and abs(now - (activity.ended_at or now)) < ANSWER_S
            and steady_now - self._seen_at.get(activity.id, steady_now) < FULFIL_S + ANSWER_S
        )
        if not waits:
            self._seen_at.pop(activity.id, None)
        return waits

    def _end_if_over(
        self, activity: ScalingActivity, found: Resource | None, now: float, is_late: bool
    ) -> ScalingActivity:
        desired, dimension = activity.to_capacity, activity.dimension
        if found is None or found.is_ending:
            why = "it does not exist any more" if found is None else f"it is {found.status}"
            text = activity_texts.describe_failed(dimension, desired, why)
            return self._end(activity, ActivityStatus.FAILED, text, now)
        if found.desired != desired:
            self._executor.override(activity, f"another number, {found.desired}", now)
            return replace(activity, status=ActivityStatus.OVERRIDDEN)
        if found.is_settled and (found.problem is None or found.serving >= desired):
            text = activity_texts.describe_fulfilled(dimension, desired)
            return self._end(activity, ActivityStatus.SUCCESSFUL, text, now)
        if found.is_settled or is_late:
            text = activity_texts.describe_unfulfilled(
                dimension, desired, found.serving, found.problem
            )
            return self._end(activity, ActivityStatus.UNFULFILLED, text, now)
        return activity

    def _end(
        self, activity: ScalingActivity, status: ActivityStatus, text: str, now: float
    ) -> ScalingActivity:
        return self._book.change(activity, status=status, status_message=text, ended_at=now)

    def _complete(self, activity: ScalingActivity, receipt: Receipt, found: Resource) -> None:
        """Add a new copy's first answer to the receipt, and the requests delayed or failed."""
        if activity.to_capacity <= activity.from_capacity or receipt.answered_at is not None:
            return
        begun = receipt.decided_at if receipt.load_rose_at is None else receipt.load_rose_at
        since = max(begun, receipt.decided_at - LOOK_BACK_S)
        seconds = add_loads(self._aggregator, found.keys, since)
        seen = find_first_answer(seconds, receipt.copies_before, since, receipt.decided_at)
        if seen.at is None and activity.status in UNDER_WAY:
            return
        after = replace(
            receipt,
            answered_at=seen.at,
            num_delayed=max(seen.num_delayed, receipt.num_delayed),
            num_failed=max(seen.num_failed, receipt.num_failed),
        )
        self._book.change(activity, receipt=after)
