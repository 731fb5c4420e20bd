"""Load reports of gateway workers to control: one value per second and name."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import fields

from hostelry.domain.metric import StatisticSet
from hostelry.domain.scope import Scope

Part = TypeVar("Part")


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Counts by value. `values` are the middles of logarithmic buckets."""

    values: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()


EMPTY = Distribution()


def merge(one: Distribution, other: Distribution) -> Distribution:
    """Add two distributions. The smallest value is first."""
    if not other.values or not one.values:
        return one if one.values else other
    counts = dict(zip(one.values, one.counts, strict=True))
    for value, count in zip(other.values, other.counts, strict=True):
        counts[value] = counts.get(value, 0) + count
    values = sorted(counts)
    return Distribution(values=tuple(values), counts=tuple(counts[it] for it in values))


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs of answers that were compared. `exact` are equal, `close` are within the tolerance.

    Exact pairs count as close, too. Distances, from 0 to 1, are in millionths, and include exact
    pairs.
    """

    pairs: int = 0
    exact: int = 0
    close: int = 0
    distance_millionths: Distribution = EMPTY

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of pairs."""
        return self.pairs, self.exact, self.close

    def plus(self, other: "Divergence") -> "Divergence":
        """The sum of both."""
        if not other.pairs or not self.pairs:
            return self if self.pairs else other
        return Divergence(
            pairs=self.pairs + other.pairs,
            exact=self.exact + other.exact,
            close=self.close + other.close,
            distance_millionths=merge(self.distance_millionths, other.distance_millionths),
        )


NO_DIVERGENCE = Divergence()


class ConfigLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a second's load that the copies of one configuration or container served.

    The fields are as in SecondLoad. A retried request counts as an arrival at both copies.
    """

    arrivals: int = 0
    finished: int = 0
    errors_4xx: int = 0
    errors_5xx: int = 0
    model_errors: int = 0
    broken_streams: int = 0
    model_latency_us: Distribution = EMPTY
    overhead_latency_us: Distribution = EMPTY
    first_chunk_latency_us: Distribution = EMPTY
    first_chunk_model_latency_us: Distribution = EMPTY
    first_chunk_overhead_latency_us: Distribution = EMPTY


NAMES = tuple(it.name for it in fields(ConfigLoad))
COUNTS = tuple(it.name for it in fields(ConfigLoad) if it.default == 0)
LoadByConfig = Mapping[str, ConfigLoad]
NO_CONFIGS: LoadByConfig = {}


def add_configs(one: LoadByConfig, other: LoadByConfig) -> LoadByConfig:
    """Add up the loads by configuration."""
    return _add_by_key(one, other, _add_load)


def subtract(whole: object, parts: LoadByConfig) -> ConfigLoad:
    """Return the load of `whole`, a SecondLoad, that is in none of `parts`."""
    rest: dict[str, Any] = {}
    for name in NAMES:
        here, there = getattr(whole, name), [getattr(it, name) for it in parts.values()]
        rest[name] = max(0, here - sum(there)) if name in COUNTS else _subtract(here, there)
    return ConfigLoad(**rest)


def _subtract(whole: Distribution, parts: Iterable[Distribution]) -> Distribution:
    left = Counter(dict(zip(whole.values, whole.counts, strict=True)))
    for part in parts:
        left.subtract(dict(zip(part.values, part.counts, strict=True)))
    left = +left
    return Distribution(values=tuple(left), counts=tuple(left.values()))


def _add_by_key(
    one: Mapping[str, Part], other: Mapping[str, Part], add: Callable[[Part, Part], Part]
) -> Mapping[str, Part]:
    if not one or not other:
        return one or other
    found = dict(one)
    for key, part in other.items():
        found[key] = add(found[key], part) if key in found else part
    return found


def _add_load(one: ConfigLoad, other: ConfigLoad) -> ConfigLoad:
    sums: dict[str, Any] = {}
    for name in NAMES:
        here, there = getattr(one, name), getattr(other, name)
        sums[name] = here + there if name in COUNTS else merge(here, there)
    return ConfigLoad(**sums)


class CopyOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes of the requests that ended on a copy in one second.

    Latencies are in microseconds, for complete answers only. None without any.
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
        """All its numbers. None of them may be negative."""
        found: list[float] = [self.finished, self.errors_4xx, self.errors_5xx]
        found += [self.model_errors, self.broken_streams]
        for latency in (self.model_latency_us, self.overhead_latency_us):
            if latency is not None:
                found += [latency.sample_count, latency.sum, latency.minimum, latency.maximum]
        return tuple(found)


OutcomesByCopy = Mapping[str, CopyOutcomes]


def add_outcomes(one: OutcomesByCopy, other: OutcomesByCopy) -> OutcomesByCopy:
    """Add up the outcomes by copy."""
    return _add_by_key(one, other, _add_outcomes)


def _add_outcomes(one: CopyOutcomes, other: CopyOutcomes) -> CopyOutcomes:
    return CopyOutcomes(
        finished=one.finished + other.finished,
        errors_4xx=one.errors_4xx + other.errors_4xx,
        errors_5xx=one.errors_5xx + other.errors_5xx,
        model_errors=one.model_errors + other.model_errors,
        broken_streams=one.broken_streams + other.broken_streams,
        model_latency_us=_add_statistics(one.model_latency_us, other.model_latency_us),
        overhead_latency_us=_add_statistics(one.overhead_latency_us, other.overhead_latency_us),
    )


def _add_statistics(one: StatisticSet | None, other: StatisticSet | None) -> StatisticSet | None:
    if one is None or other is None:
        return one or other
    return StatisticSet(
        sample_count=one.sample_count + other.sample_count,
        sum=one.sum + other.sum,
        minimum=min(one.minimum, other.minimum),
        maximum=max(one.maximum, other.maximum),
    )


class ModelLoads(msgspec.Struct, frozen=True, kw_only=True):
    """Loads of models in multi-model copies. `hits` of the `lookups` found their model loaded.

    Times are in microseconds. `waiting_us` has the times that requests waited for their model. The
    other times are measured by copies.
    """

    lookups: int = 0
    hits: int = 0
    waiting_us: Distribution = EMPTY
    downloading_us: Distribution = EMPTY
    loading_us: Distribution = EMPTY
    unloading_us: Distribution = EMPTY


NO_MODEL_LOADS = ModelLoads()


class PartLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a second's requests that named a target model or a tenant.

    `token_requests` counts the requests whose answers reported numbers of tokens.
    """

    finished: int = 0
    service_s: float = 0.0
    token_requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def numbers(self) -> tuple[float, ...]:
        """All its numbers. None of them may be negative."""
        return (
            self.finished,
            self.service_s,
            self.token_requests,
            self.tokens_in,
            self.tokens_out,
        )


PartLoads = Mapping[str, PartLoad]
NO_PARTS: PartLoads = {}


def add_parts(one: PartLoads, other: PartLoads) -> PartLoads:
    """Add up the loads by name."""
    return _add_by_key(one, other, _add_part)


def _add_part(one: PartLoad, other: PartLoad) -> PartLoad:
    return PartLoad(
        finished=one.finished + other.finished,
        service_s=one.service_s + other.service_s,
        token_requests=one.token_requests + other.token_requests,
        tokens_in=one.tokens_in + other.tokens_in,
        tokens_out=one.tokens_out + other.tokens_out,
    )


def add_model_loads(one: ModelLoads, other: ModelLoads) -> ModelLoads:
    """Add up two loads."""
    if not other.lookups or not one.lookups:
        return one if one.lookups else other
    return ModelLoads(
        lookups=one.lookups + other.lookups,
        hits=one.hits + other.hits,
        waiting_us=merge(one.waiting_us, other.waiting_us),
        downloading_us=merge(one.downloading_us, other.downloading_us),
        loading_us=merge(one.loading_us, other.loading_us),
        unloading_us=merge(one.unloading_us, other.unloading_us),
    )


class LoadKey(msgspec.Struct, frozen=True, kw_only=True):
    """The target of requests: a component (base or adapter), or a variant with a model."""

    scope: Scope
    endpoint_name: str
    variant_name: str
    component_name: str | None = None


class SecondLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of one name on one worker, in the second that begins at `second` (since the epoch).

    A request is in flight from its admission to its last byte, even while it is held for a copy.
    `in_flight_mean` is over the whole second. At the end of the second, `held` requests waited for
    a copy, the first of them for `oldest_held_s`. `service_s` is the time from the choice of a copy
    to the last byte, summed over the requests that `finished` in the second. `billed_ms` is the sum
    of the same times in whole milliseconds. `bytes_in` and `bytes_out` are the sizes of their
    bodies. `token_requests` counts the requests whose answers reported numbers of tokens.
    `by_model` and `by_tenant` have the finished requests that named a target model or a tenant.
    Latencies are in microseconds.

    `on_copies_min` and `on_copies_max` count all requests on the name's copies: its own requests
    and, for a base, its adapters' requests. `on_copies_first` is the number at the start of the
    second. `held_max` is the maximum number that waited. `seen_on_copies` is the maximum on the
    copies, from all workers, at a time when this worker sent a request. While the endpoint is
    updated, `by_config` has the requests on the copies of each configuration. If the model has
    several containers, `by_container` has the requests of each.
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
    delayed: int = 0  # requests that were held and then released in this second
    service_s: float = 0.0
    billed_ms: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    token_requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    errors_4xx: int = 0
    errors_5xx: int = 0
    model_errors: int = 0
    no_capacity: int = 0  # refused because no copy was ready
    throttled: int = 0  # refused because MaxConcurrency was reached. Not counted as arrivals
    spilled: int = 0  # arrived while more than ProvisionedConcurrency were in flight
    dropped: int = 0  # not mirrored to this shadow variant. Not counted as arrivals
    broken_streams: int = 0
    model_latency_us: Distribution = EMPTY
    overhead_latency_us: Distribution = EMPTY
    first_chunk_latency_us: Distribution = EMPTY
    first_chunk_model_latency_us: Distribution = EMPTY
    first_chunk_overhead_latency_us: Distribution = EMPTY
    in_flight_max_by_copy: Mapping[str, int] = msgspec.field(default_factory=dict)
    arrivals_by_copy: Mapping[str, int] = msgspec.field(default_factory=dict)
    # When each copy finished its first request in this second, which ends a scaling activity (t2).
    first_answer_at_by_copy: Mapping[str, float] = msgspec.field(default_factory=dict)
    outcomes_by_copy: Mapping[str, CopyOutcomes] = msgspec.field(default_factory=dict)
    model_loads: ModelLoads = NO_MODEL_LOADS  # of a multi-model endpoint
    by_config: Mapping[str, ConfigLoad] = msgspec.field(default_factory=dict)
    by_container: Mapping[str, ConfigLoad] = msgspec.field(default_factory=dict)
    divergence: Divergence = NO_DIVERGENCE  # of a shadow variant
    by_model: Mapping[str, PartLoad] = msgspec.field(default_factory=dict)
    by_tenant: Mapping[str, PartLoad] = msgspec.field(default_factory=dict)

    @property
    def most_on_copies(self) -> int:
        """The maximum number of requests at the same time on the name's copies.

        Returns the lower of two upper bounds: the sum of the workers' maxima, which may occur at
        different times, and the requests of all workers that were seen on the copies.
        """
        if not self.on_copies_first and not self.seen_on_copies:
            return self.on_copies_max
        together = max(self.on_copies_first, self.seen_on_copies) + self.held_max
        return min(self.on_copies_max, together)


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's report of each second, the body of POST /internal/load.

    A repeated report has the same `sequence`. `started_at` distinguishes a restarted worker. The
    report covers every second from `first` through `through`. A name that is missing in `seconds`
    had no load. If no request is under way, the next report may be `idle_s` late, unless a request
    comes.
    """

    worker: str
    started_at: float
    sequence: int
    seconds: tuple[SecondLoad, ...]
    first: int = 0
    through: int = 0
    idle_s: float = 0.0


class LoadReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of a worker whose load is in the metrics, with all earlier load."""

    started_at: float
    sequence: int


class Wake(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that wait for a name without a copy: body of POST /internal/wake.

    `held` is their number. The first has waited since `at`. For a serverless variant, `concurrency`
    counts its requests on all workers, including waiting requests.
    """

    key: LoadKey
    held: int
    at: float
    concurrency: int = 0
