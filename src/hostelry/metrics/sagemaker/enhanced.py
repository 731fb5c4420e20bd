"""Metrics by the place where requests are served, under additional dimensions.

Instances, containers and accelerators have metrics if the endpoint's configuration enables enhanced
metrics. Accelerators have both of AWS's names. Instance types have metrics if a variant has pools.

Source: SageMaker developer guide, "Amazon SageMaker AI enhanced metrics for inference endpoints"
and "Deploy to multiple instance types with instance pools".
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from hostelry.domain.load import CopyOutcomes, LoadKey, SecondLoad
from hostelry.domain.metric import MODEL_NAMESPACE, Metric, Sample, StatisticSet
from hostelry.metrics.sagemaker.census import (
    Census,
    CopyUsage,
    ScopedSample,
    VariantCensus,
    get_host_key,
    move_to_period,
)
from hostelry.metrics.sagemaker.load_metrics import (
    GAUGE_PERIOD_S,
    LATENCIES,
    MICROSECONDS,
    OUTCOMES,
)

WHOLE_LATENCIES = LATENCIES[:2]  # latencies of whole answers
ACCELERATOR_NAMES = ("AcceleratorId", "GpuId")


class ServingLocation(msgspec.Struct, frozen=True):
    """A place where requests are served: a component's container, or an instance.

    With `instance_type` it is all instances of that type together, with `config_name` the fleet of
    that configuration. Without any of the fields it is all copies that serve the name.
    """

    key: LoadKey
    instance_id: str | None = None
    copy_id: str | None = None
    instance_type: str | None = None
    config_name: str | None = None

    @property
    def dimensions(self) -> Mapping[str, str]:
        """The dimensions of its metrics."""
        key = self.key
        names = {"EndpointName": key.endpoint_name, "VariantName": key.variant_name}
        if self.config_name is not None:
            return {"EndpointConfigName": self.config_name, **names}
        if self.instance_id is None:
            if key.component_name is not None:
                names = {"InferenceComponentName": key.component_name}
            return names | ({"InstanceType": self.instance_type} if self.instance_type else {})
        names["InstanceId"] = self.instance_id
        if self.key.component_name is None or self.copy_id is None:
            return names
        return {
            **names,
            "ContainerId": self.copy_id,
            "InferenceComponentName": self.key.component_name,
        }


def accelerator_names(names: Mapping[str, str], device: str) -> Iterator[Mapping[str, str]]:
    """Yield `names` with each of the two names of an accelerator."""
    for name in ACCELERATOR_NAMES:
        yield {**names, name: f"gpu_{device}"}


def count_arrivals(load: SecondLoad, census: Census) -> Mapping[ServingLocation, int]:
    """Count a load's requests to each container, instance and instance type.

    Empty without enhanced metrics and pools. Copies that have left the routes are left out.
    """
    found: Counter[ServingLocation] = Counter()
    for copy_id, ways in _ways(load.key, load.arrivals_by_copy, census).items():
        for location in ways:
            found[location] += load.arrivals_by_copy[copy_id]
    return found


def list_outcomes(
    load: SecondLoad, census: Census
) -> Iterator[tuple[ServingLocation, CopyOutcomes]]:
    """Yield the outcomes of a load's requests at each place of `count_arrivals`."""
    for copy_id, ways in _ways(load.key, load.outcomes_by_copy, census).items():
        for location in ways:
            yield location, load.outcomes_by_copy[copy_id]


def requests_by_location(load: SecondLoad, census: Census) -> Iterator[ScopedSample]:
    """Yield the samples of requests at each place. A retried request counts on both copies."""
    at = load.second
    for location, count in count_arrivals(load, census).items():
        yield _sample("Invocations", location, at, Counter({1.0: count}), census)
    for location, ended in list_outcomes(load, census):
        for outcome in OUTCOMES:
            num_ones = min(getattr(ended, outcome.field), ended.finished)
            bits = Counter({0.0: ended.finished - num_ones, 1.0: num_ones})
            yield _sample(outcome.name, location, at, +bits, census)
        for latency in WHOLE_LATENCIES:
            seen: StatisticSet | None = getattr(ended, latency.field)
            if seen is not None:
                scope, sample = _sample(latency.name, location, at, Counter(), census)
                yield scope, replace(sample, statistics=seen, unit=MICROSECONDS)


