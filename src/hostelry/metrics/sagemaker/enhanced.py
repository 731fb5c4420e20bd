"""Enhanced metrics: what each instance, container and accelerator does, by dimensions of its own.

An endpoint has them whose configuration asks for them. Accelerators go by both of the names that
AWS has for them.

Source: SageMaker developer guide, "Amazon SageMaker AI enhanced metrics for inference endpoints".
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hostelry.domain.copy_outcomes import CopyOutcomes
from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.metric import MODEL_NAMESPACE, Metric, Sample, StatisticSet
from hostelry.metrics.sagemaker.census import Census, CopyUse, VariantCensus, hosts_of
from hostelry.metrics.sagemaker.high_resolution import ScopedSample, paced
from hostelry.metrics.sagemaker.load_metrics import (
    GAUGE_PERIOD_S,
    LATENCIES,
    MICROSECONDS,
    OUTCOMES,
)

WHOLE_LATENCIES = LATENCIES[:2]  # those of whole answers
ACCELERATOR_NAMES = ("AcceleratorId", "GpuId")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a name's requests go: a component's container, or, without one, an instance."""

    key: LoadKey
    instance_id: str
    copy_id: str | None = None

    @property
    def dimensions(self) -> Mapping[str, str]:
        """What it is called in metrics."""
        names = {
            "EndpointName": self.key.endpoint_name,
            "VariantName": self.key.variant_name,
            "InstanceId": self.instance_id,
        }
        if self.key.component_name is None or self.copy_id is None:
            return names
        return {
            **names,
            "ContainerId": self.copy_id,
            "InferenceComponentName": self.key.component_name,
        }


def accelerator_names(names: Mapping[str, str], device: str) -> Iterator[Mapping[str, str]]:
    """`names` and the accelerator: one set of dimensions for each way to call it."""
    for name in ACCELERATOR_NAMES:
        yield {**names, name: f"gpu_{device}"}


def arrived_at(load: SecondLoad, census: Census) -> Mapping[Place, int]:
    """How many of a load's requests went to each container, and to each instance.

    None of an endpoint without enhanced metrics, nor those on copies that have left the routes.
    """
    found: Counter[Place] = Counter()
    for copy_id, ways in _ways(load.key, load.arrivals_by_copy, census).items():
        for place in ways:
            found[place] += load.arrivals_by_copy[copy_id]
    return found


def ended_at(load: SecondLoad, census: Census) -> Iterator[tuple[Place, CopyOutcomes]]:
    """What came of a load's requests, at each container and each instance; as `arrived_at`."""
    for copy_id, ways in _ways(load.key, load.outcomes_by_copy, census).items():
        for place in ways:
            yield place, load.outcomes_by_copy[copy_id]


def requests_by_place(load: SecondLoad, census: Census) -> Iterator[ScopedSample]:
    """Requests of each container and each instance; one that another took over is on both."""
    at = load.second
    for place, count in arrived_at(load, census).items():
        yield _told("Invocations", place, at, Counter({1.0: count}), census)
    for place, ended in ended_at(load, census):
        for outcome in OUTCOMES:
            num_ones = min(getattr(ended, outcome.field), ended.finished)
            bits = Counter({0.0: ended.finished - num_ones, 1.0: num_ones})
            yield _told(outcome.name, place, at, +bits, census)
        for latency in WHOLE_LATENCIES:
            seen: StatisticSet | None = getattr(ended, latency.field)
            if seen is not None:
                scope, sample = _told(latency.name, place, at, Counter(), census)
                yield scope, replace(sample, statistics=seen, unit=MICROSECONDS)


def idle_places(
    at: int, key: LoadKey, busy: Collection[Place], ended: Collection[Place], census: Census
) -> Iterator[ScopedSample]:
    """Zeros of each container, or instance, of a name that no request went to, or ended at."""
    for place in _places_of(key, census):
        if place not in busy:
            yield _told("Invocations", place, at, Counter({0.0: 1}), census)
        for outcome in OUTCOMES if place not in ended else ():
            yield _told(outcome.name, place, at, Counter({0.0: 1}), census)


def concurrency_by_place(
    period: int, key: LoadKey, most: Mapping[str, Sequence[int]], num_seconds: int, census: Census
) -> Iterator[ScopedSample]:
    """The most in flight in each second of a period: of containers, or of a model's instances.

    `most` has, by copy id, those seconds in which a copy had some; in the others it had none.
    """
    variant, is_component = _enhanced(key, census), key.component_name is not None
    if variant is None or variant.takes_components != is_component:
        return
    name = "ConcurrentRequestsPerCopy" if is_component else "ConcurrentRequestsPerModel"
    for copy in _copies_of(key, variant, census):
        seen = Counter(map(float, most.get(copy.copy_id, ())))
        seen[0.0] += max(0, num_seconds - seen.total())
        place = Place(key, copy.instance_id, copy.copy_id if is_component else None)
        yield paced(_told(name, place, period, +seen, census), GAUGE_PERIOD_S)


def _ways(
    key: LoadKey, copy_ids: Collection[str], census: Census
) -> Mapping[str, tuple[Place, ...]]:
    """Where what a copy has counts: at its instance, and for a component at its container."""
    variant = _enhanced(key, census) if copy_ids else None
    if variant is None:
        return {}
    found: dict[str, tuple[Place, ...]] = {}
    for copy in _copies_of(key, variant, census):
        if copy.copy_id in copy_ids:
            found[copy.copy_id] = (Place(variant.key, copy.instance_id),)
            if key.component_name is not None:
                found[copy.copy_id] += (Place(key, copy.instance_id, copy.copy_id),)
    return found


def _copies_of(key: LoadKey, variant: VariantCensus, census: Census) -> Sequence[CopyUse]:
    if key.component_name is None:
        return variant.copies
    component = census.components.get(key)
    return () if component is None else component.copies


def _enhanced(key: LoadKey, census: Census) -> VariantCensus | None:
    variant = census.variants.get(hosts_of(key))
    return variant if variant is not None and variant.metrics.is_enhanced else None


def _places_of(key: LoadKey, census: Census) -> list[Place]:
    variant = _enhanced(key, census)
    if variant is None:
        return []
    if key.component_name is None:
        return [Place(key, it.id) for it in variant.instances]
    copies = _copies_of(key, variant, census)
    return [Place(key, it.instance_id, it.copy_id) for it in copies]


def _told(name: str, place: Place, at: int, seen: Counter[float], census: Census) -> ScopedSample:
    sample = Sample(
        metric=Metric.of(MODEL_NAMESPACE, name, place.dimensions),
        at=at,
        values=tuple(seen),
        counts=tuple(map(float, seen.values())),
    )
    variant = census.variants[hosts_of(place.key)]
    return paced((place.key.scope, sample), variant.metrics.request_period_s)
