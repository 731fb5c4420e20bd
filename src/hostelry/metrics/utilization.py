"""What copies use of their instances and reservations, in per cent, from one census to the next.

Source: SageMaker developer guide, "Monitor Amazon SageMaker AI with Amazon CloudWatch", tables of
/aws/sagemaker/Endpoints and /aws/sagemaker/InferenceComponents.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hostelry.domain.copy import GpuUse
from hostelry.domain.load import LoadKey
from hostelry.domain.metric import COMPONENT_NAMESPACE, ENDPOINT_NAMESPACE, Metric, Sample
from hostelry.metrics.census import Census, ComponentCensus, CopyUse, InstanceRoom, VariantCensus
from hostelry.metrics.publish import Told

Used = Mapping[str, float]  # CPUs by copy id


def cpus_used(before: Census, after: Census) -> dict[str, float]:
    """How many CPUs each copy kept busy between two censuses; one that was begun anew, since then.

    A copy that was not there before, or that nothing new is known of, is left out.
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


def utilization(at: int, census: Census, used: Used) -> Iterator[Told]:
    """Utilization and reservation of every variant and component; what is not known is left out."""
    for key, variant in census.variants.items():
        yield from _of_variant(at, key, variant, used, census.disk_use)
    for key, component in census.components.items():
        yield from _of_component(at, key, component, used)


def _of_variant(
    at: int, key: LoadKey, variant: VariantCensus, used: Used, disk_use: float | None
) -> Iterator[Told]:
    dimensions = {"EndpointName": key.endpoint_name, "VariantName": key.variant_name}
    by_instance: dict[str, list[CopyUse]] = {it.id: [] for it in variant.instances}
    for copy in variant.copies:
        by_instance.setdefault(copy.instance_id, []).append(copy)
    found: dict[str, list[float]] = {}
    for room in variant.instances:
        for name, value in _of_instance(room, by_instance[room.id], used, variant.takes_components):
            found.setdefault(name, []).append(value)
        if disk_use is not None:
            found.setdefault("DiskUtilization", []).append(100 * disk_use)
    for name, values in found.items():
        yield key.scope, _sample(ENDPOINT_NAMESPACE, name, dimensions, at, values)


def _of_instance(
    room: InstanceRoom, copies: Sequence[CopyUse], used: Used, takes_components: bool
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
    yield from _of_gpus([gpu for copy in copies for gpu in copy.gpus], takes_components)
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


def _of_gpus(seen: Iterable[GpuUse], takes_components: bool) -> Iterator[tuple[str, float]]:
    """Of the devices that copies see, each once; nothing where nothing is known."""
    gpus = {it.device: it for it in seen}.values()
    if not gpus:
        return
    busy, memory = sum(it.busy_percent for it in gpus), sum(it.memory_percent for it in gpus)
    yield "GPUUtilization", busy
    yield "GPUMemoryUtilization", memory
    if takes_components:
        yield "GPUUtilizationNormalized", busy / len(gpus)
        yield "GPUMemoryUtilizationNormalized", memory / len(gpus)


def _of_component(at: int, key: LoadKey, component: ComponentCensus, used: Used) -> Iterator[Told]:
    if component.base is not None or key.component_name is None:
        return
    reserved, copies = component.reserved, component.copies
    dimensions = {"InferenceComponentName": key.component_name}
    busy = [used[it.copy_id] for it in copies if it.copy_id in used]
    held = [it.memory_bytes for it in copies if it.memory_bytes is not None]
    parts = (
        ("CPUUtilizationNormalized", busy, reserved.cpus),
        ("MemoryUtilizationNormalized", held, reserved.memory_bytes),
    )
    for name, uses, whole in parts:
        if uses and whole:
            values = [100 * it / whole for it in uses]
            yield key.scope, _sample(COMPONENT_NAMESPACE, name, dimensions, at, values)
    found: dict[str, list[float]] = {}
    for copy in copies:
        for name, value in _of_gpus(copy.gpus, takes_components=True):
            found.setdefault(name, []).append(value)
    for name in ("GPUUtilizationNormalized", "GPUMemoryUtilizationNormalized"):
        if name in found:
            yield key.scope, _sample(COMPONENT_NAMESPACE, name, dimensions, at, found[name])


def _copies(census: Census) -> Iterable[CopyUse]:
    return (copy for variant in census.variants.values() for copy in variant.copies)


def _sample(
    namespace: str, name: str, dimensions: Mapping[str, str], at: int, values: Sequence[float]
) -> Sample:
    return Sample(
        metric=Metric.of(namespace, name, dimensions),
        at=at,
        values=tuple(values),
        counts=(1.0,) * len(values),
        unit="Percent",
    )
