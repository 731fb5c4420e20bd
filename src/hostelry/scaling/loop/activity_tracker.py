"""Acts of scaling after they are begun: until the resource is as desired, and first answers.

| resource of an act in progress | end |
| --- | --- |
| missing, or ending | Failed |
| its number is another by now | Overridden |
| settled, and as much serves as desired, or nothing is wrong | Successful |
| settled otherwise, or after `FULFIL_S` | Unfulfilled |
"""

from dataclasses import replace

from hostelry.domain.scaling import ActivityStatus, Receipt, ScalingActivity
from hostelry.scaling.decide import activity_texts
from hostelry.scaling.decide.cooldown import UNDER_WAY
from hostelry.scaling.decide.decision import Resource
from hostelry.scaling.decide.load_signals import LOOK_BACK_S, first_answer
from hostelry.scaling.loop.activities import ActivityBook
from hostelry.scaling.loop.capacity import Capacities
from hostelry.scaling.loop.loads import LoadReader, added_up
from hostelry.scaling.loop.scaling_executor import ScalingExecutor

FULFIL_S = 1800.0
ANSWER_S = 600.0  # for so long the first answer of new capacity is waited for after its act


class ActivityTracker:
    """Acts that have not ended, or whose receipts are incomplete; one thread calls it.

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
        """Write the progress of one act."""
        since = self._seen_at.setdefault(activity.id, steady_now)
        found = self._capacities.find(activity.scope, activity.resource_id, activity.dimension)
        if activity.status is ActivityStatus.IN_PROGRESS:
            activity = self._build_end(activity, found, now, steady_now - since >= FULFIL_S)
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

    def _build_end(
        self, activity: ScalingActivity, found: Resource | None, now: float, is_late: bool
    ) -> ScalingActivity:
        desired, dimension = activity.to_capacity, activity.dimension
        if found is None or found.is_ending:
            why = "it does not exist any more" if found is None else f"it is {found.status}"
            text = activity_texts.say_failed(dimension, desired, why)
            return self._end(activity, ActivityStatus.FAILED, text, now)
        if found.desired != desired:
            self._executor.override(activity, f"another number, {found.desired}", now)
            return replace(activity, status=ActivityStatus.OVERRIDDEN)
        if found.is_settled and (found.problem is None or found.serving >= desired):
            text = activity_texts.say_fulfilled(dimension, desired)
            return self._end(activity, ActivityStatus.SUCCESSFUL, text, now)
        if found.is_settled or is_late:
            text = activity_texts.say_unfulfilled(dimension, desired, found.serving, found.problem)
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
        seconds = added_up(self._loads, found.keys, since)
        seen = first_answer(seconds, receipt.copies_before, since, receipt.decided_at)
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
