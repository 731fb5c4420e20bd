"""Counters of one name in the current second, in whole numbers."""

from collections.abc import Iterable
from typing import Any

from hostelry.domain.load import (
    NO_CONFIGS,
    NO_DIVERGENCE,
    NO_MODEL_LOADS,
    NO_PARTS,
    ConfigLoad,
    CopyOutcomes,
    Distribution,
    Divergence,
    LoadKey,
    ModelLoads,
    PartLoad,
    PartLoads,
    SecondLoad,
)
from hostelry.domain.metric import StatisticSet

KEPT_BITS = 8  # bits of a time. A bucket is at most 0.8 % wide, its middle 0.4 % from its ends
MODEL_TIMES = ("waiting", "downloading", "loading", "unloading")
Buckets = dict[int, int]  # counts by the lower end of the bucket
# Indexes of a copy's counters. The first two are its requests in flight and their maximum.
ARRIVALS, FIRST_ANSWER, FINISHED, ANSWERS = 2, 3, 4, 9
ERRORS_4XX, ERRORS_5XX, MODEL_ERRORS, BROKEN = 5, 6, 7, 8
NONE_YET = (0,) * 14
MAX_PARTS = 1_000  # target models, and tenants, of a name in a second. Further ones are OTHER_PARTS
MAX_PART_CHARACTERS = 256
OTHER_PARTS = "(others)"


class ModelCounters:
    """Counters of a multi-model endpoint: requests whose model was loaded, and times in seconds."""

    __slots__ = ("hits", "lookups", "times")

    def __init__(self) -> None:
        self.lookups = self.hits = 0
        self.times: dict[str, Buckets] = {name: {} for name in MODEL_TIMES}

    def count_lease(
        self, *, hit: bool, waited_s: float, times: Iterable[tuple[str, float]]
    ) -> None:
        """Count the lease of a model, and the `times` (by name) that the copy measured."""
        self.lookups += 1
        self.hits += hit
        if not hit:
            _count(self.times["waiting"], int(waited_s * 1e9))
        for name, taken_s in times:
            if name in self.times:
                _count(self.times[name], int(taken_s * 1e9))

    def close(self) -> ModelLoads:
        """Return the counts of the second."""
        found = {f"{name}_us": _distribution(it) for name, it in self.times.items()}
        return ModelLoads(lookups=self.lookups, hits=self.hits, **found)


class PairCounters:
    """Counters of a shadow's answers that were compared with production's answers."""

    __slots__ = ("close_pairs", "distances", "exact_pairs", "pairs")

    def __init__(self) -> None:
        self.pairs = self.exact_pairs = self.close_pairs = 0
        self.distances: Buckets = {}

    def count_pair(self, *, exact: bool, close: bool, distance: float) -> None:
        """Count a pair whose answers are `distance` apart, from 0 to 1."""
        self.pairs += 1
        self.exact_pairs += exact
        self.close_pairs += close
        _count(self.distances, int(distance * 1e9))

    def close(self) -> Divergence:
        """Return the counts of the second."""
        return Divergence(
            pairs=self.pairs,
            exact=self.exact_pairs,
            close=self.close_pairs,
            distance_millionths=_distribution(self.distances),
        )


class PartCounters:
    """Counters of the finished requests that named a target model, or a tenant."""

    __slots__ = ("finished", "service_ns", "token_requests", "tokens_in", "tokens_out")

    def __init__(self) -> None:
        self.finished = self.service_ns = 0
        self.token_requests = self.tokens_in = self.tokens_out = 0

    def close(self) -> PartLoad:
        """Return the counts of the second."""
        return PartLoad(
            finished=self.finished,
            service_s=self.service_ns / 1e9,
            token_requests=self.token_requests,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
        )


