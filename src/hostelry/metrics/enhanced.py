"""Enhanced metrics: what each instance, container and accelerator does, by dimensions of its own.

An endpoint has them whose configuration asks for them. Accelerators go by both of the names that
AWS has for them.

Source: SageMaker developer guide, "Amazon SageMaker AI enhanced metrics for inference endpoints".
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.metric import MODEL_NAMESPACE, Metric, Sample
from hostelry.metrics.census import Census, VariantCensus, hosts_of
from hostelry.metrics.pace import Told, paced

GAUGE_PERIOD_S = 10
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


def places(load: SecondLoad, census: Census) -> Mapping[Place, int]:
    """How many of a load's requests went where: to each container, and to each instance.

    None of an endpoint without enhanced metrics, nor those on copies that have left the routes.
    """
    variant = _enhanced(load.key, census)
    if variant is None or not load.arrivals_by_copy:
        return {}
    instance_of = {it.copy_id: it.instance_id for it in variant.copies}
    found: Counter[Place] = Counter()
    for copy_id, count in load.arrivals_by_copy.items():
        if copy_id in instance_of:
            instance_id = instance_of[copy_id]
            found[Place(variant.key, instance_id)] += count
            if load.key.component_name is not None:
                found[Place(load.key, instance_id, copy_id)] += count
    return found


def invocations_by_place(load: SecondLoad, census: Census) -> Iterator[Told]:
    """Invocations of each container and each instance; one that another took over is on both."""
    for place, count in places(load, census).items():
        yield _told("Invocations", place, load.second, Counter({1.0: count}), census)


def idle_places(at: int, key: LoadKey, busy: Collection[Place], census: Census) -> Iterator[Told]:
    """A zero for each container, or instance, of a name that no request went to."""
    for place in _places_of(key, census):
        if place not in busy:
            yield _told("Invocations", place, at, Counter({0.0: 1}), census)


def concurrency_by_place(
    period: int, key: LoadKey, most: Mapping[str, Sequence[int]], num_seconds: int, census: Census
) -> Iterator[Told]:
    """The most in flight in each second of a period: of a component's containers, by copy id.

    `most` has those seconds in which a container had some; in the others it had none.
    """
    if key.component_name is None:
        return
    for place in _places_of(key, census):
        seen = Counter(map(float, most.get(place.copy_id or "", ())))
        seen[0.0] += max(0, num_seconds - seen.total())
        scope, sample = _told("ConcurrentRequestsPerCopy", place, period, +seen, census)
        yield paced((scope, sample), GAUGE_PERIOD_S)


def _enhanced(key: LoadKey, census: Census) -> VariantCensus | None:
    variant = census.variants.get(hosts_of(key))
    return variant if variant is not None and variant.metrics.is_enhanced else None


def _places_of(key: LoadKey, census: Census) -> list[Place]:
    variant, component = _enhanced(key, census), census.components.get(key)
    if variant is None:
        return []
    if key.component_name is None:
        return [Place(key, it.id) for it in variant.instances]
    copies = () if component is None else component.copies
    return [Place(key, it.instance_id, it.copy_id) for it in copies]


def _told(name: str, place: Place, at: int, seen: Counter[float], census: Census) -> Told:
    sample = Sample(
        metric=Metric.of(MODEL_NAMESPACE, name, place.dimensions),
        at=at,
        values=tuple(seen),
        counts=tuple(map(float, seen.values())),
    )
    variant = census.variants[hosts_of(place.key)]
    return paced((place.key.scope, sample), variant.metrics.request_period_s)
