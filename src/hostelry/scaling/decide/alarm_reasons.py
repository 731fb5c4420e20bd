"""Reasons for an alarm's state, in CloudWatch's words and in its JSON.

Source: StateReason and StateReasonData of DescribeAlarms and DescribeAlarmHistory.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hostelry.domain.alarm import AlarmRule, AlarmState, Comparison, MissingData
from hostelry.domain.metric import Datapoint

MOST_LISTED = 3  # datapoints that a reason names; of more, the newest few
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What an evaluation found; datapoints newest first.

    `num_filled` is how many of the evaluated periods had to be filled for want of data.
    """

    evaluated: tuple[Datapoint, ...]
    breaching: tuple[Datapoint, ...]
    num_filled: int


def reason(rule: AlarmRule, state: AlarmState, evidence: Evidence) -> str:
    """StateReason."""
    if state is AlarmState.INSUFFICIENT_DATA:
        return f"Insufficient Data: {_were(evidence.num_filled, 'datapoint')} unknown."
    decisive = evidence.breaching
    if state is AlarmState.OK:
        decisive = tuple(it for it in evidence.evaluated if it not in evidence.breaching)
    if evidence.num_filled and rule.missing in TREATED:
        return f"Threshold Crossed: {_filled(rule, state, evidence, decisive)}."
    num = len(decisive)
    verb = "was" if num == 1 else "were"
    verdict = f"{verb} {_compared(rule, state)}"
    what = f"{num} out of the last {len(evidence.evaluated)} datapoints"
    if num <= MOST_LISTED:
        return f"Threshold Crossed: {what} {_listed(decisive)} {verdict} {_least(rule, state)}."
    newest = _listed(decisive[:MOST_SHOWN])
    crossed = f"The most recent datapoints which crossed the threshold: {newest}"
    return f"Threshold Crossed: {what} {verdict}. {crossed} {_least(rule, state)}."


TREATED: Mapping[MissingData, str] = {
    MissingData.BREACHING: "Breaching",
    MissingData.NOT_BREACHING: "NonBreaching",
}


def reason_data(
    rule: AlarmRule, evidence: Evidence, start: float, now: float, limit: int = MOST_REASON_DATA
) -> str:
    """StateReasonData: JSON of at most `limit` characters; recent datapoints oldest first."""
    oldest_first = evidence.evaluated[:MOST_RECENT][::-1]
    content: dict[str, Any] = {
        "version": "1.0",
        "queryDate": long_instant(now),
        "startDate": long_instant(evidence.evaluated[-1].at if evidence.evaluated else start),
        "statistic": None if rule.stat is None else rule.stat.statistic,
        "unit": None if rule.stat is None else rule.stat.unit,
        "period": rule.period_s,
        "recentDatapoints": [it.value for it in oldest_first],
        "threshold": rule.threshold,
        "evaluatedDatapoints": [
            {"timestamp": long_instant(point.at), "value": point.value}
            for point in evidence.evaluated[:MOST_EVALUATED]
        ],
    }
    text = dense({name: value for name, value in content.items() if value is not None})
    if len(text) <= limit:
        return text
    return reason_data(rule, _newest_half(evidence), start, now, limit)


def long_instant(at: float) -> str:
    """An instant as alarm JSON has it: 2026-11-22T08:30:00.000+0000."""
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}+0000"


def dense(content: Any) -> str:
    """JSON without a space to spare."""
    return json.dumps(content, separators=(",", ":"))


def _newest_half(evidence: Evidence) -> Evidence:
    kept = evidence.evaluated[: len(evidence.evaluated) // 2]
    return Evidence(evaluated=kept, breaching=(), num_filled=evidence.num_filled)


def _filled(
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
    listed = _listed(decisive[:MOST_SHOWN])
    return f"{real} {listed} {verb} {_compared(rule, state)} and {treated}"


def _compared(rule: AlarmRule, state: AlarmState) -> str:
    negation = "" if state is AlarmState.ALARM else "not "
    return f"{negation}{COMPARED[rule.comparison]} the threshold ({rule.threshold!r})"


def _least(rule: AlarmRule, state: AlarmState) -> str:
    """How many datapoints the transition takes that led, or leads, to `state`."""
    if state is AlarmState.ALARM:
        num, transition = rule.datapoints_to_alarm, "OK -> ALARM"
    else:
        num = rule.evaluation_periods - rule.datapoints_to_alarm + 1
        transition = "ALARM -> OK"
    plural = "" if num == 1 else "s"
    return f"(minimum {num} datapoint{plural} for {transition} transition)"


def _listed(datapoints: Sequence[Datapoint]) -> str:
    return "[" + ", ".join(f"{it.value!r} ({_short_instant(it.at)})" for it in datapoints) + "]"


def _short_instant(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%d/%m/%y %H:%M:%S}"


def _were(num: int, noun: str) -> str:
    return f"{num} {noun} was" if num == 1 else f"{num} {noun}s were"
