"""Moves of copies to other instances that would make room for one that fits nowhere.

instance that could hold the copy, if empty     result
---------------------------------------------   ----------------------------------------------
its movable copies hold enough of what is       the moves of those that hold most of it, each to
short, and fit on other instances               the tightest instance of the same type
any other                                       no moves
several with moves                              the fewest moves
"""

from collections.abc import Sequence

from hostelry.placement.preference import fit_key
from hostelry.placement.room import Need, Room, copied, need_of
from hostelry.placement.values import CopyRequest, Held, Move, Placed


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
