"""Metrics of each configuration's fleet of a variant, beside those of all its instances.

What is divided, is divided by the instances of that fleet. Requests that have come to no copy
count for the fleet of the configuration in service.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.metric import MODEL_NAMESPACE, Metric, Sample
from hostelry.metrics.sagemaker.census import Census, VariantCensus
from hostelry.metrics.sagemaker.enhanced import ServingLocation
from hostelry.metrics.sagemaker.high_resolution import ScopedSample, paced
from hostelry.metrics.sagemaker.load_metrics import InFlight, concurrency_sample


def shares_by_fleet(load: SecondLoad, census: Census) -> Mapping[ServingLocation, float]:
    """The part of a load's requests in flight that each of two fleets has; empty without two.

    The parts are those of the most requests on each copy in the second.
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
    """InvocationsPerInstance of each fleet; a load may be of seconds before the census."""
    for load in loads:
        variant = _of_model(load.key, census)
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
    """Zeros of InvocationsPerInstance, where no request arrived."""
    variant = _of_model(key, census)
    if variant is not None and key not in arrived:
        for name in _sizes(variant):
            yield _per_instance(variant, name, at, (0.0, 1))


def _of_model(key: LoadKey, census: Census) -> VariantCensus | None:
    """The variant of that name, where it serves requests itself."""
    variant = census.variants.get(key)
    return None if variant is None or variant.takes_components else variant


def _shifting(key: LoadKey, census: Census) -> VariantCensus | None:
    """The variant of that name while it has two fleets."""
    variant = _of_model(key, census)
    return None if variant is None or len(variant.config_names) < 2 else variant


def _sizes(variant: VariantCensus) -> Mapping[str, int]:
    """How many instances of each configuration serve; those without any are left out."""
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
    return paced((variant.key.scope, sample), variant.metrics.request_period_s)
