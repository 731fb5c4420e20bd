"""Free resources of instances during a plan: CPUs, memory, and each accelerator by id.

The only mutable values of placement, alive for one plan. CPUs are counted in millionths, so that
sums of fractions are exact and independent of their order.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from hostelry.domain.shape import Requirements, Shape
from hostelry.placement.values import CopyRequest, Held, Host

MILLIONTHS = 1_000_000


class Need(msgspec.Struct, frozen=True):
    """Resources that a copy takes: whole accelerators, bytes, millionths of a CPU."""

    accelerators: int
    memory_bytes: int
    cpu_millionths: int


def to_need(requirements: Requirements) -> Need:
    """The resources that a copy with `requirements` takes: of memory, its minimum."""
    return Need(
        int(requirements.accelerators),
        requirements.min_memory_bytes,
        round(requirements.cpus * MILLIONTHS),
    )


def to_needs(request: CopyRequest) -> dict[str, Need]:
    """The resources that the requested copy takes, by instance type."""
    return {name: to_need(it) for name, it in request.requirements_by_type.items()}


def fits_shape(need: Need, shape: Shape) -> bool:
    """Whether an empty instance of `shape` could hold the copy."""
    return (
        need.accelerators <= shape.accelerators
        and need.memory_bytes <= shape.memory_bytes
        and need.cpu_millionths <= round(shape.cpus * MILLIONTHS)
    )


class Room(msgspec.Struct):
    """Free resources of one instance, and its copies by owner, without leaving ones."""

    host: Host
    cpu_millionths: int
    memory_bytes: int
    devices: list[int]
    num_copies: int = 0
    owners: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def free(self) -> Shape:
        """The free resources as a shape, at least 0 each."""
        return Shape(
            cpus=max(0, self.cpu_millionths) / MILLIONTHS,
            memory_bytes=max(0, self.memory_bytes),
            accelerators=len(self.devices),
        )

    def free_need(self) -> Need:
        """The free resources as the most a copy could take, at least 0 each."""
        return Need(len(self.devices), max(0, self.memory_bytes), max(0, self.cpu_millionths))

    def fits(self, need: Need) -> bool:
        """Whether another copy fits."""
        return (
            need.accelerators <= len(self.devices)
            and need.memory_bytes <= self.memory_bytes
            and need.cpu_millionths <= self.cpu_millionths
        )

    def take(self, need: Need, owner: str) -> tuple[int, ...]:
        """Add a copy of `owner`. Return the accelerators that it owns from now on."""
        device_ids = choose_devices(self.devices, need.accelerators)
        self.hold(need, device_ids)
        self.owners[owner] = self.owners.get(owner, 0) + 1
        return device_ids

    def hold(self, need: Need, device_ids: Iterable[int]) -> None:
        """Take resources and exactly these accelerators, even if they are taken already."""
        self.cpu_millionths -= need.cpu_millionths
        self.memory_bytes -= need.memory_bytes
        taken = set(device_ids)
        self.devices = [it for it in self.devices if it not in taken]
        self.num_copies += 1


def copy_room(room: Room) -> Room:
    """A copy of the room, for a plan that may be dropped."""
    return replace(room, owners=dict(room.owners))


def choose_devices(free: Sequence[int], count: int) -> tuple[int, ...]:
    """`count` ids of `free`: the lowest of the shortest run of neighbours that is long enough.

    The lowest ids if no run is long enough. Neighbours are more likely to be linked, and the
    shortest run leaves longer ones whole.
    """
    fitting = [run for run in _find_runs(sorted(free)) if len(run) >= count]
    shortest = min(fitting, key=lambda run: (len(run), run[:1]), default=sorted(free))
    return tuple(shortest[:count])


def _find_runs(ids: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for device_id in ids:
        if runs and runs[-1][-1] == device_id - 1:
            runs[-1].append(device_id)
        else:
            runs.append([device_id])
    return runs


def build_rooms(hosts: Iterable[Host], held: Iterable[Held]) -> list[Room]:
    """The free resources of each instance, by instance id. Copies on other instances are ignored.

    A copy that names fewer accelerators than it reserves, or some that another copy names, holds
    the lowest free ones instead: no more are free than the declared shape allows.
    """
    return _fill_rooms(hosts, held)[0]


def assign_device_ids(hosts: Iterable[Host], held: Iterable[Held]) -> Mapping[str, tuple[int, ...]]:
    """Accelerators by copy id: as the copy names them, or as `build_rooms` assigns them."""
    return _fill_rooms(hosts, held)[1]


def _fill_rooms(
    hosts: Iterable[Host], held: Iterable[Held]
) -> tuple[list[Room], Mapping[str, tuple[int, ...]]]:
    found = {it.instance_id: _build_empty_room(it) for it in hosts}
    device_ids: dict[str, tuple[int, ...]] = {}
    for copy in sorted(held, key=_named_first):
        if copy.instance_id in found:
            device_ids[copy.copy_id] = _hold(found[copy.instance_id], copy)
    return [found[it] for it in sorted(found)], device_ids


def _named_first(held: Held) -> tuple[bool, str]:
    return (not held.device_ids, held.copy_id)


def _build_empty_room(host: Host) -> Room:
    return Room(
        host=host,
        cpu_millionths=round(host.shape.cpus * MILLIONTHS),
        memory_bytes=host.shape.memory_bytes,
        devices=list(range(host.shape.accelerators)),
    )


def _hold(room: Room, held: Held) -> tuple[int, ...]:
    need = to_need(held.requirements)
    named = [it for it in held.device_ids if it in room.devices]
    unnamed = [it for it in room.devices if it not in named]
    device_ids = (*named, *unnamed[: max(0, need.accelerators - len(named))])
    room.hold(need, device_ids)
    if not held.leaving:
        room.owners[held.owner] = room.owners.get(held.owner, 0) + 1
    return device_ids
