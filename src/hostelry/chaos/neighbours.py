"""How the calls of neighbours fared before, during and after what another tenant did. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hostelry.base.proc import CpuTimes
from hostelry.chaos.call import OK, Call

MOST_TIMES = 2.0
FLOOR_S = 0.05  # a few milliseconds that became twice as many are no harm
SATURATED = 0.9  # of the machine's CPUs: then a slower answer says nothing of isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The calls of one phase; `p99_s` is that of the calls that succeeded, None without any."""

    num_calls: int
    errors: dict[str, int]
    p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The three phases, and which share of the machine's CPUs was busy during the second."""

    before: Phase
    during: Phase
    after: Phase
    busy: float

    @property
    def saturated(self) -> bool:
        """Whether the machine had no CPU left for anybody."""
        return self.busy >= SATURATED


def neighbours(calls: Iterable[Call], began_at: float, ended_at: float, busy: float) -> Neighbours:
    """The phases of calls around a deed; a call that was under way in the deed is of its phase."""
    calls = list(calls)
    return Neighbours(
        before=phase([it for it in calls if it.ended_at < began_at]),
        during=phase([it for it in calls if it.ended_at >= began_at and it.began_at <= ended_at]),
        after=phase([it for it in calls if it.began_at > ended_at]),
        busy=busy,
    )


def phase(calls: Sequence[Call]) -> Phase:
    """One phase's calls, counted."""
    took = sorted(it.ended_at - it.began_at for it in calls if it.outcome == OK)
    failed = Counter(it.outcome for it in calls if it.outcome != OK)
    return Phase(
        num_calls=len(calls),
        errors=dict(sorted(failed.items())),
        p99_s=took[math.ceil(0.99 * len(took)) - 1] if took else None,
    )


def slower(found: Neighbours) -> str | None:
    """That the neighbours were slower than they may be; None where not, or nobody can say."""
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
