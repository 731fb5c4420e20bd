"""Following an act until the resource has done it, and the first answer of its new capacity.

Every act ends: with its resource's update, when something later replaces it, or at `FULFIL_S`.
"""

from dataclasses import replace

from hostelry.autoscaler import activity_texts
from hostelry.autoscaler.activities import UNDER_WAY, ActivityBook
from hostelry.autoscaler.capacity import Capacities, Resource
from hostelry.autoscaler.loads import LOOK_BACK_S, LoadReader, added_up, answered
from hostelry.autoscaler.scaling_executor import ScalingExecutor
from hostelry.domain.scaling import ActivityStatus, Receipt, ScalingActivity

FULFIL_S = 1800.0
ANSWER_S = 600.0  # for so long the first answer of new capacity is waited for after its act


class ActivityTracker:
    """Watches the acts that have not ended, or whose receipts are not whole; one thread calls it.

    Durations are of a clock that never jumps, from when this process first saw an act.
    """

    def __init__(
        self, book: ActivityBook, capacities: Capacities, loads: LoadReader, acts: ScalingExecutor
    ) -> None:
        self._book = book
        self._capacities = capacities
        self._loads = loads
        self._executor = acts
        self._seen_at: dict[str, float] = {}

    def look(self, activity: ScalingActivity, now: float, steady_now: float) -> None:
        """Write what has become of one act."""
        since = self._seen_at.setdefault(activity.id, steady_now)
        found = self._capacities.find(activity.scope, activity.resource_id, activity.dimension)
        if activity.status is ActivityStatus.IN_PROGRESS:
            activity = self._ended(activity, found, now, steady_now - since >= FULFIL_S)
        if found is not None and activity.receipt is not None:
            self._complete(activity, activity.receipt, found)

    def is_open(self, activity: ScalingActivity, now: float, steady_now: float) -> bool:
        """Whether there is still something to look for."""
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

    def _ended(
        self, activity: ScalingActivity, found: Resource | None, now: float, is_late: bool
    ) -> ScalingActivity:
        wanted, dimension = activity.to_capacity, activity.dimension
        if found is None or found.is_ending:
            why = "it does not exist any more" if found is None else f"it is {found.status}"
            text = activity_texts.failed(dimension, wanted, why)
            return self._end(activity, ActivityStatus.FAILED, text, now)
        if found.desired != wanted:
            self._executor.override(activity, f"another number, {found.desired}", now)
            return replace(activity, status=ActivityStatus.OVERRIDDEN)
        if found.is_settled and (found.problem is None or found.serving >= wanted):
            text = activity_texts.fulfilled(dimension, wanted)
            return self._end(activity, ActivityStatus.SUCCESSFUL, text, now)
        if found.is_settled or is_late:
            text = activity_texts.unfulfilled(dimension, wanted, found.serving, found.problem)
            return self._end(activity, ActivityStatus.UNFULFILLED, text, now)
        return activity

    def _end(
        self, activity: ScalingActivity, status: ActivityStatus, text: str, now: float
    ) -> ScalingActivity:
        return self._book.change(activity, status=status, status_message=text, ended_at=now)

    def _complete(self, activity: ScalingActivity, receipt: Receipt, found: Resource) -> None:
        """Add the first answer of a new copy, once there was one, and what requests met so far."""
        if activity.to_capacity <= activity.from_capacity or receipt.answered_at is not None:
            return
        begun = receipt.decided_at if receipt.load_rose_at is None else receipt.load_rose_at
        since = max(begun, receipt.decided_at - LOOK_BACK_S)
        seconds = added_up(self._loads, found.keys, since)
        seen = answered(seconds, receipt.copies_before, since, receipt.decided_at)
        if seen.at is None and activity.status in UNDER_WAY:
            return
        after = replace(
            receipt,
            answered_at=seen.at,
            num_delayed=max(seen.num_delayed, receipt.num_delayed),
            num_failed=max(seen.num_failed, receipt.num_failed),
        )
        if seen.at is not None or activity.receipt == receipt:
            self._book.change(activity, receipt=after)
