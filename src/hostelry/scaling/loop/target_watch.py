"""Changes in the store that scaling depends on: bounds of targets, schedules."""

from collections.abc import Callable

from hostelry.scaling.loop.scaler import TargetScaler
from hostelry.store.errors import RevisionTooOld
from hostelry.store.records import State


class TargetWatch:
    """Follows a store from where it stands now; `rescheduled` is called when a schedule changed."""

    def __init__(self, state: State, scaler: TargetScaler, rescheduled: Callable[[], None]) -> None:
        self._state = state
        self._scaler = scaler
        self._rescheduled = rescheduled
        self._followed = state.store.revision()

    def follow(self, wait_s: float) -> None:
        """Handle what changed since the last call, or changes within `wait_s`."""
        store, since = self._state.store, self._followed
        if not store.wait(since, wait_s):
            return
        try:
            changes = store.changes(since)
        except RevisionTooOld:
            newest = store.revision()
            self._rescheduled()
            self._scaler.settle_all()
            self._followed = newest
            return
        targets = self._state.scalable_targets.kind
        scheduled = (self._state.scheduled_actions.kind, self._state.event_schedules.kind)
        for change in changes:
            if change.key.kind == targets and change.record is not None:
                self._scaler.settle(change.key.scope, change.key.name)
            elif change.key.kind in scheduled:
                self._rescheduled()
        self._followed = max([since, *(it.revision for it in changes)])
