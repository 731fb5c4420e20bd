"""Evaluation times of alarms: after the end of a period, spread over a minute."""

import math
import zlib

from hostelry.domain.alarm import AlarmRule

MINUTE_S = 60.0
HIGH_RESOLUTION_S = 10.0
SETTLE_S = 2.0  # what was measured in a period is known so long after its end
LATE_S = 4.0  # and seldom later than that after the first look
LOOK_AGAIN_S = 1.0
SPREAD_MS = 8_000  # alarms of a minute are spread over so much of it
MAX_HOLD_S = 900.0
EARLY_S = 1.5  # an action that repeats may be so much before its interval is over


def evaluation_interval_s(rule: AlarmRule) -> float:
    """Every 10 s for periods under a minute, else every minute.

    Source: CloudWatch User Guide, "High-resolution alarms".
    """
    return HIGH_RESOLUTION_S if rule.period_s < MINUTE_S else MINUTE_S


def repeats_after_s(rule: AlarmRule) -> float:
    """How long after the last trigger an alarm that is still in ALARM triggers its policies."""
    return evaluation_interval_s(rule) - EARLY_S


def next_evaluation_at(rule: AlarmRule, name: str, now: float, *, is_settled: bool = True) -> float:
    """When to look at the alarm again, after a look at `now`.

    Where the newest period had no data yet (not `is_settled`) that is soon, for a few seconds.
    """
    interval_s, offset_s = evaluation_interval_s(rule), _offset_s(rule, name)
    latest = math.floor((now - offset_s) / interval_s) * interval_s + offset_s
    if not is_settled and now < latest + LATE_S:
        return now + LOOK_AGAIN_S
    return latest + interval_s


def hold_s(rule: AlarmRule) -> float:
    """How long an alarm keeps its state after the clock was set: until it has seen new periods."""
    return min(MAX_HOLD_S, rule.evaluation_periods * rule.period_s + SETTLE_S)


def _offset_s(rule: AlarmRule, name: str) -> float:
    if rule.period_s < MINUTE_S:
        return SETTLE_S
    return SETTLE_S + zlib.crc32(name.encode()) % SPREAD_MS / 1000
