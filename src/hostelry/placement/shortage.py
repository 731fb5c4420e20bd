"""Reasons why a copy fits nowhere: its request, the free resources, and a remedy.

instances                                          obstacle
------------------------------------------------   ------------------------------
none of a type that the copy may run on            NO_INSTANCE
all of types too small for it, even when empty     TYPE_TOO_SMALL
moving copies would make room on one of them       FRAGMENTED, with the moves
any other                                          NO_ROOM

an instance that could hold the copy, if empty     moves of copies that would make room
------------------------------------------------   ---------------------------------------------
its movable copies hold enough of the lacking      of those that hold most of it, each to the
resources, and fit on other instances              tightest instance of the same type
any other                                          no moves
several with moves                                 the fewest moves
"""

from collections.abc import Iterable, Sequence

from hostelry.domain.shape import Requirements, Shape
from hostelry.placement.preference import build_fit_key
from hostelry.placement.room import MILLIONTHS, Need, Room, copy_room, fits_shape, to_need
from hostelry.placement.values import (
    ACCELERATORS,
    CPUS,
    MEMORY,
    RESOURCES,
    CopyRequest,
    Held,
    Lack,
    Move,
    Obstacle,
    Placed,
    Pool,
    WhyNot,
    format_amount,
    format_moves,
    format_request,
    format_shape,
    get_amount,
    join_words,
)

INSTANCES_NAMED = 3
LACKS_KEPT = 16
INSTANCES_TRIED = 4


def explain_unplaced(
    request: CopyRequest, rooms: Sequence[Room], held: Sequence[Held] = ()
) -> WhyNot:
    """Why no instance holds another such copy. `rooms` are their free resources."""
    asked = request.requirements_by_type
    able = [it for it in rooms if it.host.instance_type in asked]
    if not able:
        return _no_instance(request, rooms)
    pools = [Pool(instance_type=it.host.instance_type, shape=it.host.shape) for it in able]
    if (never := find_too_small(request, pools)) is not None:
        return never
    lacks = sorted((_room_lack(it, asked[it.host.instance_type]) for it in able), key=_distance)
    binding = _binding(lacks)
    closest = {lack.instance_id: lack for lack in lacks[:INSTANCES_TRIED]}
    moves = find_moves(request, [it for it in rooms if it.host.instance_id in closest], rooms, held)
    hint = f"; {format_moves(moves)} would make room" if moves else ""
    return WhyNot(
        obstacle=Obstacle.FRAGMENTED if moves else Obstacle.NO_ROOM,
        text=f"{format_request(asked, binding)}; {_free_text(lacks, binding)}{hint}",
        owner=request.owner,
        asked=asked,
        binding=binding,
        lacks=tuple(lacks[:LACKS_KEPT]),
        moves=moves,
    )


def find_too_small(request: CopyRequest, pools: Iterable[Pool]) -> WhyNot | None:
    """Why no empty instance of these types could hold such a copy, or None if one can."""
    asked = request.requirements_by_type
    by_type = {it.instance_type: it.shape for it in pools}
    shapes = {name: shape for name, shape in sorted(by_type.items()) if name in asked}
    if any(fits_shape(to_need(asked[name]), shape) for name, shape in shapes.items()):
        return None
    lacks = [_lack("", name, shape, asked[name]) for name, shape in shapes.items()]
    binding = _binding(lacks)
    offers = [f"an empty {name} has {format_shape(it, binding)}" for name, it in shapes.items()]
    offered = join_words(offers) or _types_text(request, by_type)
    return WhyNot(
        obstacle=Obstacle.TYPE_TOO_SMALL,
        text=f"{format_request(asked, binding)}; {offered}",
        owner=request.owner,
        asked=asked,
        binding=binding,
        lacks=tuple(lacks),
    )


def _no_instance(request: CopyRequest, rooms: Sequence[Room]) -> WhyNot:
    types = {it.host.instance_type for it in rooms}
    why = _types_text(request, types) if types else "there is no instance to hold it"
    return WhyNot(
        obstacle=Obstacle.NO_INSTANCE,
        text=f"{format_request(request.requirements_by_type)}; {why}",
        owner=request.owner,
        asked=request.requirements_by_type,
    )


def _types_text(request: CopyRequest, types: Iterable[str]) -> str:
    mine = join_words(sorted(request.requirements_by_type)) or "none"
    return f"its specifications are for {mine}, and the instances are {join_words(sorted(types))}"


def _room_lack(room: Room, requirements: Requirements) -> Lack:
    host = room.host
    return _lack(host.instance_id, host.instance_type, room.free, requirements)


def _lack(instance_id: str, instance_type: str, free: Shape, requirements: Requirements) -> Lack:
    need = to_need(requirements)
    cpu_millionths = need.cpu_millionths - round(free.cpus * MILLIONTHS)
    return Lack(
        instance_id=instance_id,
        instance_type=instance_type,
        free=free,
        accelerators=max(0, need.accelerators - free.accelerators),
        memory_bytes=max(0, need.memory_bytes - free.memory_bytes),
        cpus=max(0, cpu_millionths) / MILLIONTHS,
    )


def _missing(lack: Lack) -> Shape:
    return Shape(cpus=lack.cpus, memory_bytes=lack.memory_bytes, accelerators=lack.accelerators)


def _distance(lack: Lack) -> tuple[float, float, int, str]:
    """Key of an instance by the largest share of a resource that it lacks: the closest first."""
    missing = _missing(lack)
    lacking = [(get_amount(missing, it), get_amount(lack.free, it)) for it in RESOURCES]
    parts = [missing / (missing + free) for missing, free in lacking if missing > 0]
    return (max(parts, default=0.0), sum(parts), -lack.free.memory_bytes, lack.instance_id)


