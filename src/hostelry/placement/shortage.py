"""Reasons why a copy fits nowhere: its request, what is free, and what would help.

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
from hostelry.placement.preference import fit_key
from hostelry.placement.room import MILLIONTHS, Need, Room, copied, fits_shape, need_of
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
    amount,
    amount_text,
    asked_text,
    joined,
    moves_text,
    shape_text,
)

INSTANCES_NAMED = 3
LACKS_KEPT = 16
INSTANCES_TRIED = 4


def why_not(request: CopyRequest, rooms: Sequence[Room], held: Sequence[Held] = ()) -> WhyNot:
    """Why no instance holds another such copy; `rooms` is what each has free."""
    asked = request.requirements_by_type
    able = [it for it in rooms if it.host.instance_type in asked]
    if not able:
        return _no_instance(request, rooms)
    pools = [Pool(instance_type=it.host.instance_type, shape=it.host.shape) for it in able]
    if (never := too_small(request, pools)) is not None:
        return never
    lacks = sorted((_room_lack(it, asked[it.host.instance_type]) for it in able), key=_distance)
    binding = _binding(lacks)
    closest = {lack.instance_id: lack for lack in lacks[:INSTANCES_TRIED]}
    moves = making_room(
        request, [it for it in rooms if it.host.instance_id in closest], rooms, held
    )
    hint = f"; {moves_text(moves)} would make room" if moves else ""
    return WhyNot(
        obstacle=Obstacle.FRAGMENTED if moves else Obstacle.NO_ROOM,
        text=f"{asked_text(asked, binding)}; {_free_text(lacks, binding)}{hint}",
        owner=request.owner,
        asked=asked,
        binding=binding,
        lacks=tuple(lacks[:LACKS_KEPT]),
        moves=moves,
    )


def too_small(request: CopyRequest, pools: Iterable[Pool]) -> WhyNot | None:
    """Why no empty instance of these types could hold such a copy; None if one can."""
    asked = request.requirements_by_type
    by_type = {it.instance_type: it.shape for it in pools}
    shapes = {name: shape for name, shape in sorted(by_type.items()) if name in asked}
    if any(fits_shape(need_of(asked[name]), shape) for name, shape in shapes.items()):
        return None
    lacks = [_lack("", name, shape, asked[name]) for name, shape in shapes.items()]
    binding = _binding(lacks)
    offers = [f"an empty {name} has {shape_text(it, binding)}" for name, it in shapes.items()]
    return WhyNot(
        obstacle=Obstacle.TYPE_TOO_SMALL,
        text=f"{asked_text(asked, binding)}; {joined(offers) or _types_text(request, by_type)}",
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
        text=f"{asked_text(request.requirements_by_type)}; {why}",
        owner=request.owner,
        asked=request.requirements_by_type,
    )


def _types_text(request: CopyRequest, types: Iterable[str]) -> str:
    mine = joined(sorted(request.requirements_by_type)) or "none"
    return f"its specifications are for {mine}, and the instances are {joined(sorted(types))}"


def _room_lack(room: Room, requirements: Requirements) -> Lack:
    host = room.host
    return _lack(host.instance_id, host.instance_type, room.free, requirements)


def _lack(instance_id: str, instance_type: str, free: Shape, requirements: Requirements) -> Lack:
    need = need_of(requirements)
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
    lacking = [(amount(missing, it), amount(lack.free, it)) for it in RESOURCES]
    parts = [missing / (missing + free) for missing, free in lacking if missing > 0]
    return (max(parts, default=0.0), sum(parts), -lack.free.memory_bytes, lack.instance_id)


def _binding(lacks: Sequence[Lack]) -> tuple[str, ...]:
    """The resources that are short on any instance, those first that are short on most."""
    counts = {it: sum(amount(_missing(lack), it) > 0 for lack in lacks) for it in RESOURCES}
    return tuple(sorted((it for it in RESOURCES if counts[it]), key=lambda it: -counts[it]))


def _free_text(lacks: Sequence[Lack], binding: Sequence[str]) -> str:
    """The largest free blocks of what is short everywhere, else what each instance lacks."""
    everywhere = [it for it in binding if all(amount(_missing(lack), it) > 0 for lack in lacks)]
    if everywhere:
        resource = everywhere[0]
        if all(amount(it.free, resource) <= 0 for it in lacks):
            return f"{_none_of(resource)} is free on {_instances_text(lacks)}"
        by_size = sorted(lacks, key=lambda it: (-amount(it.free, resource), _distance(it)))
        blocks = [_block(it, resource) for it in by_size[:INSTANCES_NAMED]]
        return "the largest free block is " + ", then ".join(blocks) + _others(lacks)
    named = [
        f"{lack.instance_id} ({lack.instance_type}) lacks {shape_text(_missing(lack), zeros=False)}"
        for lack in lacks[:INSTANCES_NAMED]
    ]
    return ", ".join(named) + _others(lacks)


def _none_of(resource: str) -> str:
    return {ACCELERATORS: "no accelerator", MEMORY: "no memory", CPUS: "no CPU"}[resource]


def _instances_text(lacks: Sequence[Lack]) -> str:
    if len(lacks) == 1:
        return f"{lacks[0].instance_id} ({lacks[0].instance_type})"
    return f"any of {len(lacks)} instances ({joined(sorted({it.instance_type for it in lacks}))})"


def _block(lack: Lack, resource: str) -> str:
    rest = joined(amount_text(lack.free, it) for it in RESOURCES if it != resource)
    block = amount_text(lack.free, resource)
    return f"{block} on {lack.instance_id} ({lack.instance_type}, with {rest})"


def _others(lacks: Sequence[Lack]) -> str:
    more = len(lacks) - INSTANCES_NAMED
    if more <= 0:
        return ""
    return f", and {more} more instance{'' if more == 1 else 's'} with no more"


def making_room(
    request: CopyRequest, tried: Sequence[Room], rooms: Sequence[Room], held: Sequence[Held]
) -> tuple[Move, ...]:
    """The fewest moves after which one of the instances `tried` would hold the copy; or none.

    A moved copy fits beside everything at its new place, so that it can start before the old one
    stops, and stays on its type of instance.
    """
    found: list[tuple[Move, ...]] = []
    for room in tried:
        need = need_of(request.requirements_by_type[room.host.instance_type])
        mine = [it for it in held if it.instance_id == room.host.instance_id]
        movable = [it for it in mine if it.movable and not it.leaving]
        others = [it for it in rooms if it is not room]
        moves = _moves_off(room, need, movable, others)
        if moves:
            found.append(moves)
    return min(found, key=lambda it: (len(it), [move.copy_id for move in it]), default=())


def _moves_off(
    room: Room, need: Need, movable: Sequence[Held], others: Sequence[Room]
) -> tuple[Move, ...]:
    """Moves of copies off `room`, those first that hold most of what is short."""
    able = [it for it in others if any(it.fits(need_of(one.requirements)) for one in movable)]
    if not able:
        return ()
    targets = [copied(it) for it in able]
    left = list(movable)
    moves: list[Move] = []
    short = _short(need, room.free_need())
    while short != Need(0, 0, 0):
        useful = [it for it in left if _covered(short, need_of(it.requirements)) > 0]
        if not useful:
            return ()
        best = min(useful, key=lambda it: _last_resort(short, it))
        left.remove(best)
        placed = moved_to(best, room.host.instance_type, targets)
        if placed is None:
            continue
        moves.append(Move(copy_id=best.copy_id, from_instance_id=room.host.instance_id, to=placed))
        short = _short(short, need_of(best.requirements))
    return tuple(moves)


def _last_resort(short: Need, copy: Held) -> tuple[float, int, str]:
    return (-_covered(short, need_of(copy.requirements)), copy.load_bytes, copy.copy_id)


def moved_to(copy: Held, instance_type: str, targets: Sequence[Room]) -> Placed | None:
    """Place the copy on the tightest of `targets` of its type; None if none holds it."""
    need = need_of(copy.requirements)
    able = [it for it in targets if it.host.instance_type == instance_type and it.fits(need)]
    if not able:
        return None
    target = min(able, key=lambda it: fit_key(it, need))
    return Placed(
        instance_id=target.host.instance_id,
        requirements=copy.requirements,
        device_ids=target.take(need, copy.owner),
    )


def _short(need: Need, free: Need) -> Need:
    return Need(
        max(0, need.accelerators - free.accelerators),
        max(0, need.memory_bytes - free.memory_bytes),
        max(0, need.cpu_millionths - free.cpu_millionths),
    )


def _covered(short: Need, given: Need) -> float:
    """The shares of what is short that a copy's end would free, added up over resources."""
    pairs = (
        (short.accelerators, given.accelerators),
        (short.memory_bytes, given.memory_bytes),
        (short.cpu_millionths, given.cpu_millionths),
    )
    return sum(min(1.0, has / lacks) for lacks, has in pairs if lacks)
