"""Metrics of a variant's parts: each fleet of an update, and each instance type of its pools.

They are published in addition to the metrics of the whole variant. Divided metrics are divided by
the instances or copies of the part. Requests that have come to no copy count for the fleet of the
configuration in service. An instance type without instances has zeros, so that an expression over
all types of the pools has a value.

Source: SageMaker developer guide, "Deploy to multiple instance types with instance pools".
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec.structs import replace

from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.metric import MODEL_NAMESPACE, Metric, Sample
from hostelry.metrics.sagemaker.census import (
    Census,
    ScopedSample,
    VariantCensus,
    get_host_key,
    move_to_period,
)
from hostelry.metrics.sagemaker.enhanced import (
    ServingLocation,
    count_arrivals,
    list_copies,
    serves_requests,
)
from hostelry.metrics.sagemaker.load_metrics import (
    IDLE,
    InFlight,
    concurrency_sample,
    copy_owners,
)


def shares_by_fleet(load: SecondLoad, census: Census) -> Mapping[ServingLocation, float]:
    """The share of a load's requests in flight of each of two fleets. Empty without two fleets.

    The shares follow from the maximum of requests on each copy in the second.
    """
    variant = _shifting(load.key, census)
    if variant is None:
        return {}
    rooms = {it.id: it.config_name for it in variant.instances}
    fleets = {it.copy_id: rooms.get(it.instance_id, "") for it in variant.copies}
    weights: Counter[str] = Counter()
    for copy_id, most in load.in_flight_max_by_copy.items():
        weights[fleets.get(copy_id, "")] += most
    weights.pop("", None)  # copies that have left the routes
    known = +weights or Counter({variant.config_name: 1})
    return {
        ServingLocation(load.key, config_name=name): part / known.total()
        for name, part in known.items()
    }


def invocations_by_fleet(loads: Iterable[SecondLoad], census: Census) -> Iterator[ScopedSample]:
    """InvocationsPerInstance of each fleet. A load may be older than the census."""
    for load in loads:
        variant = _find_model_variant(load.key, census)
        if variant is None or not load.arrivals:
            continue
        arrived = Counter({name: it.arrivals for name, it in load.by_config.items()})
        arrived[variant.config_name] += max(0, load.arrivals - arrived.total())
        for name, num in _sizes(variant).items():
            if arrived[name]:
                yield _per_instance(variant, name, load.second, (1.0 / num, arrived[name]))


def concurrency_by_fleet(
    period: int, key: LoadKey, seen: Callable[[ServingLocation], InFlight], census: Census
) -> Iterator[ScopedSample]:
    """ConcurrentRequestsPerModel of each of two fleets."""
    variant = _shifting(key, census)
    for name, num in () if variant is None else _sizes(variant).items():
        place = ServingLocation(key, config_name=name)
        metric = Metric.of(MODEL_NAMESPACE, "ConcurrentRequestsPerModel", place.dimensions)
        yield key.scope, concurrency_sample(metric, period, seen(place), num)


def idle_fleets(
    at: int, key: LoadKey, arrived: Collection[LoadKey], census: Census
) -> Iterator[ScopedSample]:
    """Zeros of InvocationsPerInstance, if no request arrived."""
    variant = _find_model_variant(key, census)
    if variant is not None and key not in arrived:
        for name in _sizes(variant):
            yield _per_instance(variant, name, at, (0.0, 1))


def _find_model_variant(key: LoadKey, census: Census) -> VariantCensus | None:
    """The variant of that name, if it serves a model."""
    variant = census.variants.get(key)
    return None if variant is None or variant.takes_components else variant


def _shifting(key: LoadKey, census: Census) -> VariantCensus | None:
    """The variant of that name while it has two fleets."""
    variant = _find_model_variant(key, census)
    return None if variant is None or len(variant.config_names) < 2 else variant


def _sizes(variant: VariantCensus) -> Mapping[str, int]:
    """Count the serving instances of each configuration that has instances."""
    return Counter(it.config_name or variant.config_name for it in variant.instances)


def _per_instance(
    variant: VariantCensus, config_name: str, at: int, seen: tuple[float, int]
) -> ScopedSample:
    """A sample of `seen`: the value of each request, and their number."""
    place = ServingLocation(variant.key, config_name=config_name)
    value, count = seen
    sample = Sample(
        metric=Metric.of(MODEL_NAMESPACE, "InvocationsPerInstance", place.dimensions),
        at=at,
        values=(value,),
        counts=(float(count),),
    )
    return move_to_period((variant.key.scope, sample), variant.metrics.request_period_s)


Shares = Mapping[ServingLocation, float]


def shares_by_type(loads: Iterable[SecondLoad], census: Census) -> Mapping[LoadKey, Shares]:
    """The share of each name's requests in flight of each instance type. Empty without pools.

    The shares follow from the maximum of requests on each copy in the second. The requests of a
    base include the requests of its adapters. If all requests wait for a copy, the shares follow
    from the number of copies.
    """
    weights: dict[LoadKey, Counter[str]] = {}
    for load in loads:
        variant = census.variants.get(get_host_key(load.key))
        if variant is None or not variant.pools:
            continue
        types = {it.copy_id: it.instance_type for it in list_copies(load.key, variant, census)}
        seen: Counter[str] = Counter()
        for copy_id, most in load.in_flight_max_by_copy.items():
            seen[types.get(copy_id, "")] += most
        for owner in copy_owners(load.key, census):
            weights.setdefault(owner, Counter()).update(seen)
    found = {}
    for key, weight in weights.items():
        weight.pop("", None)  # copies that have left the routes
        known = +weight or num_by_type(key, census.variants[get_host_key(key)], census)
        found[key] = {
            ServingLocation(key, instance_type=kind): part / known.total()
            for kind, part in known.items()
        }
    return found


def num_by_type(key: LoadKey, variant: VariantCensus, census: Census) -> Counter[str]:
    """Count the instances of a variant, or the copies of a component, by instance type."""
    if key.component_name is None:
        return Counter(it.instance_type for it in variant.instances)
    return Counter(it.instance_type for it in list_copies(key, variant, census))


def places_by_type(load: SecondLoad, census: Census) -> Mapping[ServingLocation, int]:
    """Count a load's requests to each instance type, for each owner of the copies."""
    variant = census.variants.get(get_host_key(load.key))
    if variant is None or not variant.pools:
        return {}
    found: Counter[ServingLocation] = Counter()
    for location, count in count_arrivals(load, census).items():
        if location.instance_type is not None:
            for owner in copy_owners(load.key, census):
                found[replace(location, key=owner)] += count
    return found


