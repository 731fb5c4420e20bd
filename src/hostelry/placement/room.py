"""What instances have free while a plan is made: CPUs, memory, and each accelerator by its id.

The only mutable values of placement; they live as long as one plan. CPUs are counted in millionths
so that sums of fractions are exact and do not depend on their order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hostelry.domain.shape import Requirements, Shape
from hostelry.placement.values import CopyRequest, Held, Host

MILLIONTHS = 1_000_000


@dataclass(frozen=True, slots=True)
class Need:
    """What a copy takes of an instance: whole accelerators, bytes, millionths of a CPU."""

    accelerators: int
    memory_bytes: int
    cpu_millionths: int


def need_of(requirements: Requirements) -> Need:
    """What a copy with `requirements` takes; only its minimum of memory is reserved."""
    return Need(
        int(requirements.accelerators),
        requirements.min_memory_bytes,
        round(requirements.cpus * MILLIONTHS),
    )


def needs_of(request: CopyRequest) -> dict[str, Need]:
    """What such a copy takes on each type of instance that can hold it."""
    return {name: need_of(it) for name, it in request.requirements_by_type.items()}


def fits_shape(need: Need, shape: Shape) -> bool:
    """Whether an empty instance of `shape` could hold it."""
    return (
        need.accelerators <= shape.accelerators
        and need.memory_bytes <= shape.memory_bytes
        and need.cpu_millionths <= round(shape.cpus * MILLIONTHS)
    )


@dataclass(slots=True)
class Room:
    """One instance's free resources, and whose copies it holds (not those on their way out)."""

    host: Host
    cpu_millionths: int
    memory_bytes: int
    devices: list[int]
    num_copies: int = 0
    owners: dict[str, int] = field(default_factory=dict)

    @property
    def free(self) -> Shape:
        """What is free, as a shape; never less than nothing."""
        return Shape(
            cpus=max(0, self.cpu_millionths) / MILLIONTHS,
            memory_bytes=max(0, self.memory_bytes),
            accelerators=len(self.devices),
        )

    def free_need(self) -> Need:
        """What is free, as what a copy could take; never less than nothing."""
        return Need(len(self.devices), max(0, self.memory_bytes), max(0, self.cpu_millionths))

    def fits(self, need: Need) -> bool:
        """Whether another copy fits beside what is there."""
        return (
            need.accelerators <= len(self.devices)
            and need.memory_bytes <= self.memory_bytes
            and need.cpu_millionths <= self.cpu_millionths
        )

    def take(self, need: Need, owner: str) -> tuple[int, ...]:
        """Add a copy of `owner`; the accelerators that are its alone from now on."""
        device_ids = chosen_devices(self.devices, need.accelerators)
        self.hold(need, device_ids)
        self.owners[owner] = self.owners.get(owner, 0) + 1
        return device_ids

    def hold(self, need: Need, device_ids: Iterable[int]) -> None:
        """Take resources and these very accelerators, whoever holds them."""
        self.cpu_millionths -= need.cpu_millionths
        self.memory_bytes -= need.memory_bytes
        taken = set(device_ids)
        self.devices = [it for it in self.devices if it not in taken]
        self.num_copies += 1


def copied(room: Room) -> Room:
    """The same room again, for a plan that may be dropped."""
    return replace(room, owners=dict(room.owners))


def chosen_devices(free: Sequence[int], count: int) -> tuple[int, ...]:
    """`count` of the ids in `free`: the shortest run of neighbours that holds them, its lowest.

    Where no run is long enough the lowest ids are taken. Neighbours are the likelier to be linked,
    and the shortest run leaves the longer ones whole.
    """
    fitting = [run for run in _runs(sorted(free)) if len(run) >= count]
    shortest = min(fitting, key=lambda run: (len(run), run[:1]), default=sorted(free))
    return tuple(shortest[:count])


def _runs(ids: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for it in ids:
        if runs and runs[-1][-1] == it - 1:
            runs[-1].append(it)
        else:
            runs.append([it])
    return runs


def rooms(hosts: Iterable[Host], held: Iterable[Held]) -> list[Room]:
    """What each instance has free, by instance id; what is held elsewhere counts nowhere.

    A copy that names fewer accelerators than it reserves, or some that another one names too, holds
    the lowest that are left instead, so that no more are free than the declared shape allows.
    """
    found = {it.instance_id: _empty_room(it) for it in hosts}
    for it in sorted(held, key=_named_first):
        if it.instance_id in found:
            _hold(found[it.instance_id], it)
    return [found[it] for it in sorted(found)]


def device_ids_of(hosts: Iterable[Host], held: Iterable[Held]) -> Mapping[str, tuple[int, ...]]:
    """Which accelerators each copy (by its id) has: those it names, or those counted as its."""
    found = {it.instance_id: _empty_room(it) for it in hosts}
    ids: dict[str, tuple[int, ...]] = {}
    for it in sorted(held, key=_named_first):
        if it.instance_id in found:
            ids[it.copy_id] = _hold(found[it.instance_id], it)
    return ids


def _named_first(held: Held) -> tuple[bool, str]:
    return (not held.device_ids, held.copy_id)


def _empty_room(host: Host) -> Room:
    return Room(
        host=host,
        cpu_millionths=round(host.shape.cpus * MILLIONTHS),
        memory_bytes=host.shape.memory_bytes,
        devices=list(range(host.shape.accelerators)),
    )


def _hold(room: Room, held: Held) -> tuple[int, ...]:
    need = need_of(held.requirements)
    named = [it for it in held.device_ids if it in room.devices]
    unnamed = [it for it in room.devices if it not in named]
    device_ids = (*named, *unnamed[: max(0, need.accelerators - len(named))])
    room.hold(need, device_ids)
    if not held.leaving:
        room.owners[held.owner] = room.owners.get(held.owner, 0) + 1
    return device_ids
