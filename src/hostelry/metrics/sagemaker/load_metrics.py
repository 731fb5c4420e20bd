"""SageMaker's metrics of requests, from loads: names, units and dimensions of the samples.

Source: SageMaker developer guide, "Monitor Amazon SageMaker AI with Amazon CloudWatch".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from hostelry.domain.data_capture import CaptureCounts
from hostelry.domain.load import ConfigLoad, LoadKey, SecondLoad, add_configs, subtract
from hostelry.domain.metric import (
    MODEL_NAMESPACE,
    OWN_NAMESPACE,
    Metric,
    Sample,
    StatisticSet,
)
from hostelry.domain.scope import Scope
from hostelry.metrics.sagemaker.census import (
    Census,
    ScopedSample,
    find_metrics,
    get_host_key,
    move_to_period,
)

GAUGE_PERIOD_S = 10
MICROSECONDS = "Microseconds"
Dimensions = tuple[tuple[str, str], ...]


class MetricField(msgspec.Struct, frozen=True):
    """A metric and the field of a load that it is taken from."""

    name: str
    field: str


LATENCIES = (
    MetricField("ModelLatency", "model_latency_us"),
    MetricField("OverheadLatency", "overhead_latency_us"),
    MetricField("FirstChunkLatency", "first_chunk_latency_us"),
    MetricField("FirstChunkModelLatency", "first_chunk_model_latency_us"),
    MetricField("FirstChunkOverheadLatency", "first_chunk_overhead_latency_us"),
)
# Each request that ended is a sample of 0 or 1.
OUTCOMES = (
    MetricField("Invocation4XXErrors", "errors_4xx"),
    MetricField("Invocation5XXErrors", "errors_5xx"),
    MetricField("InvocationModelErrors", "model_errors"),
    MetricField("MidStreamErrors", "broken_streams"),
)
MODEL_TIMES = (
    MetricField("ModelLoadingWaitTime", "waiting_us"),
    MetricField("ModelDownloadingTime", "downloading_us"),
    MetricField("ModelLoadingTime", "loading_us"),
    MetricField("ModelUnloadingTime", "unloading_us"),
)
CONTAINER_LATENCIES = (
    MetricField("ContainerLatency", "model_latency_us"),
    MetricField("OverheadLatency", "overhead_latency_us"),
)
ONE_ZERO = ((0.0,), (1.0,))
NO_CAPACITY = "NoCapacityInvocationFailures"


def list_dimensions(key: LoadKey, census: Census) -> tuple[Dimensions, ...]:
    """The sets of dimensions of a name's metrics."""
    if key.component_name is not None:
        return ((("InferenceComponentName", key.component_name),),)
    own = (("EndpointName", key.endpoint_name), ("VariantName", key.variant_name))
    variant = census.variants.get(key)
    if variant is None:
        return (own,)
    return (own, *((("EndpointConfigName", it), *own) for it in variant.config_names))


def _whole_dimensions(key: LoadKey, census: Census) -> tuple[Dimensions, ...]:
    """The sets of dimensions of requests in flight, divided by all copies or instances.

    While two configurations serve, `fleets` publishes the metrics of each.
    """
    own, *configs = list_dimensions(key, census)
    return (own, *configs) if len(configs) <= 1 else (own,)


def fleet_dimensions(key: LoadKey, census: Census) -> tuple[Dimensions, ...]:
    """Further dimensions of a component's requests: the current fleet of its endpoint.

    Source: SageMaker developer guide, "Auto-Rollback Configuration and Monitoring": alarms on
    metrics with EndpointConfigName watch the new fleet alone.
    """
    variant = census.variants.get(get_host_key(key))
    if variant is None or not variant.takes_components:
        return ()
    return list_dimensions(variant.key, census)[1:]


def requests(load: SecondLoad, census: Census) -> Iterator[ScopedSample]:
    """Metrics of one name's requests in one second, or in several merged ones."""
    key = load.key
    if load.no_capacity and key.component_name is not None:
        (dimensions,) = list_dimensions(key, census)
        found = _build_sample(NO_CAPACITY, dimensions, load.second, (1.0,), (load.no_capacity,))
        yield key.scope, replace(found, resolution_s=1)
    period_s = find_metrics(key, census).request_period_s
    for scoped in _sample_requests(load, census):
        yield move_to_period(scoped, period_s)