def idle_locations(
    at: int,
    key: LoadKey,
    busy: Collection[ServingLocation],
    ended: Collection[ServingLocation],
    census: Census,
) -> Iterator[ScopedSample]:
    """Yield zeros for a name's places without an arrived or ended request."""
    for location in _list_locations(key, census):
        if location not in busy:
            yield _sample("Invocations", location, at, Counter({0.0: 1}), census)
        for outcome in OUTCOMES if location not in ended else ():
            yield _sample(outcome.name, location, at, Counter({0.0: 1}), census)


def concurrency_by_location(
    period: int, key: LoadKey, most: Mapping[str, Sequence[int]], num_seconds: int, census: Census
) -> Iterator[ScopedSample]:
    """Yield maxima of requests in flight in each second of a period, by container or instance.

    `most` has, by copy id, the maxima of seconds with requests. The other seconds are 0.
    """
    variant, is_component = _find_enhanced(key, census), key.component_name is not None
    if variant is None or variant.takes_components != is_component:
        return
    name = "ConcurrentRequestsPerCopy" if is_component else "ConcurrentRequestsPerModel"
    for copy in list_copies(key, variant, census):
        seen = Counter(map(float, most.get(copy.copy_id, ())))
        seen[0.0] += max(0, num_seconds - seen.total())
        location = ServingLocation(key, copy.instance_id, copy.copy_id if is_component else None)
        yield move_to_period(_sample(name, location, period, +seen, census), GAUGE_PERIOD_S)


def _ways(
    key: LoadKey, copy_ids: Collection[str], census: Census
) -> Mapping[str, tuple[ServingLocation, ...]]:
    """Locations by copy id: the instance, a component's container, and the type in pools."""
    variant = census.variants.get(get_host_key(key)) if copy_ids else None
    if variant is None or not (variant.metrics.is_enhanced or variant.pools):
        return {}
    copies = list_copies(key, variant, census)
    return {
        copy.copy_id: tuple(_locations(key, copy, variant))
        for copy in copies
        if copy.copy_id in copy_ids
    }


def _locations(key: LoadKey, copy: CopyUsage, variant: VariantCensus) -> Iterator[ServingLocation]:
    if variant.metrics.is_enhanced:
        yield ServingLocation(variant.key, copy.instance_id)
        if key.component_name is not None:
            yield ServingLocation(key, copy.instance_id, copy.copy_id)
    if variant.pools:
        yield ServingLocation(key, instance_type=copy.instance_type)


def list_copies(key: LoadKey, variant: VariantCensus, census: Census) -> Sequence[CopyUsage]:
    """The copies that serve a name."""
    if key.component_name is None:
        return variant.copies
    component = census.components.get(key)
    return () if component is None else component.copies


def _find_enhanced(key: LoadKey, census: Census) -> VariantCensus | None:
    variant = census.variants.get(get_host_key(key))
    return variant if variant is not None and variant.metrics.is_enhanced else None


def _list_locations(key: LoadKey, census: Census) -> list[ServingLocation]:
    variant = census.variants.get(get_host_key(key))
    if variant is None:
        return []
    types = variant.pools if serves_requests(key, variant) else ()
    found = [ServingLocation(key, instance_type=it) for it in types]
    if not variant.metrics.is_enhanced:
        return found
    if key.component_name is None:
        return [*found, *(ServingLocation(key, it.id) for it in variant.instances)]
    copies = list_copies(key, variant, census)
    return [*found, *(ServingLocation(key, it.instance_id, it.copy_id) for it in copies)]


def serves_requests(key: LoadKey, variant: VariantCensus) -> bool:
    """True if a name gets requests. A variant that hosts components does not."""
    return variant.takes_components == (key.component_name is not None)


def _sample(
    name: str, location: ServingLocation, at: int, seen: Counter[float], census: Census
) -> ScopedSample:
    sample = Sample(
        metric=Metric.of(MODEL_NAMESPACE, name, location.dimensions),
        at=at,
        values=tuple(seen),
        counts=tuple(map(float, seen.values())),
    )
    variant = census.variants[get_host_key(location.key)]
    return move_to_period((location.key.scope, sample), variant.metrics.request_period_s)
