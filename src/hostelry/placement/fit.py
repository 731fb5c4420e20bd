"""First fit: which instance holds which copy, or why none can.

Accounts the declared shape of each instance. What is placed already never moves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hostelry.domain.shape import Requirements, Shape

BYTES_PER_MB = 1024 * 1024
INSTANCES_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An instance that copies may be placed on."""

    instance_id: str
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What a copy that is placed already holds on an instance."""

    instance_id: str
    requirements: Requirements


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Every wanted copy has an instance: `instance_ids` in the order of the wanted copies."""

    instance_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFit:
    """Some wanted copies have no instance: `instance_ids` holds those of the first ones, that do.

    `reason` says what the first copy without an instance asks for and what is free.
    """

    instance_ids: tuple[str, ...]
    reason: str


def place(
    wanted: Sequence[Requirements], hosts: Sequence[Host], reservations: Sequence[Reservation]
) -> Placement | NoFit:
    """The first instance, by id, that can hold each wanted copy beside what is there already.

    The answer depends on the order of `wanted` only.
    """
    free = free_shapes(hosts, reservations)
    chosen: list[str] = []
    for requirements in wanted:
        fitting = (it for it in sorted(free) if fits(requirements, free[it]))
        instance_id = next(fitting, None)
        if instance_id is None:
            return NoFit(instance_ids=tuple(chosen), reason=_shortage(requirements, free))
        free[instance_id] = _less(free[instance_id], requirements)
        chosen.append(instance_id)
    return Placement(instance_ids=tuple(chosen))


def free_shapes(hosts: Sequence[Host], reservations: Sequence[Reservation]) -> dict[str, Shape]:
    """What each instance has left; a reservation on an unknown instance counts nowhere."""
    free = {host.instance_id: host.shape for host in hosts}
    for held in reservations:
        if held.instance_id in free:
            free[held.instance_id] = _less(free[held.instance_id], held.requirements)
    return free


def fits(requirements: Requirements, free: Shape) -> bool:
    """Whether a copy with `requirements` can be added where `free` is left."""
    return (
        requirements.cpus <= free.cpus
        and requirements.min_memory_bytes <= free.memory_bytes
        and requirements.accelerators <= free.accelerators
    )


def never_fits(requirements: Requirements, instance_type: str, shape: Shape) -> str | None:
    """Why a copy can never run on an empty instance of this type; None when it can."""
    if fits(requirements, shape):
        return None
    return f"{_asked(requirements)}; an empty {instance_type} has {_offer(shape)}"


def _less(shape: Shape, requirements: Requirements) -> Shape:
    return Shape(
        cpus=shape.cpus - requirements.cpus,
        memory_bytes=shape.memory_bytes - requirements.min_memory_bytes,
        accelerators=shape.accelerators - int(requirements.accelerators),
    )


def _shortage(requirements: Requirements, free: Mapping[str, Shape]) -> str:
    asked = _asked(requirements)
    if not free:
        return f"{asked}; no instance is there to hold it"
    by_free = sorted(free.items(), key=lambda item: (*_richness(item[1]), item[0]))
    named = [f"{_offer(shape)} on {instance_id}" for instance_id, shape in by_free]
    more = len(named) - INSTANCES_NAMED
    rest = f", and {more} instances with less" if more > 0 else ""
    return f"{asked}; the most free is " + ", then ".join(named[:INSTANCES_NAMED]) + rest


def _richness(shape: Shape) -> tuple[float, float, float]:
    return (-shape.accelerators, -shape.memory_bytes, -shape.cpus)


def _asked(requirements: Requirements) -> str:
    wanted = Shape(
        cpus=requirements.cpus,
        memory_bytes=requirements.min_memory_bytes,
        accelerators=int(requirements.accelerators),
    )
    return "a copy needs " + _offer(wanted)


def _offer(shape: Shape) -> str:
    devices = f"{shape.accelerators} accelerator" + ("" if shape.accelerators == 1 else "s")
    cpus = f"{shape.cpus:g} CPU" + ("" if shape.cpus == 1 else "s")
    return f"{devices}, {shape.memory_bytes // BYTES_PER_MB} MB, {cpus}"