def _binding(lacks: Sequence[Lack]) -> tuple[str, ...]:
    """The resources that are short on any instance, those first that are short on most."""
    counts = {it: sum(get_amount(_missing(lack), it) > 0 for lack in lacks) for it in RESOURCES}
    return tuple(sorted((it for it in RESOURCES if counts[it]), key=lambda it: -counts[it]))


def _free_text(lacks: Sequence[Lack], binding: Sequence[str]) -> str:
    """The largest free blocks of resources that lack everywhere, else each instance's lack."""
    everywhere = [it for it in binding if all(get_amount(_missing(lack), it) > 0 for lack in lacks)]
    if everywhere:
        resource = everywhere[0]
        if all(get_amount(it.free, resource) <= 0 for it in lacks):
            return f"{_find_no_instance(resource)} is free on {_instances_text(lacks)}"
        by_size = sorted(lacks, key=lambda it: (-get_amount(it.free, resource), _distance(it)))
        blocks = [_block(it, resource) for it in by_size[:INSTANCES_NAMED]]
        return "the largest free block is " + ", then ".join(blocks) + _others(lacks)
    named = []
    for lack in lacks[:INSTANCES_NAMED]:
        missing = format_shape(_missing(lack), zeros=False)
        named.append(f"{lack.instance_id} ({lack.instance_type}) lacks {missing}")
    return ", ".join(named) + _others(lacks)


def _find_no_instance(resource: str) -> str:
    return {ACCELERATORS: "no accelerator", MEMORY: "no memory", CPUS: "no CPU"}[resource]


def _instances_text(lacks: Sequence[Lack]) -> str:
    if len(lacks) == 1:
        return f"{lacks[0].instance_id} ({lacks[0].instance_type})"
    return (
        f"any of {len(lacks)} instances ({join_words(sorted({it.instance_type for it in lacks}))})"
    )


def _block(lack: Lack, resource: str) -> str:
    rest = join_words(format_amount(lack.free, it) for it in RESOURCES if it != resource)
    block = format_amount(lack.free, resource)
    return f"{block} on {lack.instance_id} ({lack.instance_type}, with {rest})"


def _others(lacks: Sequence[Lack]) -> str:
    more = len(lacks) - INSTANCES_NAMED
    if more <= 0:
        return ""
    return f", and {more} more instance{'' if more == 1 else 's'} with no more"


def find_moves(
    request: CopyRequest, tried: Sequence[Room], rooms: Sequence[Room], held: Sequence[Held]
) -> tuple[Move, ...]:
    """The fewest moves after which one of the instances `tried` would hold the copy. Empty: none.

    A moved copy fits next to all copies at its new place, so that it can start before the old one
    stops. It stays on its type of instance.
    """
    found: list[tuple[Move, ...]] = []
    for room in tried:
        need = to_need(request.requirements_by_type[room.host.instance_type])
        mine = [it for it in held if it.instance_id == room.host.instance_id]
        movable = [it for it in mine if it.movable and not it.leaving]
        others = [it for it in rooms if it is not room]
        moves = _find_moves_off(room, need, movable, others)
        if moves:
            found.append(moves)
    return min(found, key=lambda it: (len(it), [move.copy_id for move in it]), default=())


def _find_moves_off(
    room: Room, need: Need, movable: Sequence[Held], others: Sequence[Room]
) -> tuple[Move, ...]:
    """Moves of copies off `room`, first the copies that hold most of the short resources."""
    able = [it for it in others if any(it.fits(to_need(one.requirements)) for one in movable)]
    if not able:
        return ()
    targets = [copy_room(it) for it in able]
    left = list(movable)
    moves: list[Move] = []
    short = _get_short(need, room.free_need())
    while short != Need(0, 0, 0):
        useful = [it for it in left if _sum_covered(short, to_need(it.requirements)) > 0]
        if not useful:
            return ()
        best = min(useful, key=lambda it: _last_resort(short, it))
        left.remove(best)
        placed = move_copy(best, room.host.instance_type, targets)
        if placed is None:
            continue
        moves.append(Move(copy_id=best.copy_id, from_instance_id=room.host.instance_id, to=placed))
        short = _get_short(short, to_need(best.requirements))
    return tuple(moves)


def _last_resort(short: Need, copy: Held) -> tuple[float, int, str]:
    return (-_sum_covered(short, to_need(copy.requirements)), copy.load_bytes, copy.copy_id)


def move_copy(copy: Held, instance_type: str, targets: Sequence[Room]) -> Placed | None:
    """Place the copy on the tightest of `targets` of its type. None if none holds it."""
    need = to_need(copy.requirements)
    able = [it for it in targets if it.host.instance_type == instance_type and it.fits(need)]
    if not able:
        return None
    target = min(able, key=lambda it: build_fit_key(it, need))
    return Placed(
        instance_id=target.host.instance_id,
        requirements=copy.requirements,
        device_ids=target.take(need, copy.owner),
    )


def _get_short(need: Need, free: Need) -> Need:
    return Need(
        max(0, need.accelerators - free.accelerators),
        max(0, need.memory_bytes - free.memory_bytes),
        max(0, need.cpu_millionths - free.cpu_millionths),
    )


def _sum_covered(short: Need, given: Need) -> float:
    """The shares of the short resources that a copy's end would free, added up."""
    pairs = (
        (short.accelerators, given.accelerators),
        (short.memory_bytes, given.memory_bytes),
        (short.cpu_millionths, given.cpu_millionths),
    )
    return sum(min(1.0, has / lacks) for lacks, has in pairs if lacks)