def _sample_requests(load: SecondLoad, census: Census) -> Iterator[ScopedSample]:
    """Yield the samples of a name, and under EndpointConfigName of each configuration's copies.

    Requests without a known configuration count for the configuration in service.
    """
    own, *configs = (*list_dimensions(load.key, census), *fleet_dimensions(load.key, census))
    parts: list[tuple[Dimensions, SecondLoad | ConfigLoad]] = [(own, load)]
    if load.by_config:
        variant = census.variants.get(load.key)
        rest = {} if variant is None else {variant.config_name: subtract(load, load.by_config)}
        named = add_configs(load.by_config, rest).items()
        parts += [((("EndpointConfigName", name), *own), part) for name, part in named]
    else:
        parts += [(dimensions, load) for dimensions in configs]
    for dimensions, part in parts:
        for sample in _sample_part(dimensions, load.second, part):
            yield load.key.scope, sample
        for sample in _sample_models(dimensions, load) if part is load else ():
            yield load.key.scope, sample
    for name, part in load.by_container.items():
        dimensions = (("ContainerName", name), *own)
        for sample in _sample_part(dimensions, load.second, part, CONTAINER_LATENCIES):
            yield load.key.scope, sample


def _sample_part(
    dimensions: Dimensions,
    at: int,
    part: SecondLoad | ConfigLoad,
    latencies: Iterable[MetricField] = LATENCIES,
) -> Iterator[Sample]:
    if part.arrivals:
        yield _build_sample("Invocations", dimensions, at, (1.0,), (part.arrivals,))
    if part.finished:
        for outcome in OUTCOMES:
            bits = _bits(getattr(part, outcome.field), part.finished)
            yield _build_sample(outcome.name, dimensions, at, *bits)
    for latency in latencies:
        seen = getattr(part, latency.field)
        if seen.values:
            found = _build_sample(latency.name, dimensions, at, seen.values, seen.counts)
            yield replace(found, unit=MICROSECONDS)


def _sample_models(dimensions: Dimensions, load: SecondLoad) -> Iterator[Sample]:
    models, at = load.model_loads, load.second
    if models.lookups:
        bits = _bits(models.hits, models.lookups)
        yield _build_sample("ModelCacheHit", dimensions, at, *bits)
    for time in MODEL_TIMES:
        seen = getattr(models, time.field)
        if seen.values:
            found = _build_sample(time.name, dimensions, at, seen.values, seen.counts)
            yield replace(found, unit=MICROSECONDS)


def invocations_per_copy(loads: Iterable[SecondLoad], census: Census) -> Iterator[ScopedSample]:
    """InvocationsPerInstance and InvocationsPerCopy.

    An adapter's requests count for its base, too, whose copies answer them. A name without copies
    or instances has no such metric. `fleets` publishes them with EndpointConfigName.
    """
    arrivals: dict[tuple[LoadKey, int], int] = {}
    for load in loads:
        for key in copy_owners(load.key, census) if load.arrivals else ():
            arrivals[key, load.second] = arrivals.get((key, load.second), 0) + load.arrivals
    for (key, second), count in arrivals.items():
        yield from _per_copy(key, second, count, census)


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in flight over a period. A base's requests include its adapters' requests."""

    mean: float = 0.0
    least: float = 0
    most: float = 0


IDLE = InFlight()


def concurrency(
    period: int, seen: InFlight, key: LoadKey, census: Census
) -> Iterator[ScopedSample]:
    """Requests in flight over the period from `period`, divided by what could answer them.

    ConcurrentRequestsPerModel is divided by a variant's instances, ConcurrentRequestsPerCopy by a
    component's copies. Without instances or copies nothing is published.
    """
    if key.component_name is None:
        divisor, name = num_instances(key, census), "ConcurrentRequestsPerModel"
    else:
        divisor, name = num_copies(key, census), "ConcurrentRequestsPerCopy"
    if not divisor:
        return
    for dimensions in _whole_dimensions(key, census):
        metric = Metric(namespace=MODEL_NAMESPACE, name=name, dimensions=dimensions)
        yield key.scope, concurrency_sample(metric, period, seen, divisor)


def concurrency_sample(metric: Metric, period: int, seen: InFlight, divisor: int) -> Sample:
    """A period's requests in flight, divided by what could answer them."""
    found = StatisticSet(
        sample_count=GAUGE_PERIOD_S,
        sum=GAUGE_PERIOD_S * seen.mean / divisor,
        minimum=seen.least / divisor,
        maximum=seen.most / divisor,
    )
    return Sample(metric=metric, at=period, statistics=found, resolution_s=1)


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """Events of one name in a period, so that its other metrics are published as zeros.

    `arrived_on_copies` includes requests of its adapters.
    """

    arrived: bool = False
    arrived_on_copies: bool = False
    finished: bool = False
    refused: bool = False


