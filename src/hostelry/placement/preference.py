"""Which of the instances that can hold a copy it should go to: SPREAD and BINPACK as orders.

The least of these keys wins; every key ends in the instance's id, so that there is one answer.

BINPACK: zones within the imbalance, then instances in use, then what leaves the fewest accelerators
free, then the least memory and CPUs. SPREAD: zones within the imbalance, then the fewest copies of
the same owner on the instance, then the fewest in its zone, then as BINPACK.
"""

from collections.abc import Container, Iterable, Mapping

from hostelry.domain.component import PlacementStrategy
from hostelry.placement.room import MILLIONTHS, Need, Room
from hostelry.placement.values import CopyRequest

FitKey = tuple[bool, int, float, str]


def fit_key(room: Room, need: Need) -> FitKey:
    """How much of use another copy would leave on the instance: the less the better."""
    shape = room.host.shape
    cpus = (room.cpu_millionths - need.cpu_millionths) / (MILLIONTHS * max(shape.cpus, 1e-6))
    memory = (room.memory_bytes - need.memory_bytes) / max(shape.memory_bytes, 1)
    accelerators = len(room.devices) - need.accelerators
    return (room.num_copies == 0, accelerators, cpus + memory, room.host.instance_id)


def key_of(room: Room, needs: Mapping[str, Need]) -> FitKey | None:
    """`fit_key` of a copy that takes this on each type; None where the instance cannot hold it."""
    need = needs.get(room.host.instance_type)
    return fit_key(room, need) if need is not None and room.fits(need) else None


def zone_excess(request: CopyRequest, by_zone: Mapping[str, int]) -> dict[str, int]:
    """By how much one more copy in a zone would pass the imbalance allowed; 0: not at all.

    `by_zone` has the owner's copies in each zone that could hold one. PERMISSIVE: a zone over the
    limit comes later, and is never refused.
    """
    if request.max_imbalance is None and request.strategy is PlacementStrategy.BINPACK:
        return dict.fromkeys(by_zone, 0)
    allowed = request.max_imbalance or 0
    fewest = min(by_zone.values(), default=0)
    return {zone: max(0, count + 1 - fewest - allowed) for zone, count in by_zone.items()}


def copies_by_zone(
    owner: str, rooms: Iterable[Room], instance_types: Container[str]
) -> dict[str, int]:
    """How many copies the owner has in each zone that has an instance of one of these types."""
    rooms = tuple(rooms)
    counts = {it.host.zone: 0 for it in rooms if it.host.instance_type in instance_types}
    for room in rooms:
        if room.host.zone in counts:
            counts[room.host.zone] += room.owners.get(owner, 0)
    return counts


def best_room(
    request: CopyRequest, rooms: list[Room], keys: list[FitKey | None], by_zone: Mapping[str, int]
) -> int | None:
    """The position of the instance the copy goes to; None where no key says that it fits."""
    excess = zone_excess(request, by_zone)
    best, found = None, None
    spread = request.strategy is PlacementStrategy.SPREAD
    owner = request.owner
    for position, fit in enumerate(keys):
        if fit is None:
            continue
        room = rooms[position]
        zone = room.host.zone
        mine = (room.owners.get(owner, 0), by_zone[zone]) if spread else (0, 0)
        key = (excess[zone], mine, fit)
        if best is None or key < best:
            best, found = key, position
    return found
