"""Evaluation of composite alarms, whenever an alarm of their rules has changed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hostelry.domain.alarm import AlarmState, AlarmStatus, CompositeAlarm
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.alarm_events import Alarm, moved
from hostelry.scaling.decide.alarm_reasons import dense, long_instant
from hostelry.scaling.decide.composite import RuleError, children, holds, parse

MAX_TRIGGERS = 20  # children that reason data names

Place = tuple[Scope, str]
Statuses = Mapping[Place, AlarmStatus]
Seen = tuple[str, tuple[tuple[AlarmState, float] | None, ...]]


class Composites:
    """The states of children that each composite alarm was evaluated on last.

    | rule or a child since the last evaluation | state |
    | --- | --- |
    | unchanged | kept, also one set by SetAlarmState |
    | changed, the rule holds | ALARM |
    | changed, it does not | OK |
    """

    def __init__(self) -> None:
        self._seen: dict[Place, Seen] = {}

    def changed(
        self, alarm: CompositeAlarm, statuses: Statuses, arns: Mapping[Place, str], now: float
    ) -> CompositeAlarm | None:
        """The alarm in its new state; None where it stays in the one it has."""
        try:
            rule = parse(alarm.expression)
        except RuleError:  # written by a version that could read it
            return None
        places = [(alarm.scope, it) for it in children(rule)]
        seen = (alarm.expression, tuple(_shown(statuses.get(it)) for it in places))
        place = (alarm.scope, alarm.name)
        if self._seen.get(place) == seen:
            return None
        self._seen[place] = seen
        known = {it[1]: statuses[it] for it in places if it in statuses}
        is_true = holds(rule, {name: it.state for name, it in known.items()})
        state = AlarmState.ALARM if is_true else AlarmState.OK
        if state is alarm.status.state:
            return None
        newest = newest_of(known)
        children_now = [(arns[alarm.scope, name], known[name]) for name in newest]
        status = moved(
            alarm.status, state, _reason(alarm, state, children_now), _data(children_now), now
        )
        return replace(alarm, status=status)

    def forget(self, alarm: CompositeAlarm) -> None:
        """Evaluate this one again at the next look."""
        self._seen.pop((alarm.scope, alarm.name), None)

    def keep(self, alarms: Iterable[CompositeAlarm]) -> None:
        """Forget every other alarm."""
        names = {(it.scope, it.name) for it in alarms}
        self._seen = {place: it for place, it in self._seen.items() if place in names}


def statuses_of(alarms: Iterable[Alarm]) -> dict[Place, AlarmStatus]:
    """The status of each alarm."""
    return {(it.scope, it.name): it.status for it in alarms}


def arns_of(alarms: Iterable[Alarm]) -> dict[Place, str]:
    """The ARN of each alarm."""
    return {(it.scope, it.name): it.arn for it in alarms}


def newest_of(known: Mapping[str, AlarmStatus]) -> list[str]:
    """Names of children, most recent change first."""
    return sorted(known, key=lambda it: (-known[it].transitioned_at, it))[:MAX_TRIGGERS]


def _shown(status: AlarmStatus | None) -> tuple[AlarmState, float] | None:
    return None if status is None else (status.state, status.transitioned_at)


def _reason(
    alarm: CompositeAlarm, state: AlarmState, children_now: Sequence[tuple[str, AlarmStatus]]
) -> str:
    if not children_now:
        return f"The rule {alarm.expression[:200]} gives {state.value}."
    arn, status = children_now[0]
    return (
        f"{arn} transitioned to {status.state.value} at"
        f" {long_instant(status.transitioned_at).replace('+0000', 'Z')}"
    )


def _data(children_now: Sequence[tuple[str, AlarmStatus]]) -> str | None:
    if not children_now:
        return None
    triggers = [
        {
            "arn": arn,
            "state": {
                "value": status.state.value,
                "timestamp": long_instant(status.transitioned_at),
            },
        }
        for arn, status in children_now
    ]
    while len(dense({"triggeringAlarms": triggers})) > 4000:
        triggers.pop()
    return dense({"triggeringAlarms": triggers})