NOTHING = Activity()


def zeros(at: int, key: LoadKey, seen: Activity, census: Census) -> Iterator[ScopedSample]:
    """Zeros for the metrics of a name that had no events in the period from `at`."""
    period_s = find_metrics(key, census).request_period_s
    takes_components = key in census.variants and census.variants[key].takes_components
    if not seen.arrived_on_copies and not takes_components:
        yield from _per_copy(key, at, 0, census)
    for dimensions in (fleet_dimensions if takes_components else list_dimensions)(key, census):
        for sample in _zeros(at, dimensions, seen):
            yield move_to_period((key.scope, sample), period_s)
        if key.component_name is not None and not seen.refused:
            none = _build_sample(NO_CAPACITY, dimensions, at, *ONE_ZERO)
            yield key.scope, replace(none, resolution_s=1)


def _zeros(at: int, dimensions: Dimensions, seen: Activity) -> Iterator[Sample]:
    if not seen.arrived:
        yield _build_sample("Invocations", dimensions, at, *ONE_ZERO)
    if not seen.finished:
        for outcome in OUTCOMES:
            yield _build_sample(outcome.name, dimensions, at, *ONE_ZERO)


def own_metrics(load: SecondLoad, with_copies: bool) -> Iterator[ScopedSample]:
    """Hostelry's own metrics of one second, finer than any of AWS's."""
    key, at = load.key, float(load.second)
    dimensions = list_dimensions(key, Census())[0]
    yield key.scope, own_sample("InFlight", dimensions, at, load.in_flight_mean, "Count")
    yield key.scope, own_sample("Held", dimensions, at, float(load.held), "Count")
    yield key.scope, own_sample("OldestHeld", dimensions, at, load.oldest_held_s, "Seconds")
    yield from own_counts(load)
    if with_copies:
        for copy_id, most in sorted(load.in_flight_max_by_copy.items()):
            by_copy = tuple(sorted((*dimensions, ("CopyId", copy_id))))
            yield key.scope, own_sample("InFlightPerCopy", by_copy, at, float(most), "Count")


def own_counts(load: SecondLoad) -> Iterator[ScopedSample]:
    """Hostelry's own metrics that can be added to a published second."""
    key, at = load.key, float(load.second)
    dimensions = list_dimensions(key, Census())[0]
    yield key.scope, own_sample("Arrivals", dimensions, at, float(load.arrivals), "Count")
    if load.finished:
        mean_s = load.service_s / load.finished
        yield key.scope, own_sample("ServiceTime", dimensions, at, mean_s, "Seconds")
    if load.dropped:
        yield key.scope, own_sample("MirrorsDropped", dimensions, at, float(load.dropped), "Count")


def capacity(second: int, census: Census) -> Iterator[ScopedSample]:
    """The numbers of `Copies` and `Instances` in service."""
    for key, component in census.components.items():
        dimensions = list_dimensions(key, census)[0]
        yield key.scope, own_sample("Copies", dimensions, second, component.num_copies, "Count")
    for key, variant in census.variants.items():
        dimensions = list_dimensions(key, Census())[0]
        num = len(variant.instances)
        yield key.scope, own_sample("Instances", dimensions, second, num, "Count")


