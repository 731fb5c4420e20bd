"""Load reports of gateway workers to control: one value per second and name."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hostelry.domain.config_load import ConfigLoad
from hostelry.domain.copy_outcomes import CopyOutcomes
from hostelry.domain.distribution import EMPTY, Distribution
from hostelry.domain.divergence import NO_DIVERGENCE, Divergence
from hostelry.domain.model_loads import NO_MODEL_LOADS, ModelLoads
from hostelry.domain.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadKey:
    """The target of requests: a component (base or adapter), or a variant with a model."""

    scope: Scope
    endpoint_name: str
    variant_name: str
    component_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLoad:
    """The load of one name on one worker in the second from `second` (since the epoch).

    A request is in flight from its admission to its last byte, also while it is held for a copy.
    `in_flight_mean` is over the whole second. `held` requests waited for a copy at the end of the
    second, the first of them for `oldest_held_s`. `service_s` is the time from the choice of a copy
    to the last byte, summed over the requests that `finished` in the second, `billed_ms` the same
    in whole milliseconds of each; `bytes_in` and `bytes_out` are of their bodies. Latencies are in
    microseconds. `on_copies_min` and `on_copies_max` are of all requests for the name's copies: its
    own and, for a base, those of its adapters. `on_copies_first` is their number at the start of
    the second, `held_max` the most of them that waited, `seen_on_copies` the most on the copies, of
    all workers, when this worker sent a request there. `by_config` has the requests on the
    copies of each configuration, while the endpoint is updated, `by_container` those that went to
    each container of a model of several.
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
    billed_ms: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    errors_4xx: int = 0
    errors_5xx: int = 0
    model_errors: int = 0
    no_capacity: int = 0  # refused because there was no copy
    throttled: int = 0  # refused because MaxConcurrency were in flight; no arrivals
    spilled: int = 0  # beyond ProvisionedConcurrency when they arrived
    dropped: int = 0  # not mirrored to this shadow variant; no arrivals
    broken_streams: int = 0
    model_latency_us: Distribution = EMPTY
    overhead_latency_us: Distribution = EMPTY
    first_chunk_latency_us: Distribution = EMPTY
    first_chunk_model_latency_us: Distribution = EMPTY
    first_chunk_overhead_latency_us: Distribution = EMPTY
    in_flight_max_by_copy: Mapping[str, int] = field(default_factory=dict)
    arrivals_by_copy: Mapping[str, int] = field(default_factory=dict)
    # When each copy first finished a request in this second: the end of a scaling activity (t2).
    first_answer_at_by_copy: Mapping[str, float] = field(default_factory=dict)
    outcomes_by_copy: Mapping[str, CopyOutcomes] = field(default_factory=dict)
    model_loads: ModelLoads = NO_MODEL_LOADS  # of a multi-model endpoint
    by_config: Mapping[str, ConfigLoad] = field(default_factory=dict)
    by_container: Mapping[str, ConfigLoad] = field(default_factory=dict)
    divergence: Divergence = NO_DIVERGENCE  # of a shadow variant

    @property
    def most_on_copies(self) -> int:
        """The most requests at once for the name's copies.

        The sum of the workers' maxima is only an upper bound, as they occur at different instants;
        what the workers saw together on the copies is another bound, and the lower one counts.
        """
        if not self.on_copies_first and not self.seen_on_copies:
            return self.on_copies_max
        together = max(self.on_copies_first, self.seen_on_copies) + self.held_max
        return min(self.on_copies_max, together)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """A worker's report, one each second; the same `sequence` again is the same report.

    `started_at` distinguishes a restarted worker. The report covers every second from `first`
    through `through`; a name missing in `seconds` had no load. Body of POST /internal/load.
    With `idle_s` nothing is under way: unless a request comes, the next report may take that long.
    """

    worker: str
    started_at: float
    sequence: int
    seconds: tuple[SecondLoad, ...]
    first: int = 0
    through: int = 0
    idle_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReceipt:
    """The last report of a worker whose load is in the metrics; earlier ones are, too."""

    started_at: float
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """Requests that wait for a name without a copy: body of POST /internal/wake.

    `held` is their number by now; the first waits since `at`. `concurrency`, of a serverless
    variant alone, counts its requests under way on all workers, waiting ones included.
    """

    key: LoadKey
    held: int
    at: float
    concurrency: int = 0