class ConfigCounters:
    """Counters of a name's requests on the copies of one configuration, or of one container.

    `numbers` has the counts under the indexes of a copy's counters.
    """

    __slots__ = ("first_model", "first_overhead", "first_whole", "model", "numbers", "overhead")

    def __init__(self) -> None:
        self.numbers = [0, 0, *NONE_YET]
        self.model: Buckets = {}
        self.overhead: Buckets = {}
        self.first_whole: Buckets = {}
        self.first_model: Buckets = {}
        self.first_overhead: Buckets = {}

    def latency(self, model_ns: int, overhead_ns: int) -> None:
        """Count an answer that was whole after `model_ns`."""
        _count(self.model, model_ns)
        _count(self.overhead, overhead_ns)

    def first_chunk(self, model_ns: int, overhead_ns: int) -> None:
        """Count a stream whose first chunk arrived after `model_ns`."""
        _count(self.first_whole, model_ns + overhead_ns)
        _count(self.first_model, model_ns)
        _count(self.first_overhead, overhead_ns)

    def close(self) -> ConfigLoad:
        """Return the counts of the second."""
        numbers = self.numbers
        return ConfigLoad(
            arrivals=numbers[ARRIVALS],
            finished=numbers[FINISHED],
            errors_4xx=numbers[ERRORS_4XX],
            errors_5xx=numbers[ERRORS_5XX],
            model_errors=numbers[MODEL_ERRORS],
            broken_streams=numbers[BROKEN],
            model_latency_us=_distribution(self.model),
            overhead_latency_us=_distribution(self.overhead),
            first_chunk_latency_us=_distribution(self.first_whole),
            first_chunk_model_latency_us=_distribution(self.first_model),
            first_chunk_overhead_latency_us=_distribution(self.first_overhead),
        )


