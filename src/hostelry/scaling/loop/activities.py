"""Records of scaling activities: written before each act, changed until it has ended.

The one writer of these records. At most `MAX_KEPT` of a target are kept, none over six weeks old.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.domain.scaling import (
    Dimension,
    Receipt,
    ScalingActivity,
    target_name,
)
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.decision import UNDER_WAY
from hostelry.store.records import State, Versioned

MAX_KEPT = 200
KEPT_S = 6 * 7 * 24 * 3600.0

Place = tuple[Scope, str]


class ActivityBook:
    """The activities of every target, newest first, in the store and in memory. Thread-safe.

    A write is durable on return. Raises RetryableError when the store cannot take it.
    """

    def __init__(self, state: State) -> None:
        self._records = state.scaling_activities
        self._lock = threading.Lock()
        self._by_place: dict[Place, list[Versioned[ScalingActivity]]] = {}
        self._open: dict[str, Place] = {}
        for stored in sorted(self._records.list(), key=lambda it: -it.value.started_at):
            self._by_place.setdefault(get_place(stored.value), []).append(stored)
            self._open[stored.value.id] = get_place(stored.value)

    def of(self, scope: Scope, resource_id: str, dimension: Dimension) -> list[ScalingActivity]:
        """A target's activities, newest first."""
        with self._lock:
            place = (scope, target_name(resource_id, dimension))
            return [it.value for it in self._by_place.get(place, ())]

    def every(self) -> list[ScalingActivity]:
        """All activities that are kept."""
        with self._lock:
            return [it.value for mine in self._by_place.values() for it in mine]

    def present(self, activity: ScalingActivity) -> ScalingActivity:
        """The activity as it is written now."""
        with self._lock:
            mine = self._by_place.get(get_place(activity), ())
            return next((it.value for it in mine if it.value.id == activity.id), activity)

    def open_ones(self) -> list[ScalingActivity]:
        """Activities that may still change."""
        with self._lock:
            places = dict.fromkeys(self._open.values())
            stored = [it for place in places for it in self._by_place.get(place, ())]
            return [it.value for it in stored if it.value.id in self._open]

    def close_those(self, is_closed: Callable[[ScalingActivity], bool]) -> None:
        """Take the activities that `is_closed` accepts from the open ones."""
        for activity in self.open_ones():
            if is_closed(activity):
                with self._lock:
                    self._open.pop(activity.id, None)

    def write(self, activity: ScalingActivity, now: float) -> ScalingActivity:
        """Add the activity, and remove activities of its target that are too old or too many."""
        with self._lock:
            stored = self._records.put(activity.scope, activity.id, activity, expect=None)
            mine = self._by_place.setdefault(get_place(activity), [])
            mine.insert(0, stored)
            self._open[activity.id] = get_place(activity)
            for old in list(_list_excess(mine, now)):
                self._records.delete(old.value.scope, old.value.id, expect=old.version)
                self._open.pop(old.value.id, None)
                mine.remove(old)
        return activity

    def change(self, activity: ScalingActivity, **changes: Any) -> ScalingActivity:
        """Write an activity with other fields, and return the written one.

        An activity that was removed since, being too old, is left alone.
        """
        with self._lock:
            mine = self._by_place[get_place(activity)]
            found = [number for number, it in enumerate(mine) if it.value.id == activity.id]
            if not found:
                return activity
            (number,) = found
            known = mine[number]
            after = add_details(replace(known.value, **changes))
            if after == known.value:
                return after
            mine[number] = self._records.put(
                activity.scope, activity.id, after, expect=known.version
            )
        return after


def get_place(activity: ScalingActivity) -> Place:
    """The target of an activity."""
    return activity.scope, target_name(activity.resource_id, activity.dimension)


def _list_excess(
    mine: list[Versioned[ScalingActivity]], now: float
) -> Iterator[Versioned[ScalingActivity]]:
    for number, stored in enumerate(mine):
        ended = stored.value.status not in UNDER_WAY
        if ended and (number >= MAX_KEPT or stored.value.started_at < now - KEPT_S):
            yield stored


def add_details(activity: ScalingActivity) -> ScalingActivity:
    """The activity with its Details, as DescribeScalingActivities has them: the receipt as JSON."""
    if activity.receipt is None:
        return activity
    return replace(activity, details=encode_details(activity.receipt))


def encode_details(receipt: Receipt) -> str:
    """Encode a receipt as JSON, with the durations between its instants."""
    shown: dict[str, Any] = {
        "t0": receipt.load_rose_at,
        "t1": receipt.decided_at,
        "t2": receipt.answered_at,
        "detection_s": _get_duration(receipt.load_rose_at, receipt.decided_at),
        "start_s": _get_duration(receipt.decided_at, receipt.answered_at),
        "requests_delayed": receipt.num_delayed,
        "requests_failed": receipt.num_failed,
        "signal": dict(receipt.signal),
    }
    return msgspec.json.encode(shown, order="sorted").decode()


def _get_duration(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else round(end - start, 3)
