"""Counters of every name since control started, for monitoring systems that read counters."""

import threading
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from hostelry.domain.load import Distribution, LoadKey, SecondLoad

MAX_NAMES = 2_000  # further names share the counters of OTHERS
BOUNDS_S = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
US_PER_S = 1e6
OTHERS = "(others)"


class Histogram(msgspec.Struct):
    """A histogram: counts of values per bucket of `BOUNDS_S`, the last without end, and the sum."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, seen: Distribution) -> None:
        """Add values in microseconds."""
        for value_us, count in zip(seen.values, seen.counts, strict=True):
            value_s = value_us / US_PER_S
            self.counts[bisect_left(BOUNDS_S, value_s)] += count
            self.sum_s += value_s * count

    def cumulative(self) -> list[int]:
        """Counts of values at or below each bound, then of all values."""
        return list(accumulate(self.counts))


class Total(msgspec.Struct):
    """Counters of one name. `in_flight` and `held` are gauges of the newest second."""

    arrivals: int = 0
    finished: int = 0
    delayed: int = 0
    service_s: float = 0.0
    errors_4xx: int = 0
    errors_5xx: int = 0
    model_errors: int = 0
    no_capacity: int = 0
    broken_streams: int = 0
    dropped: int = 0
    in_flight: float = 0.0
    held: int = 0
    second: int = 0
    model_latency: Histogram = msgspec.field(default_factory=Histogram)
    first_chunk_latency: Histogram = msgspec.field(default_factory=Histogram)

    def add(self, load: SecondLoad) -> None:
        """Add the counts of a second."""
        self.arrivals += load.arrivals
        self.finished += load.finished
        self.delayed += load.delayed
        self.service_s += load.service_s
        self.errors_4xx += load.errors_4xx
        self.errors_5xx += load.errors_5xx
        self.model_errors += load.model_errors
        self.no_capacity += load.no_capacity
        self.broken_streams += load.broken_streams
        self.dropped += load.dropped
        self.model_latency.add(load.model_latency_us)
        self.first_chunk_latency.add(load.first_chunk_latency_us)


class Totals:
    """Counters by name. A deleted name keeps its counters. Thread-safe.

    The first `max_names` names have separate counters.
    """

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._lock = threading.Lock()
        self._max_names = max_names
        self._totals: dict[LoadKey, Total] = {}
        self._newest = 0

    def take(self, second: int, loads: Iterable[SecondLoad]) -> None:
        """Add the counts of a closed second, and take its gauges."""
        with self._lock:
            self._newest = second
            for load in loads:
                total = self._total(load.key)
                total.add(load)
                if total.second != second:
                    total.second, total.in_flight, total.held = second, 0.0, 0
                total.in_flight += load.in_flight_mean
                total.held += load.held

    def take_late(self, loads: Iterable[SecondLoad]) -> None:
        """Add counts that arrived late, for seconds taken before."""
        with self._lock:
            for load in loads:
                self._total(load.key).add(load)

    def read(self) -> list[tuple[LoadKey, Total]]:
        """List every name with its counters. Gauges are 0 if the newest second lacks the name."""
        with self._lock:
            return [(key, self._copy(total)) for key, total in self._totals.items()]

    def _copy(self, total: Total) -> Total:
        is_idle = total.second != self._newest
        return replace(
            total,
            in_flight=0.0 if is_idle else total.in_flight,
            held=0 if is_idle else total.held,
            model_latency=_copy_histogram(total.model_latency),
            first_chunk_latency=_copy_histogram(total.first_chunk_latency),
        )

    def _total(self, key: LoadKey) -> Total:
        total = self._totals.get(key)
        if total is None:
            if len(self._totals) >= self._max_names:
                key = replace(key, endpoint_name=OTHERS, variant_name=OTHERS, component_name=OTHERS)
            total = self._totals.setdefault(key, Total())
        return total


def _copy_histogram(histogram: Histogram) -> Histogram:
    return Histogram(counts=list(histogram.counts), sum_s=histogram.sum_s)