class RequestCounters:
    """Counters of one name. Times are nanoseconds of a monotonic clock.

    `held` has the waiting requests in order of arrival, and the times since when they wait. `base`
    are the counters of the component that has the copies: the base of an adapter, else itself.
    `copies` has, for each copy: requests on it, their maximum, arrivals, first answer (0: none),
    the outcomes of requests, the number of whole answers, and the sum, minimum and maximum of the
    model's time and of the overhead of whole answers. `configs` has the counters of each
    configuration of copies, for example during an update. `containers` has the counters of each
    container of a model with several, `by_model` and `by_tenant` of the requests that named a
    target model or a tenant.
    """

    __slots__ = (
        "_area_ns",
        "_at_ns",
        "_first_model",
        "_first_overhead",
        "_first_whole",
        "_model",
        "_overhead",
        "arrivals",
        "base",
        "billed_ms",
        "broken_streams",
        "by_model",
        "by_tenant",
        "bytes_in",
        "bytes_out",
        "configs",
        "containers",
        "copies",
        "delayed",
        "dropped",
        "errors_4xx",
        "errors_5xx",
        "finished",
        "held",
        "held_high",
        "held_on_copies",
        "high",
        "in_flight",
        "key",
        "low",
        "model_errors",
        "models",
        "no_capacity",
        "on_copies",
        "on_copies_first",
        "on_copies_high",
        "on_copies_low",
        "pairs",
        "seen_on_copies",
        "service_ns",
        "spilled",
        "throttled",
        "token_requests",
        "tokens_in",
        "tokens_out",
    )
    _area_ns: int
    _at_ns: int
    arrivals: int
    finished: int
    held_high: int
    high: int
    low: int
    on_copies_first: int
    on_copies_high: int
    on_copies_low: int

    def __init__(self, key: LoadKey, now_ns: int, base: "RequestCounters | None" = None) -> None:
        self.key = key
        self.base = base or self
        self.on_copies = self.held_on_copies = 0
        self.in_flight = 0
        self.held: dict[Any, int] = {}
        self.copies: dict[str, list[int]] = {}
        self._clear(now_ns)

    def count_arrival(self, now_ns: int) -> None:
        """Count one more request in flight."""
        in_flight = self.in_flight
        self._area_ns += in_flight * (now_ns - self._at_ns)
        self._at_ns = now_ns
        self.in_flight = in_flight = in_flight + 1
        if in_flight > self.high:
            self.high = in_flight
        base = self.base
        base.on_copies = on_copies = base.on_copies + 1
        if on_copies > base.on_copies_high:
            base.on_copies_high = on_copies
        self.arrivals += 1

    def count_end(self, now_ns: int) -> None:
        """Count a request that is over."""
        in_flight = self.in_flight
        self._area_ns += in_flight * (now_ns - self._at_ns)
        self._at_ns = now_ns
        self.in_flight = in_flight = in_flight - 1
        if in_flight < self.low:
            self.low = in_flight
        base = self.base
        base.on_copies = on_copies = base.on_copies - 1
        if on_copies < base.on_copies_low:
            base.on_copies_low = on_copies
        self.finished += 1

    def get_config(self, config: str) -> ConfigCounters:
        """The counters of one configuration."""
        found = self.configs.get(config)
        if found is None:
            found = self.configs[config] = ConfigCounters()
        return found

    def get_container(self, name: str) -> ConfigCounters:
        """The counters of one container."""
        found = self.containers.get(name)
        if found is None:
            found = self.containers[name] = ConfigCounters()
        return found

    def count_part(
        self,
        parts: dict[str, PartCounters],
        name: str,
        service_ns: int,
        tokens: tuple[int, int] | None,
    ) -> None:
        """Count a finished request for `name` in `by_model` or `by_tenant`."""
        if len(name) > MAX_PART_CHARACTERS or (len(parts) >= MAX_PARTS and name not in parts):
            name = OTHER_PARTS
        part = parts.get(name)
        if part is None:
            part = parts[name] = PartCounters()
        part.finished += 1
        part.service_ns += service_ns
        if tokens is not None:
            part.token_requests += 1
            part.tokens_in += tokens[0]
            part.tokens_out += tokens[1]

    def hold(self) -> None:
        """Count one more request that waits for these copies."""
        self.held_on_copies += 1
        if self.held_on_copies > self.held_high:
            self.held_high = self.held_on_copies

    def latency(self, model_ns: int, overhead_ns: int) -> None:
        """Count an answer that was whole after `model_ns`. The rest of its time is overhead."""
        spare = model_ns.bit_length() - KEPT_BITS
        low_ns = model_ns >> spare << spare if spare > 0 else model_ns
        buckets = self._model
        buckets[low_ns] = buckets.get(low_ns, 0) + 1
        spare = overhead_ns.bit_length() - KEPT_BITS
        low_ns = overhead_ns >> spare << spare if spare > 0 else overhead_ns
        buckets = self._overhead
        buckets[low_ns] = buckets.get(low_ns, 0) + 1

    def first_chunk(self, model_ns: int, overhead_ns: int) -> None:
        """Count a stream whose first chunk arrived after `model_ns`."""
        _count(self._first_whole, model_ns + overhead_ns)
        _count(self._first_model, model_ns)
        _count(self._first_overhead, overhead_ns)

    @property
    def is_idle(self) -> bool:
        """True if no request is in flight and nothing was counted."""
        return not (
            self.in_flight
            or self.arrivals
            or self.finished
            or self.on_copies_high
            or self.throttled
            or self.dropped
            or self.pairs is not None
        )

    def close(self, second: int, at_ns: int, length_ns: int) -> SecondLoad:
        """Return the load of the second that ends at `at_ns`. The next second begins there."""
        area_ns = self._area_ns + self.in_flight * (at_ns - self._at_ns)
        oldest_ns = next(iter(self.held.values()), at_ns)
        load = SecondLoad(
            key=self.key,
            second=second,
            arrivals=self.arrivals,
            finished=self.finished,
            in_flight_mean=area_ns / length_ns,
            in_flight_min=self.low,
            in_flight_max=self.high,
            on_copies_min=self.on_copies_low,
            on_copies_max=self.on_copies_high,
            on_copies_first=self.on_copies_first,
            seen_on_copies=self.seen_on_copies,
            held_max=self.held_high,
            held=len(self.held),
            oldest_held_s=(at_ns - oldest_ns) / 1e9,
            delayed=self.delayed,
            service_s=self.service_ns / 1e9,
            billed_ms=self.billed_ms,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            token_requests=self.token_requests,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            errors_4xx=self.errors_4xx,
            errors_5xx=self.errors_5xx,
            model_errors=self.model_errors,
            no_capacity=self.no_capacity,
            throttled=self.throttled,
            spilled=self.spilled,
            dropped=self.dropped,
            broken_streams=self.broken_streams,
            model_latency_us=_distribution(self._model),
            overhead_latency_us=_distribution(self._overhead),
            first_chunk_latency_us=_distribution(self._first_whole),
            first_chunk_model_latency_us=_distribution(self._first_model),
            first_chunk_overhead_latency_us=_distribution(self._first_overhead),
            in_flight_max_by_copy={it: copy[1] for it, copy in self.copies.items()},
            arrivals_by_copy={
                it: copy[ARRIVALS] for it, copy in self.copies.items() if copy[ARRIVALS]
            },
            first_answer_at_by_copy={
                it: second + 1 - (at_ns - copy[FIRST_ANSWER]) / 1e9
                for it, copy in self.copies.items()
                if copy[FIRST_ANSWER]
            },
            by_config={name: it.close() for name, it in self.configs.items()}
            if self.configs
            else NO_CONFIGS,
            by_container={name: it.close() for name, it in self.containers.items()}
            if self.containers
            else NO_CONFIGS,
            model_loads=NO_MODEL_LOADS if self.models is None else self.models.close(),
            divergence=NO_DIVERGENCE if self.pairs is None else self.pairs.close(),
            by_model=_close_parts(self.by_model),
            by_tenant=_close_parts(self.by_tenant),
            outcomes_by_copy={
                it: _outcomes(copy) for it, copy in self.copies.items() if copy[FINISHED]
            },
        )
        self._clear(at_ns)
        return load

    def restart(self, now_ns: int) -> None:
        """Begin to measure at `now_ns`. The counts since the last close stay."""
        self._area_ns = 0
        self._at_ns = now_ns

    def _clear(self, now_ns: int) -> None:
        self._at_ns = now_ns
        self._area_ns = 0
        self.low = self.high = self.in_flight
        self.on_copies_low = self.on_copies_high = self.on_copies_first = self.on_copies
        self.held_high = self.held_on_copies
        self.seen_on_copies = 0
        self.arrivals = self.finished = self.delayed = self.service_ns = 0
        self.billed_ms = self.bytes_in = self.bytes_out = 0
        self.errors_4xx = self.errors_5xx = self.model_errors = 0
        self.no_capacity = self.broken_streams = self.throttled = self.spilled = 0
        self.dropped = 0
        self.token_requests = self.tokens_in = self.tokens_out = 0
        self.by_model: dict[str, PartCounters] = {}
        self.by_tenant: dict[str, PartCounters] = {}
        self.models: ModelCounters | None = None
        self.pairs: PairCounters | None = None
        self.configs: dict[str, ConfigCounters] = {}
        self.containers: dict[str, ConfigCounters] = {}
        self._model: Buckets = {}
        self._overhead: Buckets = {}
        self._first_whole: Buckets = {}
        self._first_model: Buckets = {}
        self._first_overhead: Buckets = {}
        for copy_id in [it for it, copy in self.copies.items() if not copy[0]]:
            del self.copies[copy_id]
        for copy in self.copies.values():
            copy[1:] = (copy[0], *NONE_YET)


