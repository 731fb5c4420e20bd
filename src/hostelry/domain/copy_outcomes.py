"""Outcomes of the requests of one copy."""

from collections.abc import Mapping
from dataclasses import dataclass

from hostelry.domain.metric import StatisticSet


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOutcomes:
    """Outcomes of the requests that ended on a copy in one second.

    Latencies are in microseconds, of complete answers: None without any.
    """

    finished: int = 0
    errors_4xx: int = 0
    errors_5xx: int = 0
    model_errors: int = 0
    broken_streams: int = 0
    model_latency_us: StatisticSet | None = None
    overhead_latency_us: StatisticSet | None = None

    @property
    def numbers(self) -> tuple[float, ...]:
        """All numbers in it, none of which may be negative."""
        found: list[float] = [self.finished, self.errors_4xx, self.errors_5xx]
        found += [self.model_errors, self.broken_streams]
        for latency in (self.model_latency_us, self.overhead_latency_us):
            if latency is not None:
                found += [latency.sample_count, latency.sum, latency.minimum, latency.maximum]
        return tuple(found)


OutcomesByCopy = Mapping[str, CopyOutcomes]


def outcomes_of_both(one: OutcomesByCopy, other: OutcomesByCopy) -> OutcomesByCopy:
    """The outcomes of both, added up by copy."""
    if not one or not other:
        return one or other
    found = dict(one)
    for copy_id, here in other.items():
        found[copy_id] = _added(found[copy_id], here) if copy_id in found else here
    return found


def _added(one: CopyOutcomes, other: CopyOutcomes) -> CopyOutcomes:
    return CopyOutcomes(
        finished=one.finished + other.finished,
        errors_4xx=one.errors_4xx + other.errors_4xx,
        errors_5xx=one.errors_5xx + other.errors_5xx,
        model_errors=one.model_errors + other.model_errors,
        broken_streams=one.broken_streams + other.broken_streams,
        model_latency_us=_joined(one.model_latency_us, other.model_latency_us),
        overhead_latency_us=_joined(one.overhead_latency_us, other.overhead_latency_us),
    )


def _joined(one: StatisticSet | None, other: StatisticSet | None) -> StatisticSet | None:
    if one is None or other is None:
        return one or other
    return StatisticSet(
        sample_count=one.sample_count + other.sample_count,
        sum=one.sum + other.sum,
        minimum=min(one.minimum, other.minimum),
        maximum=max(one.maximum, other.maximum),
    )
