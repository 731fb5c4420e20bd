"""What gateway workers tell control of the requests they carry: one value a second and name."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hostelry.domain.copy_outcomes import CopyOutcomes
from hostelry.domain.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadKey:
    """Whom requests are for: a component (bases and adapters alike), or a variant of models."""

    scope: Scope
    endpoint_name: str
    variant_name: str
    component_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How often each of some values was seen; `values` are the middles of logarithmic buckets."""

    values: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLoad:
    """What one worker saw of one name in the second that begins at `second` (since the epoch).

    A request is in flight from its admission to its last byte, also while it is held for a copy.
    `in_flight_mean` is over the second's whole length. `held` is how many waited for a copy at the
    second's end, the first of them since `oldest_held_s`. `service_s` is the time from a copy's
    being chosen to the last byte, summed over the requests that `finished` in the second, and
    `mean_service_s` of them is what one costs. Latencies are in microseconds. `on_copies_min` and
    `on_copies_max` are those of all that want the name's copies: its own requests in flight and,
    for a base, those of its adapters.
    `on_copies_first` is their number at the second's start, `held_max` how many of them waited at
    most, `seen_on_copies` the most that were on the copies, of all workers, when this one put a
    request there.
    """

    key: LoadKey
    second: int
    arrivals: int = 0
    finished: int = 0
    in_flight_mean: float = 0.0
    in_flight_min: int = 0
    in_flight_max: int = 0
    on_copies_min: int = 0
    on_copies_max: int = 0
    on_copies_first: int = 0
    seen_on_copies: int = 0
    held_max: int = 0
    held: int = 0
    oldest_held_s: float = 0.0
    delayed: int = 0  # requests that had to be held, counted when they were let go
    service_s: float = 0.0
    errors_4xx: int = 0
    errors_5xx: int = 0
    model_errors: int = 0
    no_capacity: int = 0  # refused because there was no copy
    broken_streams: int = 0
    model_latency_us: Distribution = Distribution()
    overhead_latency_us: Distribution = Distribution()
    first_chunk_latency_us: Distribution = Distribution()
    first_chunk_model_latency_us: Distribution = Distribution()
    first_chunk_overhead_latency_us: Distribution = Distribution()
    in_flight_max_by_copy: Mapping[str, int] = field(default_factory=dict)
    arrivals_by_copy: Mapping[str, int] = field(default_factory=dict)
    # When each copy first finished a request in this second: the end of a scaling act (t2).
    first_answer_at_by_copy: Mapping[str, float] = field(default_factory=dict)
    outcomes_by_copy: Mapping[str, CopyOutcomes] = field(default_factory=dict)

    @property
    def most_on_copies(self) -> int:
        """The most requests that wanted the name's copies at once.

        Workers have their maxima at different instants, so the sum of these is only a bound. What
        they saw on the copies together is another.
        """
        if not self.on_copies_first and not self.seen_on_copies:
            return self.on_copies_max
        together = max(self.on_copies_first, self.seen_on_copies) + self.held_max
        return min(self.on_copies_max, together)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a worker sends each second; the same `sequence` again is the same report.

    `started_at` tells one life of a worker from the next. The report tells of every second from
    `first` through `through`; a name that is not in `seconds` had nothing happen to it. Body of
    POST /internal/load.
    """

    worker: str
    started_at: float
    sequence: int
    seconds: tuple[SecondLoad, ...]
    first: int = 0
    through: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """A request waits for a name without a copy: body of POST /internal/wake.

    `held` is how many wait there by now, the first of them since `at`.
    """

    key: LoadKey
    held: int
    at: float
