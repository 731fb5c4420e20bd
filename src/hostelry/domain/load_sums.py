"""Sums of loads: over workers in the same second, and over seconds of the same worker."""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from hostelry.domain.load import (
    EMPTY,
    NO_CONFIGS,
    NO_DIVERGENCE,
    NO_MODEL_LOADS,
    NO_PARTS,
    OutcomesByCopy,
    SecondLoad,
    add_configs,
    add_model_loads,
    add_outcomes,
    add_parts,
    merge,
)

NO_COPIES: Mapping[str, int] = {}
NO_OUTCOMES: OutcomesByCopy = {}


def side_by_side(one: SecondLoad, other: SecondLoad) -> SecondLoad:
    """Add up the loads of two workers for the same name in the same second.

    Means, minima and maxima are added. The true maximum may be lower and the true minimum higher,
    because the workers' extremes may occur at different times.
    """
    return replace(
        _add_counts(one, other),
        in_flight_mean=one.in_flight_mean + other.in_flight_mean,
        in_flight_min=one.in_flight_min + other.in_flight_min,
        in_flight_max=one.in_flight_max + other.in_flight_max,
        on_copies_min=one.on_copies_min + other.on_copies_min,
        on_copies_max=one.on_copies_max + other.on_copies_max,
        on_copies_first=one.on_copies_first + other.on_copies_first,
        seen_on_copies=max(one.seen_on_copies, other.seen_on_copies),
        held_max=one.held_max + other.held_max,
        held=one.held + other.held,
        oldest_held_s=max(one.oldest_held_s, other.oldest_held_s),
        in_flight_max_by_copy=_by_copy(one.in_flight_max_by_copy, other.in_flight_max_by_copy, sum),
    )


def one_after_the_other(first: SecondLoad, later: SecondLoad) -> SecondLoad:
    """Merge two seconds of the same worker and name into the first second.

    No count is lost. The mean is the mean of both, which is exact for two seconds.
    """
    return replace(
        _add_counts(first, later),
        in_flight_mean=(first.in_flight_mean + later.in_flight_mean) / 2,
        in_flight_min=min(first.in_flight_min, later.in_flight_min),
        in_flight_max=max(first.in_flight_max, later.in_flight_max),
        on_copies_min=min(first.on_copies_min, later.on_copies_min),
        on_copies_max=max(first.most_on_copies, later.most_on_copies),
        on_copies_first=0,
        seen_on_copies=0,
        held_max=0,
        held=later.held,
        oldest_held_s=later.oldest_held_s,
        in_flight_max_by_copy=_by_copy(
            first.in_flight_max_by_copy, later.in_flight_max_by_copy, max
        ),
    )


def counts_only(load: SecondLoad) -> SecondLoad:
    """The part that can be added to a second that is already published: counts, but no gauges."""
    return replace(
        load,
        in_flight_mean=0.0,
        in_flight_min=0,
        in_flight_max=0,
        on_copies_min=0,
        on_copies_max=0,
        on_copies_first=0,
        seen_on_copies=0,
        held_max=0,
        held=0,
        oldest_held_s=0.0,
        in_flight_max_by_copy=NO_COPIES,
    )


def without_details(load: SecondLoad) -> SecondLoad:
    """The load without latencies and copies, which take most of the memory."""
    return replace(
        load,
        model_latency_us=EMPTY,
        overhead_latency_us=EMPTY,
        first_chunk_latency_us=EMPTY,
        first_chunk_model_latency_us=EMPTY,
        first_chunk_overhead_latency_us=EMPTY,
        in_flight_max_by_copy=NO_COPIES,
        arrivals_by_copy=NO_COPIES,
        first_answer_at_by_copy=NO_COPIES,
        outcomes_by_copy=NO_OUTCOMES,
        by_config=NO_CONFIGS,
        by_container=NO_CONFIGS,
        model_loads=NO_MODEL_LOADS,
        divergence=NO_DIVERGENCE,
        by_model=NO_PARTS,
        by_tenant=NO_PARTS,
    )


def _add_counts(one: SecondLoad, other: SecondLoad) -> SecondLoad:
    return replace(
        one,
        arrivals=one.arrivals + other.arrivals,
        finished=one.finished + other.finished,
        delayed=one.delayed + other.delayed,
        service_s=one.service_s + other.service_s,
        billed_ms=one.billed_ms + other.billed_ms,
        bytes_in=one.bytes_in + other.bytes_in,
        bytes_out=one.bytes_out + other.bytes_out,
        token_requests=one.token_requests + other.token_requests,
        tokens_in=one.tokens_in + other.tokens_in,
        tokens_out=one.tokens_out + other.tokens_out,
        errors_4xx=one.errors_4xx + other.errors_4xx,
        errors_5xx=one.errors_5xx + other.errors_5xx,
        model_errors=one.model_errors + other.model_errors,
        no_capacity=one.no_capacity + other.no_capacity,
        throttled=one.throttled + other.throttled,
        spilled=one.spilled + other.spilled,
        dropped=one.dropped + other.dropped,
        broken_streams=one.broken_streams + other.broken_streams,
        model_latency_us=merge(one.model_latency_us, other.model_latency_us),
        overhead_latency_us=merge(one.overhead_latency_us, other.overhead_latency_us),
        first_chunk_latency_us=merge(one.first_chunk_latency_us, other.first_chunk_latency_us),
        first_chunk_model_latency_us=merge(
            one.first_chunk_model_latency_us, other.first_chunk_model_latency_us
        ),
        first_chunk_overhead_latency_us=merge(
            one.first_chunk_overhead_latency_us, other.first_chunk_overhead_latency_us
        ),
        arrivals_by_copy=_by_copy(one.arrivals_by_copy, other.arrivals_by_copy, sum),
        outcomes_by_copy=add_outcomes(one.outcomes_by_copy, other.outcomes_by_copy),
        by_config=add_configs(one.by_config, other.by_config),
        by_container=add_configs(one.by_container, other.by_container),
        model_loads=add_model_loads(one.model_loads, other.model_loads),
        divergence=one.divergence.plus(other.divergence),
        by_model=add_parts(one.by_model, other.by_model),
        by_tenant=add_parts(one.by_tenant, other.by_tenant),
        first_answer_at_by_copy=_earliest(
            one.first_answer_at_by_copy, other.first_answer_at_by_copy
        ),
    )


def _earliest(one: Mapping[str, float], other: Mapping[str, float]) -> Mapping[str, float]:
    if not one or not other:
        return one or other
    return {it: min(here[it] for here in (one, other) if it in here) for it in {**one, **other}}


def _by_copy(
    one: Mapping[str, int], other: Mapping[str, int], of: Callable[[Iterable[int]], int]
) -> Mapping[str, int]:
    if not one or not other:
        return one or other
    return {it: of((one.get(it, 0), other.get(it, 0))) for it in one.keys() | other.keys()}
