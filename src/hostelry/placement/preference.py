"""Sort keys of placement: SPREAD and BINPACK among instances, then copies by their size.

by                                                 BINPACK                       SPREAD
------------------------------------------------   ---------------------------   ---------
copies by which the zone exceeds max_imbalance     first, if it is set           first
copies of the same owner on the instance           -                             fewest
copies of the same owner in the zone               -                             fewest
the instance is in use                             yes before no                 likewise
accelerators left free, then memory and CPUs       fewest                        likewise
instance id (so that there is one answer)          lowest                        likewise
"""

from collections.abc import Callable, Container, Iterable, Mapping

from hostelry.domain.component import PlacementStrategy
from hostelry.domain.shape import Shape
from hostelry.placement.room import MILLIONTHS, Need, Room
from hostelry.placement.values import CopyRequest

FitKey = tuple[bool, int, float, str]


def build_fit_key(room: Room, need: Need) -> FitKey:
    """Key of an instance by what another copy would leave free: the least is the best."""
    shape = room.host.shape
    cpus = (room.cpu_millionths - need.cpu_millionths) / (MILLIONTHS * max(shape.cpus, 1e-6))
    memory = (room.memory_bytes - need.memory_bytes) / max(shape.memory_bytes, 1)
    accelerators = len(room.devices) - need.accelerators
    return (room.num_copies == 0, accelerators, cpus + memory, room.host.instance_id)


def get_fit_key(room: Room, needs: Mapping[str, Need]) -> FitKey | None:
    """`build_fit_key` of a copy with these needs by type. None if the instance cannot hold it."""
    need = needs.get(room.host.instance_type)
    return build_fit_key(room, need) if need is not None and room.fits(need) else None


def get_zone_excess(request: CopyRequest, by_zone: Mapping[str, int]) -> dict[str, int]:
    """By how many copies one more in a zone would exceed the allowed imbalance. 0: not at all.

    `by_zone` has the owner's copies in each zone that could hold one. As the balance is PERMISSIVE,
    a zone over the limit only comes later.
    """
    if request.max_imbalance is None and request.strategy is PlacementStrategy.BINPACK:
        return dict.fromkeys(by_zone, 0)
    allowed = request.max_imbalance or 0
    fewest = min(by_zone.values(), default=0)
    return {zone: max(0, count + 1 - fewest - allowed) for zone, count in by_zone.items()}


def count_by_zone(
    owner: str, rooms: Iterable[Room], instance_types: Container[str]
) -> dict[str, int]:
    """The owner's copies by zone, for zones that have an instance of one of these types."""
    rooms = tuple(rooms)
    counts = {it.host.zone: 0 for it in rooms if it.host.instance_type in instance_types}
    for room in rooms:
        if room.host.zone in counts:
            counts[room.host.zone] += room.owners.get(owner, 0)
    return counts


def find_best_room(
    request: CopyRequest, rooms: list[Room], keys: list[FitKey | None], by_zone: Mapping[str, int]
) -> int | None:
    """The position of the preferred instance. None if the copy fits on none."""
    excess = get_zone_excess(request, by_zone)
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


SizeKey = tuple[float, ...]
Size = Callable[[Mapping[str, Need], Mapping[str, Shape]], SizeKey]


def get_largest_share(by_type: Mapping[str, Need], shapes: Mapping[str, Shape]) -> SizeKey:
    """Less for larger copies: by accelerators, then by the largest share of an empty instance.

    Of several types that can hold the copy, the one of which it takes the least counts.
    """
    found = [_shares(need, shapes[name]) for name, need in by_type.items() if name in shapes]
    accelerators = max((it.accelerators for it in by_type.values()), default=0)
    return (-accelerators, -min((max(it) for it in found), default=0.0))


def add_up_shares(by_type: Mapping[str, Need], shapes: Mapping[str, Shape]) -> SizeKey:
    """Less for larger copies: by the shares of an empty instance, added up."""
    found = [_shares(need, shapes[name]) for name, need in by_type.items() if name in shapes]
    return (-min((sum(it) for it in found), default=0.0),)


def get_memory_share(by_type: Mapping[str, Need], shapes: Mapping[str, Shape]) -> SizeKey:
    """Less for copies that take a larger share of memory."""
    found = [_shares(need, shapes[name]) for name, need in by_type.items() if name in shapes]
    return (-min((it[1] for it in found), default=0.0),)


def get_cpu_share(by_type: Mapping[str, Need], shapes: Mapping[str, Shape]) -> SizeKey:
    """Less for copies that take a larger share of CPUs."""
    found = [_shares(need, shapes[name]) for name, need in by_type.items() if name in shapes]
    return (-min((it[2] for it in found), default=0.0),)


def _shares(need: Need, shape: Shape) -> tuple[float, float, float]:
    """Shares of an empty instance: of its accelerators, memory and CPUs."""
    return (
        need.accelerators / max(shape.accelerators, 1),
        need.memory_bytes / max(shape.memory_bytes, 1),
        need.cpu_millionths / max(shape.cpus * MILLIONTHS, 1),
    )


def count_least_instances(needs: Iterable[Need], shape: Shape) -> int:
    """A lower bound: no packing holds the copies on fewer empty instances of `shape`."""
    every = tuple(needs)
    pairs = (
        (sum(it.accelerators for it in every), shape.accelerators),
        (sum(it.memory_bytes for it in every), shape.memory_bytes),
        (sum(it.cpu_millionths for it in every), round(shape.cpus * MILLIONTHS)),
    )
    return max(-(-total // max(capacity, 1)) for total, capacity in pairs)
