"""Scheduled actions, and changes in the store that scaling depends on."""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.base.errors import Conflict
from hostelry.domain.scaling import ScalableTarget, ScheduledAction, policy_key, target_name
from hostelry.scaling.decide.schedule import (
    Once,
    find_due_firing,
    find_next_due,
    parse_schedule,
    replace_bounds,
)
from hostelry.scaling.loop.scaler import TargetScaler
from hostelry.store.protocol import RevisionTooOld
from hostelry.store.records import State, Versioned

LOG = logging.getLogger(__name__)


class TargetWatch:
    """Follows a store from its present state. Calls `rescheduled` when a schedule changed."""

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


# Scheduled actions: new bounds for a target, at times that `scaling.decide.schedule` computes.
#
# The bounds are written before the action's `fired_at`: a kill between the two fires once more,
# which sets the same bounds again.


LONGEST_S = 60.0  # a clock that is set forward is noticed by then

OnFired = Callable[[ScalableTarget, str], None]


class ScheduleWatch:
    """Every scheduled action of a store. `on_fired` gets a target with new bounds, and the name.

    One thread calls `fire`, as often as `next_at` says or more.
    """

    def __init__(self, state: State, clock: Clock, on_fired: OnFired) -> None:
        self._state = state
        self._clock = clock
        self._on_fired = on_fired
        self._broken: set[str] = set()

    def fire(self) -> None:
        """Fire due actions. Of missed firings only the newest."""
        now = self._clock.now()
        for stored in self._state.scheduled_actions.list():
            at = self._due(stored.value, now)
            if at is not None:
                self._fire(stored, at)

    def next_at(self) -> float:
        """When to look again, at the latest."""
        now = self._clock.now()
        found = [now + LONGEST_S]
        for stored in self._state.scheduled_actions.list():
            if stored.value.arn not in self._broken:
                # It may have come due since the last look.
                is_due = find_due_firing(stored.value, now) is not None
                following = now if is_due else find_next_due(stored.value, now)
                found += [] if following is None else [following]
        return min(found)

    def _due(self, action: ScheduledAction, now: float) -> float | None:
        try:
            return find_due_firing(action, now)
        except ValueError as error:
            if action.arn not in self._broken:
                self._broken.add(action.arn)
                LOG.warning("scheduled action %s cannot be read: %s", action.name, error)
            return None

    def _fire(self, stored: Versioned[ScheduledAction], at: float) -> None:
        action = stored.value
        try:
            target = self._set_bounds(action)
            self._settle(stored, at)
        except Conflict:
            return  # a client wrote it meanwhile: the next look finds the new schedule
        if target is not None:
            LOG.info("scheduled action %s fired for %s", action.name, action.resource_id)
            self._on_fired(target, action.name)

    def _set_bounds(self, action: ScheduledAction) -> ScalableTarget | None:
        """The target with the action's bounds. None if invalid or not registered."""
        name = target_name(action.resource_id, action.dimension)
        stored = self._state.scalable_targets.get(action.scope, name)
        if stored is None or stored.value.suspended.scheduled:
            return None
        target = replace_bounds(stored.value, action)
        if target != stored.value:
            self._state.scalable_targets.put(action.scope, name, target, expect=stored.version)
        return target

    def _settle(self, stored: Versioned[ScheduledAction], at: float) -> None:
        """Note that the action has fired. An action that fires only once is removed."""
        action = stored.value
        name = policy_key(action.resource_id, action.dimension, action.name)
        records = self._state.scheduled_actions
        if isinstance(parse_schedule(action.schedule), Once):
            records.delete(action.scope, name, expect=stored.version)
        else:
            records.put(action.scope, name, replace(action, fired_at=at), expect=stored.version)
