"""Consolidation: instances that can be emptied, and the moves of their copies.

    an instance, above the minimum, within `max_step`         result
    -------------------------------------------------------   --------------------------------------
    without copies                                            released first
    all its copies may move and fit on instances in use,      released, the fewest bytes to load
    and SPREAD stays over two instances                       first, once its copies have moved
    any other                                                 stays

A copy starts at its new place before the old copy stops. Nothing moves unless an instance is
released. A SPREAD component on several instances stays on at least two, so that the loss of one
does not take all its copies. A stricter rule would forbid nearly every release, because SPREAD uses
all instances. But SPREAD is a preference, and an instance costs more than some imbalance.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from hostelry.domain.component import PlacementStrategy
from hostelry.placement.preference import (
    count_by_zone,
    find_best_room,
    get_fit_key,
    get_largest_share,
)
from hostelry.placement.room import Need, Room, build_rooms, copy_room, to_needs
from hostelry.placement.values import Consolidation, CopyRequest, Held, Host, Move, Placed


def idle_instances(hosts: Sequence[Host], held: Sequence[Held]) -> tuple[str, ...]:
    """Ids of instances without a copy. An instance is not idle while its last copy leaves."""
    used = {it.instance_id for it in held}
    return tuple(sorted(it.instance_id for it in hosts if it.instance_id not in used))


def consolidate(
    hosts: Sequence[Host],
    held: Sequence[Held],
    requests: Mapping[str, CopyRequest],
    *,
    max_step: int = 1,
    min_instances: int = 0,
) -> Consolidation | None:
    """The instances to release next, and the moves that empty them, or None.

    `requests` has one copy of each owner, with its reservation by type and its strategy. Copies of
    other owners stay. At most `max_step` instances go, and `min_instances` are left. Copies whose
    generation differs from `requests` must not be movable.
    """
    may_go = max(0, min(max_step, len(hosts) - min_instances))
    idle = idle_instances(hosts, held)
    released, moves = [*idle[:may_go]], list[Move]()
    stays = set(idle)  # moving onto an idle instance gains nothing
    standing = tuple(held)
    while len(released) < may_go:
        release = _cheapest_release(hosts, standing, requests, stays)
        if release is None:
            break
        released += release.released
        moves += release.moves
        stays |= {*release.released, *(it.to.instance_id for it in release.moves)}
        standing = _after(standing, release.moves)
    if not released:
        return None
    return Consolidation(moves=tuple(moves), released=tuple(released))


def _cheapest_release(
    hosts: Sequence[Host],
    held: Sequence[Held],
    requests: Mapping[str, CopyRequest],
    stays: set[str],
) -> Consolidation | None:
    """The instance outside `stays` that can be emptied for the fewest bytes loaded elsewhere."""
    by_host: dict[str, list[Held]] = {it.instance_id: [] for it in hosts}
    for copy in held:
        by_host.get(copy.instance_id, []).append(copy)
    could = [it for it in by_host if it not in stays and _may_leave(by_host[it], requests)]
    in_use = [it for it in build_rooms(hosts, held) if it.owners]
    for instance_id in sorted(could, key=lambda it: (_load_bytes(by_host[it]), it)):
        targets = [copy_room(it) for it in in_use if it.host.instance_id != instance_id]
        moves = _moves_to(targets, by_host[instance_id], requests)
        if moves is not None and _still_spread(held, moves, requests):
            return Consolidation(moves=moves, released=(instance_id,))
    return None


def _may_leave(copies: Sequence[Held], requests: Mapping[str, CopyRequest]) -> bool:
    movable = [it for it in copies if it.movable and not it.leaving and it.owner in requests]
    return 0 < len(copies) == len(movable)


def _load_bytes(copies: Sequence[Held]) -> int:
    return sum(it.load_bytes for it in copies)


def _moves_to(
    targets: list[Room], copies: Sequence[Held], requests: Mapping[str, CopyRequest]
) -> tuple[Move, ...] | None:
    """A place among `targets` for each copy, the largest first. None if a copy fits nowhere."""
    shapes = {it.host.instance_type: it.host.shape for it in targets}
    needs = {it.copy_id: to_needs(requests[it.owner]) for it in copies}
    moves: list[Move] = []
    largest_first = sorted(
        copies, key=lambda it: (get_largest_share(needs[it.copy_id], shapes), it.copy_id)
    )
    for copy in largest_first:
        placed = _to_placed(targets, requests[copy.owner], needs[copy.copy_id])
        if placed is None:
            return None
        moves.append(Move(copy_id=copy.copy_id, from_instance_id=copy.instance_id, to=placed))
    return tuple(moves)


def _to_placed(
    targets: list[Room], request: CopyRequest, needs: Mapping[str, Need]
) -> Placed | None:
    keys = [get_fit_key(it, needs) for it in targets]
    position = find_best_room(request, targets, keys, count_by_zone(request.owner, targets, needs))
    if position is None:
        return None
    room = targets[position]
    instance_type = room.host.instance_type
    return Placed(
        instance_id=room.host.instance_id,
        requirements=request.requirements_by_type[instance_type],
        device_ids=room.take(needs[instance_type], request.owner),
    )


def _still_spread(
    held: Sequence[Held], moves: Sequence[Move], requests: Mapping[str, CopyRequest]
) -> bool:
    """Whether no SPREAD owner that was on several instances ends up on one."""
    before = [it for it in held if not it.leaving]
    after = _after(before, moves)
    moved = {it.copy_id for it in moves}
    owners = {it.owner for it in before if it.copy_id in moved}
    spread = {it for it in owners if requests[it].strategy is PlacementStrategy.SPREAD}
    return all(
        len(_list_instances(owner, after)) >= min(2, len(_list_instances(owner, before)))
        for owner in spread
    )


def _list_instances(owner: str, held: Iterable[Held]) -> set[str]:
    return {it.instance_id for it in held if it.owner == owner}


def _after(held: Iterable[Held], moves: Iterable[Move]) -> tuple[Held, ...]:
    """What copies hold once the moves are done."""
    to = {it.copy_id: it.to for it in moves}
    return tuple(_held_at(it, to[it.copy_id]) if it.copy_id in to else it for it in held)


def _held_at(copy: Held, place: Placed) -> Held:
    return replace(
        copy,
        instance_id=place.instance_id,
        requirements=place.requirements,
        device_ids=place.device_ids,
    )
