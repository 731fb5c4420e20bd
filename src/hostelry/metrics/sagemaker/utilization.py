"""Utilization of instances and reservations in per cent, between two censuses.

Source: SageMaker developer guide, "Monitor Amazon SageMaker AI with Amazon CloudWatch", tables of
/aws/sagemaker/Endpoints, /aws/sagemaker/TransformJobs and /aws/sagemaker/InferenceComponents.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hostelry.domain.copy import GpuUse
from hostelry.domain.hidden_endpoint import HiddenKind, find_hidden_kind, get_owner
from hostelry.domain.load import LoadKey
from hostelry.domain.metric import (
    AI_RECOMMENDATION_NAMESPACE,
    COMPONENT_NAMESPACE,
    ENDPOINT_NAMESPACE,
    RECOMMENDATION_NAMESPACE,
    TRANSFORM_NAMESPACE,
    Metric,
    Sample,
)
from hostelry.metrics.sagemaker.census import (
    Census,
    ComponentCensus,
    CopyUsage,
    InstanceCapacity,
    ScopedSample,
    VariantCensus,
    find_metrics,
    get_host_key,
    move_to_period,
)
from hostelry.metrics.sagemaker.enhanced import ServingLocation, accelerator_names

LOADED_MODELS = "LoadedModelCount"
JOB_NAMESPACES = {
    HiddenKind.TRANSFORM: TRANSFORM_NAMESPACE,
    HiddenKind.RECOMMENDATION: RECOMMENDATION_NAMESPACE,
    HiddenKind.AI_RECOMMENDATION: AI_RECOMMENDATION_NAMESPACE,
}
Used = Mapping[str, float]  # CPUs by copy id


def cpus_used(before: Census, after: Census) -> dict[str, float]:
    """CPUs that each copy kept busy between two censuses, or since a restart.

    Copies without two measurements are left out.
    """
    earlier = {it.copy_id: it for it in _copies(before)}
    used = {}
    for copy in _copies(after):
        was = earlier.get(copy.copy_id)
        if was is None or was.cpu_s is None or copy.cpu_s is None or copy.cpu_at <= was.cpu_at:
            continue
        spent_s = copy.cpu_s - was.cpu_s if copy.cpu_s >= was.cpu_s else copy.cpu_s
        used[copy.copy_id] = spent_s / (copy.cpu_at - was.cpu_at)
    return used


def utilization(at: int, census: Census, used: Used) -> Iterator[ScopedSample]:
    """Yield the measured utilization and reservation of all variants and components."""
    for key, variant in census.variants.items():
        for scoped in _sample_variant(at, key, variant, used, census.disk_use):
            yield move_to_period(scoped, variant.metrics.period_s)
    for key, component in census.components.items():
        metrics = find_metrics(key, census)
        pools = (
            census.variants[get_host_key(key)].pools if get_host_key(key) in census.variants else ()
        )
        for scoped in _sample_component(at, key, component, used, by_type=bool(pools)):
            yield move_to_period(scoped, metrics.period_s)
        for copy in component.copies if metrics.is_enhanced and component.base is None else ():
            for scoped in _sample_container(at, key, component, copy, used):
                yield move_to_period(scoped, metrics.period_s)

    for key, transform in census.transforms.items():
        for scoped in _sample_transform(at, key, transform, used):
            yield move_to_period(scoped, transform.metrics.period_s)


def _sample_transform(
    at: int, key: LoadKey, transform: VariantCensus, used: Used
) -> Iterator[ScopedSample]:
    """Utilization of each instance of a job's hidden endpoint."""
    kind, owner = find_hidden_kind(key.endpoint_name), get_owner(key.endpoint_name)
    assert kind is not None, "only hidden endpoints are counted apart"
    namespace = JOB_NAMESPACES[kind]
    for room in transform.instances:
        copies = [it for it in transform.copies if it.instance_id == room.id]
        host = {"Host": f"{owner}/{room.id}"}
        for name, value in _sample_instance(room, copies, used, takes_components=False):
            yield key.scope, _sample(namespace, name, host, at, (value,))


def _sample_variant(
    at: int, key: LoadKey, variant: VariantCensus, used: Used, disk_use: float | None
) -> Iterator[ScopedSample]:
    by_instance: dict[str, list[CopyUsage]] = {it.id: [] for it in variant.instances}
    for copy in variant.copies:
        by_instance.setdefault(copy.instance_id, []).append(copy)
    found: dict[tuple[str | None, str], list[float]] = {}
    disk = () if disk_use is None else (("DiskUtilization", 100 * disk_use),)
    for room in variant.instances:
        copies = by_instance[room.id]
        parts = (*_sample_instance(room, copies, used, variant.takes_components), *disk)
        for name, value in parts:
            for kind in (None, room.instance_type) if variant.pools else (None,):
                found.setdefault((kind, name), []).append(value)
        if variant.metrics.is_enhanced:
            own = ServingLocation(key, room.id).dimensions
            for name, value in parts:
                yield key.scope, _sample(ENDPOINT_NAMESPACE, name, own, at, (value,))
            gpus = [gpu for copy in copies for gpu in copy.gpus]
            for names, name, value in _sample_each_gpu(own, gpus, variant.takes_components):
                yield key.scope, _sample(ENDPOINT_NAMESPACE, name, names, at, (value,))
    for (kind, name), values in found.items():
        own = ServingLocation(key, instance_type=kind).dimensions
        yield key.scope, _sample(ENDPOINT_NAMESPACE, name, own, at, values)


