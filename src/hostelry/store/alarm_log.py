"""The histories of alarms, as records."""

from collections.abc import Sequence

from hostelry.autoscaling.alarm_events import kept_items
from hostelry.base.errors import Conflict
from hostelry.domain.alarm import AlarmHistory, AlarmHistoryItem
from hostelry.domain.scope import Scope
from hostelry.store.records import State

ATTEMPTS = 20


def append_history(state: State, scope: Scope, items: Sequence[AlarmHistoryItem]) -> None:
    """Put `items` of one alarm, newest first, before its history; what is too old or much goes.

    Raises Conflict where others wrote it again and again.
    """
    name, now = items[0].alarm_name, items[0].at
    for _ in range(ATTEMPTS - 1):
        try:
            _put(state, scope, name, items, now)
        except Conflict:
            continue
        return
    _put(state, scope, name, items, now)


def _put(
    state: State, scope: Scope, name: str, items: Sequence[AlarmHistoryItem], now: float
) -> None:
    found = state.alarm_histories.get(scope, name)
    before = found.value.items if found else ()
    history = AlarmHistory(scope=scope, alarm_name=name, items=kept_items((*items, *before), now))
    state.alarm_histories.put(scope, name, history, expect=found.version if found else None)
