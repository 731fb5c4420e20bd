"""Evaluation of one metric alarm on the metric store."""

import json
import math
from collections.abc import Sequence

from hostelry.base.errors import ServiceError
from hostelry.domain.alarm import AlarmRule, AlarmStatus, MetricAlarm
from hostelry.domain.metric import Datapoint, MetricStat
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricReader
from hostelry.metrics.query import queries
from hostelry.scaling.decide.alarm import AlarmVerdict, evaluate, evaluation_range, fewest_samples


def look_at(metrics: MetricReader, alarm: MetricAlarm, now: float) -> AlarmVerdict:
    """The verdict on an alarm; an expression that cannot be computed gives no datapoints."""
    start, end = evaluation_range(alarm.rule, now)
    points = datapoints(metrics, alarm.scope, alarm.rule, start, end)
    num_samples = _num_samples(metrics, alarm, end)
    return evaluate(alarm.rule, points, alarm.status, now, num_samples)


def datapoints(
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


def forced_values(status: AlarmStatus) -> tuple[Datapoint, ...]:
    """The datapoints that StateReasonData of SetAlarmState names for scaling policies."""
    try:
        given = json.loads(status.reason_data or "{}")["recentDatapoints"]
        values = [float(it) for it in given]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
    at = status.transitioned_at
    return tuple(Datapoint(at, it) for it in values if math.isfinite(it))


def _num_samples(metrics: MetricReader, alarm: MetricAlarm, end: float) -> float | None:
    rule = alarm.rule
    if not rule.ignores_few_samples or rule.stat is None:
        return None
    if not fewest_samples(rule.stat.statistic):
        return None
    count = MetricStat(
        metric=rule.stat.metric,
        period_s=rule.period_s,
        statistic="SampleCount",
        unit=rule.stat.unit,
    )
    start = end - rule.evaluation_periods * rule.period_s
    return sum(it.value for it in metrics.datapoints(alarm.scope, count, start, end))