def invocations_by_type(loads: Iterable[SecondLoad], census: Census) -> Iterator[ScopedSample]:
    """InvocationsPerInstance and InvocationsPerCopy of each instance type."""
    for load in loads:
        for place, count in places_by_type(load, census).items():
            yield _per_one(place, load.second, count, census)


def concurrency_by_type(
    period: int, key: LoadKey, seen: Callable[[ServingLocation], InFlight], census: Census
) -> Iterator[ScopedSample]:
    """Requests in flight on each instance type. Nothing for a component without copies."""
    name = (
        "ConcurrentRequestsPerModel" if key.component_name is None else "ConcurrentRequestsPerCopy"
    )
    for place, num in _places(key, census):
        metric = Metric.of(MODEL_NAMESPACE, name, place.dimensions)
        here = seen(place) if num else IDLE
        yield key.scope, concurrency_sample(metric, period, here, num or 1)


def idle_types(
    at: int, key: LoadKey, busy: Collection[ServingLocation], census: Census
) -> Iterator[ScopedSample]:
    """Zeros of InvocationsPerInstance or InvocationsPerCopy, for types without requests."""
    for place, _ in _places(key, census):
        if place not in busy:
            yield _per_one(place, at, 0, census)


def _places(key: LoadKey, census: Census) -> Iterator[tuple[ServingLocation, int]]:
    """Yield each instance type that may serve a name, with its count, if any type serves it."""
    variant = census.variants.get(get_host_key(key))
    if variant is None or not variant.pools or not serves_requests(key, variant):
        return
    nums = num_by_type(key, variant, census)
    if nums:
        for kind in variant.pools:
            yield ServingLocation(key, instance_type=kind), nums[kind]


def _per_one(place: ServingLocation, at: int, count: int, census: Census) -> ScopedSample:
    key, variant = place.key, census.variants[get_host_key(place.key)]
    name = "InvocationsPerInstance" if key.component_name is None else "InvocationsPerCopy"
    num = num_by_type(key, variant, census)[place.instance_type or ""]
    sample = Sample(
        metric=Metric.of(MODEL_NAMESPACE, name, place.dimensions),
        at=at,
        values=(1.0 / (num or 1) if count else 0.0,),
        counts=(float(count or 1),),
    )
    return move_to_period((key.scope, sample), variant.metrics.request_period_s)
