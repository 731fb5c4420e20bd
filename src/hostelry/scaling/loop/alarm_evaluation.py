"""Evaluation of one metric alarm on the metric store, and of composite alarms."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from hostelry.base.errors import ServiceError
from hostelry.domain.alarm import AlarmRule, AlarmState, AlarmStatus, CompositeAlarm, MetricAlarm
from hostelry.domain.metric import Datapoint, MetricStat
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricReader
from hostelry.metrics.query import queries
from hostelry.scaling.decide.alarm import (
    AlarmVerdict,
    encode_compact,
    evaluate,
    format_instant,
    get_evaluation_range,
    get_fewest_samples,
)
from hostelry.scaling.decide.alarm_events import Alarm, move_status
from hostelry.scaling.decide.composite import RuleError, is_true, list_children, parse


def evaluate_alarm(metrics: MetricReader, alarm: MetricAlarm, now: float) -> AlarmVerdict:
    """Evaluate an alarm. An expression that cannot be computed gives no datapoints."""
    start, end = get_evaluation_range(alarm.rule, now)
    points = read_datapoints(metrics, alarm.scope, alarm.rule, start, end)
    num_samples = _count_samples(metrics, alarm, end)
    return evaluate(alarm.rule, points, alarm.status, now, num_samples)


def read_datapoints(
    metrics: MetricReader, scope: Scope, rule: AlarmRule, start: float, end: float
) -> Sequence[Datapoint]:
    """The values that a rule compares, of periods that begin in [start, end)."""
    if rule.stat is not None:
        return metrics.datapoints(scope, rule.stat, start, end)
    watched = next(it.id for it in rule.queries if it.return_data)
    try:
        found = queries.evaluate(metrics, scope, rule.queries, start, end)[watched]
    except ServiceError:
        return ()
    return found[0].points if found else ()


def get_forced_values(status: AlarmStatus) -> tuple[Datapoint, ...]:
    """The datapoints that StateReasonData of SetAlarmState names for scaling policies."""
    try:
        given = json.loads(status.reason_data or "{}")["recentDatapoints"]
        values = [float(it) for it in given]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
    at = status.transitioned_at
    return tuple(Datapoint(at, it) for it in values if math.isfinite(it))


def _count_samples(metrics: MetricReader, alarm: MetricAlarm, end: float) -> float | None:
    rule = alarm.rule
    if not rule.ignores_few_samples or rule.stat is None:
        return None
    if not get_fewest_samples(rule.stat.statistic):
        return None
    count = MetricStat(
        metric=rule.stat.metric,
        period_s=rule.period_s,
        statistic="SampleCount",
        unit=rule.stat.unit,
    )
    start = end - rule.evaluation_periods * rule.period_s
    return sum(it.value for it in metrics.datapoints(alarm.scope, count, start, end))


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

    def evaluate(
        self, alarm: CompositeAlarm, statuses: Statuses, arns: Mapping[Place, str], now: float
    ) -> CompositeAlarm | None:
        """The alarm in its new state. None if it stays in its state."""
        try:
            rule = parse(alarm.expression)
        except RuleError:  # written by a version that could read it
            return None
        places = [(alarm.scope, it) for it in list_children(rule)]
        seen = (alarm.expression, tuple(_get_shown_state(statuses.get(it)) for it in places))
        place = (alarm.scope, alarm.name)
        if self._seen.get(place) == seen:
            return None
        self._seen[place] = seen
        known = {it[1]: statuses[it] for it in places if it in statuses}
        holds = is_true(rule, {name: it.state for name, it in known.items()})
        state = AlarmState.ALARM if holds else AlarmState.OK
        if state is alarm.status.state:
            return None
        newest = list_newest(known)
        children_now = [(arns[alarm.scope, name], known[name]) for name in newest]
        status = move_status(
            alarm.status,
            state,
            _build_reason(alarm, state, children_now),
            _build_data(children_now),
            now,
        )
        return replace(alarm, status=status)

    def forget(self, alarm: CompositeAlarm) -> None:
        """Evaluate this one again at the next look."""
        self._seen.pop((alarm.scope, alarm.name), None)

    def keep(self, alarms: Iterable[CompositeAlarm]) -> None:
        """Forget every other alarm."""
        names = {(it.scope, it.name) for it in alarms}
        self._seen = {place: it for place, it in self._seen.items() if place in names}


def get_statuses(alarms: Iterable[Alarm]) -> dict[Place, AlarmStatus]:
    """The status of each alarm."""
    return {(it.scope, it.name): it.status for it in alarms}


def get_arns(alarms: Iterable[Alarm]) -> dict[Place, str]:
    """The ARN of each alarm."""
    return {(it.scope, it.name): it.arn for it in alarms}


def list_newest(known: Mapping[str, AlarmStatus]) -> list[str]:
    """Names of children, most recent change first."""
    return sorted(known, key=lambda it: (-known[it].transitioned_at, it))[:MAX_TRIGGERS]


def _get_shown_state(status: AlarmStatus | None) -> tuple[AlarmState, float] | None:
    return None if status is None else (status.state, status.transitioned_at)


def _build_reason(
    alarm: CompositeAlarm, state: AlarmState, children_now: Sequence[tuple[str, AlarmStatus]]
) -> str:
    if not children_now:
        return f"The rule {alarm.expression[:200]} gives {state.value}."
    arn, status = children_now[0]
    return (
        f"{arn} transitioned to {status.state.value} at"
        f" {format_instant(status.transitioned_at).replace('+0000', 'Z')}"
    )


def _build_data(children_now: Sequence[tuple[str, AlarmStatus]]) -> str | None:
    if not children_now:
        return None
    triggers = [
        {
            "arn": arn,
            "state": {
                "value": status.state.value,
                "timestamp": format_instant(status.transitioned_at),
            },
        }
        for arn, status in children_now
    ]
    while len(encode_compact({"triggeringAlarms": triggers})) > 4000:
        triggers.pop()
    return encode_compact({"triggeringAlarms": triggers})
