"""A metric alarm: its state from datapoints, the reason in CloudWatch's words, its times."""

import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import msgspec

from hostelry.domain.alarm import AlarmRule, AlarmState, AlarmStatus, Comparison, MissingData
from hostelry.domain.metric import Datapoint

# Reasons for an alarm's state, in CloudWatch's words and in its JSON.
#
# Source: StateReason and StateReasonData of DescribeAlarms and DescribeAlarmHistory.


MOST_LISTED = 3  # datapoints that a reason names, the newest ones
MOST_SHOWN = 5
MOST_RECENT = 100  # values in reason data, which may have 4,000 characters
MOST_EVALUATED = 10
MOST_REASON_DATA = 4000

COMPARED: Mapping[Comparison, str] = {
    Comparison.GREATER_OR_EQUAL: "greater than or equal to",
    Comparison.GREATER: "greater than",
    Comparison.LESS: "less than",
    Comparison.LESS_OR_EQUAL: "less than or equal to",
}


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of an evaluation, with datapoints newest first.

    `num_filled` counts the evaluated periods that had to be filled for want of data.
    """

    evaluated: tuple[Datapoint, ...]
    breaching: tuple[Datapoint, ...]
    num_filled: int


def build_reason(rule: AlarmRule, state: AlarmState, evidence: Evidence) -> str:
    """StateReason."""
    if state is AlarmState.INSUFFICIENT_DATA:
        return f"Insufficient Data: {_were(evidence.num_filled, 'datapoint')} unknown."
    decisive = evidence.breaching
    if state is AlarmState.OK:
        decisive = tuple(it for it in evidence.evaluated if it not in evidence.breaching)
    if evidence.num_filled and rule.missing in TREATED:
        return f"Threshold Crossed: {_describe_filled(rule, state, evidence, decisive)}."
    num = len(decisive)
    verb = "was" if num == 1 else "were"
    verdict = f"{verb} {_describe_comparison(rule, state)}"
    what = f"{num} out of the last {len(evidence.evaluated)} datapoints"
    if num <= MOST_LISTED:
        listed, least = _list_datapoints(decisive), _count_least(rule, state)
        return f"Threshold Crossed: {what} {listed} {verdict} {least}."
    newest = _list_datapoints(decisive[:MOST_SHOWN])
    crossed = f"The most recent datapoints which crossed the threshold: {newest}"
    return f"Threshold Crossed: {what} {verdict}. {crossed} {_count_least(rule, state)}."


TREATED: Mapping[MissingData, str] = {
    MissingData.BREACHING: "Breaching",
    MissingData.NOT_BREACHING: "NonBreaching",
}


def build_reason_data(
    rule: AlarmRule, evidence: Evidence, start: float, now: float, limit: int = MOST_REASON_DATA
) -> str:
    """StateReasonData: JSON of at most `limit` characters, with recent datapoints oldest first."""
    oldest_first = evidence.evaluated[:MOST_RECENT][::-1]
    content: dict[str, Any] = {
        "version": "1.0",
        "queryDate": format_instant(now),
        "startDate": format_instant(evidence.evaluated[-1].at if evidence.evaluated else start),
        "statistic": None if rule.stat is None else rule.stat.statistic,
        "unit": None if rule.stat is None else rule.stat.unit,
        "period": rule.period_s,
        "recentDatapoints": [it.value for it in oldest_first],
        "threshold": rule.threshold,
        "evaluatedDatapoints": [
            {"timestamp": format_instant(point.at), "value": point.value}
            for point in evidence.evaluated[:MOST_EVALUATED]
        ],
    }
    text = encode_compact({name: value for name, value in content.items() if value is not None})
    if len(text) <= limit:
        return text
    return build_reason_data(rule, _newest_half(evidence), start, now, limit)


def format_instant(at: float) -> str:
    """An instant as alarm JSON has it: 2026-11-22T08:30:00.000+0000."""
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}+0000"


def encode_compact(content: Any) -> str:
    """JSON without a space to spare."""
    return json.dumps(content, separators=(",", ":"))


def _newest_half(evidence: Evidence) -> Evidence:
    kept = evidence.evaluated[: len(evidence.evaluated) // 2]
    return Evidence(evaluated=kept, breaching=(), num_filled=evidence.num_filled)


def _describe_filled(
    rule: AlarmRule, state: AlarmState, evidence: Evidence, decisive: Sequence[Datapoint]
) -> str:
    num = evidence.num_filled
    treated = f"{_were(num, 'missing datapoint')} treated as [{TREATED[rule.missing]}]"
    if not evidence.evaluated:
        periods = f"{num} period" + ("" if num == 1 else "s")
        return f"no datapoints were received for {periods} and {treated}"
    if not decisive:
        return treated
    real = f"{len(decisive)} datapoint" + ("" if len(decisive) == 1 else "s")
    verb = "was" if len(decisive) == 1 else "were"
    listed = _list_datapoints(decisive[:MOST_SHOWN])
    return f"{real} {listed} {verb} {_describe_comparison(rule, state)} and {treated}"


def _describe_comparison(rule: AlarmRule, state: AlarmState) -> str:
    negation = "" if state is AlarmState.ALARM else "not "
    return f"{negation}{COMPARED[rule.comparison]} the threshold ({rule.threshold!r})"


def _count_least(rule: AlarmRule, state: AlarmState) -> str:
    """How many datapoints the transition takes that led, or leads, to `state`."""
    if state is AlarmState.ALARM:
        num, transition = rule.datapoints_to_alarm, "OK -> ALARM"
    else:
        num = rule.evaluation_periods - rule.datapoints_to_alarm + 1
        transition = "ALARM -> OK"
    plural = "" if num == 1 else "s"
    return f"(minimum {num} datapoint{plural} for {transition} transition)"


def _list_datapoints(datapoints: Sequence[Datapoint]) -> str:
    return "[" + ", ".join(f"{it.value!r} ({_short_instant(it.at)})" for it in datapoints) + "]"


def _short_instant(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%d/%m/%y %H:%M:%S}"


def _were(num: int, noun: str) -> str:
    return f"{num} {noun} was" if num == 1 else f"{num} {noun}s were"


SPARE_PERIODS = 2  # AWS: 5 datapoints are retrieved for an alarm that evaluates 3
FEW_SAMPLES = 10

BREACHES: Mapping[Comparison, Callable[[float, float], bool]] = {
    Comparison.GREATER_OR_EQUAL: lambda value, threshold: value >= threshold,
    Comparison.GREATER: lambda value, threshold: value > threshold,
    Comparison.LESS: lambda value, threshold: value < threshold,
    Comparison.LESS_OR_EQUAL: lambda value, threshold: value <= threshold,
}


class AlarmVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The state an alarm should have, and why. The texts are made when they are asked for.

    `values` are the real datapoints that were evaluated, oldest first. `is_settled` is False when
    data flows but the newest period has no datapoint yet: it may come a moment later. `start` is
    the start of the evaluation range, `at` the time of the evaluation.
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
        return build_reason(self.rule, self.state, self.evidence)

    @property
    def reason_data(self) -> str:
        """StateReasonData."""
        return build_reason_data(self.rule, self.evidence, self.start, self.at)


def get_evaluation_range(rule: AlarmRule, now: float) -> tuple[float, float]:
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
    """Evaluate an alarm on `datapoints`. Values that are not finite numbers count as missing.

    More periods are looked at than an alarm evaluates, so that a late or missing one does not
    matter at once. A percentile of too few samples keeps the state if the rule ignores low sample
    counts. Source: Amazon CloudWatch User Guide, "How alarm state is evaluated when data is
    missing" and "Avoiding premature transitions to alarm state".

    `num_samples` is the number of samples in the evaluated periods. Only rules that ignore
    percentiles of few samples need it.
    """
    start, end = get_evaluation_range(rule, now)
    real = _select_real(datapoints, start, end)
    evaluated = real[: rule.evaluation_periods]
    evidence = _collect_evidence(rule, evaluated)
    state = _decide_state(rule, evidence, status.state, end)
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


def get_fewest_samples(statistic: str) -> float:
    """The number of samples that a percentile needs to mean something. 0 for other statistics.

    Source: CloudWatch User Guide, "Percentile-based alarms and low data samples".
    """
    try:
        share = float(statistic[1:]) / 100 if statistic.startswith("p") else 0.0
    except ValueError:
        return 0.0
    if not 0 < share < 1:
        return 0.0
    return FEW_SAMPLES / (1 - share) if share >= 0.5 else FEW_SAMPLES / share


def _select_real(datapoints: Sequence[Datapoint], start: float, end: float) -> list[Datapoint]:
    """Datapoints of the range with a value, newest first."""
    found = [it for it in datapoints if start <= it.at < end and math.isfinite(it.value)]
    return sorted(found, key=attrgetter("at"), reverse=True)


def _collect_evidence(rule: AlarmRule, evaluated: Sequence[Datapoint]) -> Evidence:
    breaches = BREACHES[rule.comparison]
    return Evidence(
        evaluated=tuple(evaluated),
        breaching=tuple(it for it in evaluated if breaches(it.value, rule.threshold)),
        num_filled=rule.evaluation_periods - len(evaluated),
    )


def _decide_state(
    rule: AlarmRule, evidence: Evidence, now_in: AlarmState, end: float
) -> AlarmState:
    """The state by the last N real datapoints (EvaluationPeriods).

    M of them (DatapointsToAlarm) have to breach. Missing datapoints are filled, by
    TreatMissingData, only if the real ones do not decide:

    | real datapoints | missing | state |
    | --- | --- | --- |
    | M or more breach | any | ALARM |
    | with missing ones as breaching: M or more breach | breaching | ALARM |
    | fewer breach, none is missing | | OK |
    | fewer breach | breaching, notBreaching | OK |
    | fewer breach, one or more do not | missing, ignore | OK |
    | all breach, or none | ignore | kept |
    | all breach, the oldest M periods ago or more | missing | ALARM |
    | all breach, but are younger | missing | INSUFFICIENT_DATA |
    | no datapoint | missing | INSUFFICIENT_DATA |
    """
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
    return num_samples < get_fewest_samples(rule.stat.statistic)


MINUTE_S = 60.0
HIGH_RESOLUTION_S = 10.0
SETTLE_S = 2.0  # from the end of a period until its datapoint is known
LATE_S = 4.0  # from the first look until a late datapoint is known
LOOK_AGAIN_S = 1.0
SPREAD_MS = 8_000  # alarms of a minute are spread over so much of it
MAX_HOLD_S = 900.0
EARLY_S = 1.5  # an action that repeats may be so much before its interval is over


def get_evaluation_interval_s(rule: AlarmRule) -> float:
    """Every 10 s for periods under a minute, else every minute.

    Source: CloudWatch User Guide, "High-resolution alarms".
    """
    return HIGH_RESOLUTION_S if rule.period_s < MINUTE_S else MINUTE_S


def get_repeat_s(rule: AlarmRule) -> float:
    """How long after the last trigger an alarm that is still in ALARM triggers its policies."""
    return get_evaluation_interval_s(rule) - EARLY_S


def get_next_evaluation_at(
    rule: AlarmRule, name: str, now: float, *, is_settled: bool = True
) -> float:
    """When to look at the alarm again, after a look at `now`.

    Where the newest period had no data yet (not `is_settled`) that is soon, for a few seconds.
    """
    interval_s, offset_s = get_evaluation_interval_s(rule), _get_offset_s(rule, name)
    latest = math.floor((now - offset_s) / interval_s) * interval_s + offset_s
    if not is_settled and now < latest + LATE_S:
        return now + LOOK_AGAIN_S
    return latest + interval_s


def get_hold_s(rule: AlarmRule) -> float:
    """How long an alarm keeps its state after the clock was set: until it has seen new periods."""
    return min(MAX_HOLD_S, rule.evaluation_periods * rule.period_s + SETTLE_S)


def _get_offset_s(rule: AlarmRule, name: str) -> float:
    if rule.period_s < MINUTE_S:
        return SETTLE_S
    return SETTLE_S + zlib.crc32(name.encode()) % SPREAD_MS / 1000