def _sample_instance(
    room: InstanceCapacity, copies: Sequence[CopyUsage], used: Used, takes_components: bool
) -> Iterator[tuple[str, float]]:
    shape, reserved = room.shape, room.reserved
    known = [used[it.copy_id] for it in copies if it.copy_id in used]
    if known or not copies:
        yield "CPUUtilization", 100 * sum(known)
        if takes_components and shape.cpus:
            yield "CPUUtilizationNormalized", 100 * sum(known) / shape.cpus
    held = [it.memory_bytes for it in copies if it.memory_bytes is not None]
    if shape.memory_bytes and (held or not copies):
        yield "MemoryUtilization", 100 * sum(held) / shape.memory_bytes
    models = [it.loaded_models for it in copies if it.loaded_models is not None]
    if models:
        yield LOADED_MODELS, sum(models)
    yield from _sum_gpus([gpu for copy in copies for gpu in copy.gpus], takes_components)
    if not takes_components:
        return
    parts = (
        ("CPUReservation", reserved.cpus, shape.cpus),
        ("MemoryReservation", reserved.memory_bytes, shape.memory_bytes),
        ("GPUReservation", reserved.accelerators, shape.accelerators),
    )
    for name, part, whole in parts:
        if whole:
            yield name, 100 * part / whole


def _sum_gpus(seen: Iterable[GpuUse], takes_components: bool) -> Iterator[tuple[str, float]]:
    """Yield sums over the devices that copies see, each counted once."""
    gpus = {it.device: it for it in seen}.values()
    if not gpus:
        return
    busy, memory = sum(it.busy_percent for it in gpus), sum(it.memory_percent for it in gpus)
    yield "GPUUtilization", busy
    yield "GPUMemoryUtilization", memory
    if takes_components:
        yield "GPUUtilizationNormalized", busy / len(gpus)
        yield "GPUMemoryUtilizationNormalized", memory / len(gpus)


def _sample_each_gpu(
    names: Mapping[str, str], seen: Iterable[GpuUse], takes_components: bool
) -> Iterator[tuple[Mapping[str, str], str, float]]:
    """(dimensions, name, value) of each device by itself."""
    for gpu in {it.device: it for it in seen}.values():
        for each in accelerator_names(names, gpu.device):
            for name, value in _sum_gpus((gpu,), takes_components):
                yield each, name, value


def _sample_component(
    at: int, key: LoadKey, component: ComponentCensus, used: Used, *, by_type: bool
) -> Iterator[ScopedSample]:
    if component.base is not None or key.component_name is None:
        return
    found: dict[tuple[str | None, str], list[float]] = {}
    for copy in component.copies:
        for name, value in _sample_copy(component, copy, used):
            for kind in (None, copy.instance_type) if by_type else (None,):
                found.setdefault((kind, name), []).append(value)
    for (kind, name), values in found.items():
        own = ServingLocation(key, instance_type=kind).dimensions
        yield key.scope, _sample(COMPONENT_NAMESPACE, name, own, at, values)


def _sample_container(
    at: int, key: LoadKey, component: ComponentCensus, copy: CopyUsage, used: Used
) -> Iterator[ScopedSample]:
    own = ServingLocation(key, copy.instance_id, copy.copy_id).dimensions
    for name, value in _sample_copy(component, copy, used):
        yield key.scope, _sample(COMPONENT_NAMESPACE, name, own, at, (value,))
    for names, name, value in _sample_each_gpu(own, copy.gpus, takes_components=True):
        if name.endswith("Normalized"):
            yield key.scope, _sample(COMPONENT_NAMESPACE, name, names, at, (value,))


def _sample_copy(
    component: ComponentCensus, copy: CopyUsage, used: Used
) -> Iterator[tuple[str, float]]:
    """Utilization of a copy's reservation, or of its instance if it reserves nothing."""
    cpus = component.reserved.cpus or copy.limit.cpus
    if copy.copy_id in used and cpus:
        yield "CPUUtilizationNormalized", 100 * used[copy.copy_id] / cpus
    memory_bytes = component.reserved.memory_bytes or copy.limit.memory_bytes
    if copy.memory_bytes is not None and memory_bytes:
        yield "MemoryUtilizationNormalized", 100 * copy.memory_bytes / memory_bytes
    for name, value in _sum_gpus(copy.gpus, takes_components=True):
        if name.endswith("Normalized"):
            yield name, value


def _copies(census: Census) -> Iterable[CopyUsage]:
    hosts = (*census.variants.values(), *census.transforms.values())
    return (copy for variant in hosts for copy in variant.copies)


def _sample(
    namespace: str, name: str, dimensions: Mapping[str, str], at: int, values: Sequence[float]
) -> Sample:
    return Sample(
        metric=Metric.of(namespace, name, dimensions),
        at=at,
        values=tuple(values),
        counts=(1.0,) * len(values),
        unit="None" if name == LOADED_MODELS else "Percent",
    )
