"""A metric alarm's state from the datapoints of its evaluation range.

More periods are looked at than an alarm evaluates, so that a late or missing one does not matter at
once. Source: Amazon CloudWatch User Guide, "How alarm state is evaluated when data is missing" and
"Avoiding premature transitions to alarm state".

Of the last N real datapoints (EvaluationPeriods), M (DatapointsToAlarm) have to breach; missing
ones are filled, by TreatMissingData, only where the real ones do not decide:

| real datapoints | missing | state |
| --- | --- | --- |
| M or more breach | any | ALARM |
| with missing ones as breaching: M or more breach | breaching | ALARM |
| fewer breach, none is missing | | OK |
| fewer breach | breaching, notBreaching | OK |
| fewer breach, one or more do not | missing, ignore | OK |
| all breach, or none | ignore | kept |
| all breach, the oldest M periods ago or more | missing | ALARM |
| all breach, younger; or none | missing | INSUFFICIENT_DATA |

A percentile of too few samples keeps the state, where the rule ignores low sample counts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hostelry.domain.alarm import AlarmRule, AlarmState, AlarmStatus, Comparison, MissingData
from hostelry.domain.metric import Datapoint
from hostelry.scaling.decide.alarm_reasons import Evidence, reason, reason_data

SPARE_PERIODS = 2  # AWS: 5 datapoints are retrieved for an alarm that evaluates 3
FEW_SAMPLES = 10

BREACHES: Mapping[Comparison, Callable[[float, float], bool]] = {
    Comparison.GREATER_OR_EQUAL: lambda value, threshold: value >= threshold,
    Comparison.GREATER: lambda value, threshold: value > threshold,
    Comparison.LESS: lambda value, threshold: value < threshold,
    Comparison.LESS_OR_EQUAL: lambda value, threshold: value <= threshold,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmVerdict:
    """The state an alarm should have, and why; the words are made when they are asked for.

    `values` are the real datapoints that were evaluated, oldest first. `is_settled` is False when
    data flows but the newest period has none yet: it may come a moment later. `start` is that of
    the evaluation range, `at` when it was looked at.
    """

    rule: AlarmRule
    state: AlarmState
    evidence: Evidence
    values: tuple[Datapoint, ...]
    is_settled: bool
    start: float
    at: float

    @property
    def reason(self) -> str:
        """StateReason."""
        return reason(self.rule, self.state, self.evidence)

    @property
    def reason_data(self) -> str:
        """StateReasonData."""
        return reason_data(self.rule, self.evidence, self.start, self.at)


def evaluation_range(rule: AlarmRule, now: float) -> tuple[float, float]:
    """Start and end of the periods that are looked at: whole ones, the newest over by `now`."""
    end = math.floor(now / rule.period_s) * rule.period_s
    return end - (rule.evaluation_periods + SPARE_PERIODS) * rule.period_s, end


def evaluate(
    rule: AlarmRule,
    datapoints: Sequence[Datapoint],
    status: AlarmStatus,
    now: float,
    num_samples: float | None = None,
) -> AlarmVerdict:
    """The verdict on `datapoints`; values that are no finite numbers count as missing.

    `num_samples` is how many samples the evaluated periods hold; only rules that ignore
    percentiles of few samples need it.
    """
    start, end = evaluation_range(rule, now)
    real = _real(datapoints, start, end)
    evaluated = real[: rule.evaluation_periods]
    evidence = _evidence(rule, evaluated)
    state = _state(rule, evidence, status.state, end)
    if _has_few_samples(rule, num_samples):
        state = status.state
    return AlarmVerdict(
        rule=rule,
        state=state,
        evidence=evidence,
        values=tuple(reversed(evaluated)),
        is_settled=not real or real[0].at >= end - rule.period_s,
        start=start,
        at=now,
    )


def fewest_samples(statistic: str) -> float:
    """How many samples a percentile needs to mean something; 0 for every other statistic.

    Source: CloudWatch User Guide, "Percentile-based alarms and low data samples".
    """
    try:
        share = float(statistic[1:]) / 100 if statistic.startswith("p") else 0.0
    except ValueError:
        return 0.0
    if not 0 < share < 1:
        return 0.0
    return FEW_SAMPLES / (1 - share) if share >= 0.5 else FEW_SAMPLES / share


def _real(datapoints: Sequence[Datapoint], start: float, end: float) -> list[Datapoint]:
    """Datapoints of the range with a value, newest first."""
    found = [it for it in datapoints if start <= it.at < end and math.isfinite(it.value)]
    return sorted(found, key=lambda it: it.at, reverse=True)


def _evidence(rule: AlarmRule, evaluated: Sequence[Datapoint]) -> Evidence:
    breaches = BREACHES[rule.comparison]
    return Evidence(
        evaluated=tuple(evaluated),
        breaching=tuple(it for it in evaluated if breaches(it.value, rule.threshold)),
        num_filled=rule.evaluation_periods - len(evaluated),
    )


def _state(rule: AlarmRule, evidence: Evidence, now_in: AlarmState, end: float) -> AlarmState:
    """The state by the table at the top of the module."""
    num_breaching = len(evidence.breaching)
    if rule.missing is MissingData.BREACHING:
        num_breaching += evidence.num_filled
    if num_breaching >= rule.datapoints_to_alarm:
        return AlarmState.ALARM
    if evidence.num_filled == 0 or rule.missing in (
        MissingData.BREACHING,
        MissingData.NOT_BREACHING,
    ):
        return AlarmState.OK
    if len(evidence.evaluated) > len(evidence.breaching):
        return AlarmState.OK
    if rule.missing is MissingData.IGNORE:
        return now_in
    return AlarmState.ALARM if _is_old_enough(rule, evidence, end) else AlarmState.INSUFFICIENT_DATA


def _is_old_enough(rule: AlarmRule, evidence: Evidence, end: float) -> bool:
    """Whether the oldest of datapoints that all breach is so old that M could have breached."""
    if not evidence.breaching:
        return False
    age = (end - evidence.breaching[-1].at) / rule.period_s
    return age >= rule.datapoints_to_alarm


def _has_few_samples(rule: AlarmRule, num_samples: float | None) -> bool:
    if not rule.ignores_few_samples or rule.stat is None or num_samples is None:
        return False
    return num_samples < fewest_samples(rule.stat.statistic)
