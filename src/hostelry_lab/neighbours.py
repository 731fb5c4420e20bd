"""Neighbours' calls before, during and after another tenant's abuse. Pure.

Verdict of `slowdown`, where `during` and `before` are the p99 of the successful calls:

    no p99 before or during               -> None: errors are judged elsewhere
    CPUs saturated                        -> None: a slower answer does not show isolation
    during <= max(2 x before, +50 ms)     -> None
    otherwise                             -> the neighbours were slowed
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hostelry.base.proc import CpuTimes
from hostelry_lab.call import OK, LoadCall

MOST_TIMES = 2.0
FLOOR_S = 0.05  # a few milliseconds may double
SATURATED = 0.9  # of the machine's CPUs. Above it, latency does not show isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCalls:
    """The calls of one phase. `p99_s` is the p99 of successful calls, or None without any."""

    num_calls: int
    errors: dict[str, int]
    p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourReport:
    """The three phases, and the busy share of the machine's CPUs during the second one."""

    before: PhaseCalls
    during: PhaseCalls
    after: PhaseCalls
    busy: float

    @property
    def saturated(self) -> bool:
        """Whether the machine had no CPU left."""
        return self.busy >= SATURATED


def neighbour_report(
    calls: Iterable[LoadCall], began_at: float, ended_at: float, busy: float
) -> NeighbourReport:
    """Calls by phase around an abuse. A call in flight during the abuse belongs to that phase."""
    calls = list(calls)
    return NeighbourReport(
        before=phase_calls([it for it in calls if it.ended_at < began_at]),
        during=phase_calls(
            [it for it in calls if it.ended_at >= began_at and it.began_at <= ended_at]
        ),
        after=phase_calls([it for it in calls if it.began_at > ended_at]),
        busy=busy,
    )


def phase_calls(calls: Sequence[LoadCall]) -> PhaseCalls:
    """One phase's calls, counted."""
    took = sorted(it.ended_at - it.began_at for it in calls if it.outcome == OK)
    failed = Counter(it.outcome for it in calls if it.outcome != OK)
    return PhaseCalls(
        num_calls=len(calls),
        errors=dict(sorted(failed.items())),
        p99_s=took[math.ceil(0.99 * len(took)) - 1] if took else None,
    )


def slowdown(found: NeighbourReport) -> str | None:
    """The missed latency target in words, or None if it is met or cannot be judged."""
    before_s, during_s = found.before.p99_s, found.during.p99_s
    if before_s is None or during_s is None or found.saturated:
        return None
    limit_s = max(MOST_TIMES * before_s, before_s + FLOOR_S)
    if during_s <= limit_s:
        return None
    return f"the neighbours' p99 was {1e3 * during_s:.0f} ms (target {1e3 * limit_s:.0f} ms)"


def busy_share(before: CpuTimes, after: CpuTimes) -> float:
    """The share of the machine's CPU time between two instants that was not idle."""
    total = after.total - before.total
    return 1.0 - (after.idle - before.idle) / total if total > 0 else 0.0