def _close_parts(parts: dict[str, PartCounters]) -> PartLoads:
    return {name: it.close() for name, it in parts.items()} if parts else NO_PARTS


def count_answer(copy: list[int], model_ns: int, overhead_ns: int) -> None:
    """Count a copy's answer that was whole after `model_ns`."""
    num, model_sum, model_least, model_most, sum_, least, most = copy[ANSWERS:]
    if not num:
        model_least, least = model_ns, overhead_ns
    copy[ANSWERS:] = (
        num + 1,
        model_sum + model_ns,
        model_ns if model_ns < model_least else model_least,
        model_ns if model_ns > model_most else model_most,
        sum_ + overhead_ns,
        overhead_ns if overhead_ns < least else least,
        overhead_ns if overhead_ns > most else most,
    )


def _outcomes(copy: list[int]) -> CopyOutcomes:
    num = copy[ANSWERS]
    return CopyOutcomes(
        finished=copy[FINISHED],
        errors_4xx=copy[ERRORS_4XX],
        errors_5xx=copy[ERRORS_5XX],
        model_errors=copy[MODEL_ERRORS],
        broken_streams=copy[BROKEN],
        model_latency_us=_to_statistic_set(num, *copy[ANSWERS + 1 : ANSWERS + 4]) if num else None,
        overhead_latency_us=_to_statistic_set(num, *copy[ANSWERS + 4 :]) if num else None,
    )


def _to_statistic_set(num: int, sum_ns: int, least_ns: int, most_ns: int) -> StatisticSet:
    """Times in microseconds."""
    return StatisticSet(
        sample_count=num, sum=sum_ns / 1000, minimum=least_ns / 1000, maximum=most_ns / 1000
    )


def _count(buckets: Buckets, value_ns: int) -> None:
    spare = value_ns.bit_length() - KEPT_BITS
    low_ns = value_ns >> spare << spare if spare > 0 else value_ns
    buckets[low_ns] = buckets.get(low_ns, 0) + 1


def _distribution(buckets: Buckets) -> Distribution:
    """The buckets' middles, in microseconds."""
    if not buckets:
        return Distribution()
    ordered = sorted(buckets)
    return Distribution(
        values=tuple(_middle_us(it) for it in ordered),
        counts=tuple(buckets[it] for it in ordered),
    )


def _middle_us(low_ns: int) -> float:
    spare = max(0, low_ns.bit_length() - KEPT_BITS)
    return (low_ns + (1 << spare) / 2) / 1000
