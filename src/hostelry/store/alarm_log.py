"""Histories of alarms as records."""

import contextlib
from collections.abc import Iterator, Sequence

from hostelry.base.errors import Conflict
from hostelry.base.json import decode
from hostelry.domain.alarm import AlarmHistory, AlarmHistoryItem
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.alarm_events import KEPT_S, select_kept_items
from hostelry.store.records import State

ATTEMPTS = 20
MAX_ORPHANS = 1000  # kept histories of deleted alarms


def append_history(state: State, scope: Scope, items: Sequence[AlarmHistoryItem]) -> None:
    """Add `items` of an alarm, newest first, to its history, and drop old or excess items.

    Raises Conflict if another writer interfered with every attempt.
    """
    name, now = items[0].alarm_name, items[0].at
    for _ in range(ATTEMPTS - 1):
        try:
            _put(state, scope, name, items, now)
        except Conflict:
            continue
        return
    _put(state, scope, name, items, now)


def histories(state: State, scope: Scope | None = None) -> Iterator[tuple[AlarmHistory, int]]:
    """Every history (in `scope`, or in all) with its version. Too large to be mirrored."""
    for record in state.store.list(state.alarm_histories.kind, scope):
        yield decode(record.body, AlarmHistory), record.version


def forget_histories(state: State, now: float) -> None:
    """Remove histories of deleted alarms that are too old or beyond the newest 1,000."""
    living = {(it.value.scope, it.value.name) for it in state.metric_alarms.list()}
    living |= {(it.value.scope, it.value.name) for it in state.composite_alarms.list()}
    orphans = [it for it in histories(state) if (it[0].scope, it[0].alarm_name) not in living]
    orphans.sort(key=lambda it: _newest(it[0]), reverse=True)
    kept = [it for it in orphans[:MAX_ORPHANS] if _newest(it[0]) > now - KEPT_S]
    for history, version in orphans[len(kept) :]:
        with contextlib.suppress(Conflict):  # an alarm of that name has just been created
            state.alarm_histories.delete(history.scope, history.alarm_name, expect=version)


def _newest(history: AlarmHistory) -> float:
    return max((it.at for it in history.items), default=0.0)


def _put(
    state: State, scope: Scope, name: str, items: Sequence[AlarmHistoryItem], now: float
) -> None:
    found = state.alarm_histories.get(scope, name)
    before = found.value.items if found else ()
    history = AlarmHistory(
        scope=scope, alarm_name=name, items=select_kept_items((*items, *before), now)
    )
    state.alarm_histories.put(scope, name, history, expect=found.version if found else None)