def own_sample(name: str, dimensions: Dimensions, at: float, value: float, unit: str) -> Sample:
    """One value of a metric in Hostelry's namespace."""
    metric = Metric(namespace=OWN_NAMESPACE, name=name, dimensions=dimensions)
    return Sample(
        metric=metric, at=float(at), values=(value,), counts=(1.0,), unit=unit, resolution_s=1
    )


def names_in_service(census: Census) -> list[LoadKey]:
    """Names that may get requests, and have metrics also without any."""
    variants = [key for key, it in census.variants.items() if not it.takes_components]
    return [*variants, *census.components]


def num_copies(key: LoadKey, census: Census) -> int:
    """Count the serving copies of a component. 0 if it is not in service."""
    component = census.components.get(key)
    return 0 if component is None else component.num_copies


def num_instances(key: LoadKey, census: Census) -> int:
    """Count the instances of a variant. 0 if it is not in service."""
    variant = census.variants.get(key)
    return 0 if variant is None else len(variant.instances)


def census_base(key: LoadKey, census: Census) -> LoadKey | None:
    """The base of an adapter. None for any other name."""
    component = census.components.get(key)
    return None if component is None else component.base


def by_scope(scoped: Iterable[ScopedSample]) -> Mapping[Scope, Sequence[Sample]]:
    """The samples by scope, in order."""
    found: dict[Scope, list[Sample]] = {}
    for scope, sample in scoped:
        found.setdefault(scope, []).append(sample)
    return found


def copy_owners(key: LoadKey, census: Census) -> tuple[LoadKey, ...]:
    """Names whose copies serve requests for `key`: itself, and for an adapter its base."""
    base = census_base(key, census)
    return (key,) if base is None else (key, base)


def _per_copy(key: LoadKey, second: int, count: int, census: Census) -> Iterator[ScopedSample]:
    """Yield `count` requests, each divided by the copies or instances, or a zero."""
    if key.component_name is None:
        divisor, name = num_instances(key, census), "InvocationsPerInstance"
    else:
        divisor, name = num_copies(key, census), "InvocationsPerCopy"
    if not divisor:
        return
    values = (1.0 / divisor if count else 0.0,)
    dimensions = list_dimensions(key, census)[0]
    scoped = key.scope, _build_sample(name, dimensions, second, values, (count or 1,))
    yield move_to_period(scoped, find_metrics(key, census).request_period_s)


def _bits(num_ones: int, num: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Values and counts of `num` samples of which `num_ones` are 1 and the others 0."""
    num_ones = min(num_ones, num)
    if not num_ones:
        return (0.0,), (num,)
    if num_ones == num:
        return (1.0,), (num,)
    return (0.0, 1.0), (num - num_ones, num_ones)


def _build_sample(
    name: str,
    dimensions: Dimensions,
    at: int,
    values: tuple[float, ...],
    counts: Sequence[float],
) -> Sample:
    metric = Metric(namespace=MODEL_NAMESPACE, name=name, dimensions=dimensions)
    return Sample(metric=metric, at=at, values=values, counts=tuple(counts))


def capture_samples(key: LoadKey, counts: CaptureCounts, at: float) -> Iterator[Sample]:
    """Yield the samples of one report on a variant, including zeros, so that alarms have data."""
    dimensions = {"EndpointName": key.endpoint_name, "VariantName": key.variant_name}
    found: list[tuple[str, float, str]] = []
    if counts.captured or counts.dropped:
        found += [
            ("CapturedRequests", counts.captured, "Count"),
            ("CapturedBytes", counts.captured_bytes, "Bytes"),
            ("CaptureDroppedRequests", counts.dropped, "Count"),
        ]
    if counts.objects or counts.upload_failures:
        found += [
            ("CaptureObjects", counts.objects, "Count"),
            ("CaptureUploadFailures", counts.upload_failures, "Count"),
        ]
    for name, value, unit in found:
        metric = Metric.of(OWN_NAMESPACE, name, dimensions)
        yield Sample(metric=metric, at=at, values=(float(value),), counts=(1.0,), unit=unit)
