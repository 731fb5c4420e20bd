"""Explanations of placement: what instances offer, hold and have free, and why a copy is there."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hostelry.domain.component import PlacementStrategy
from hostelry.domain.shape import Shape
from hostelry.placement.room import assign_device_ids, build_rooms
from hostelry.placement.values import (
    MEMORY,
    CopyRequest,
    Held,
    Host,
    Obstacle,
    WhyNot,
    format_amount,
    format_moves,
    format_shape,
    to_reserved_shape,
)


class CopyReservation(msgspec.Struct, frozen=True, kw_only=True):
    """A copy on an instance, and the accelerators that it owns."""

    held: Held
    device_ids: tuple[int, ...]


class HostUse(msgspec.Struct, frozen=True, kw_only=True):
    """An instance, its free resources, and the copies that hold the rest."""

    host: Host
    free: Shape
    free_device_ids: tuple[int, ...]
    copies: tuple[CopyReservation, ...]


def list_uses(hosts: Iterable[Host], held: Iterable[Held]) -> tuple[HostUse, ...]:
    """One value per instance, by id. Copies are in the order of their ids."""
    hosts, held = tuple(hosts), tuple(held)
    device_ids = assign_device_ids(hosts, held)
    by_host: dict[str, list[CopyReservation]] = {it.instance_id: [] for it in hosts}
    for copy in sorted(held, key=lambda it: it.copy_id):
        if copy.instance_id in by_host:
            use = CopyReservation(held=copy, device_ids=device_ids[copy.copy_id])
            by_host[copy.instance_id].append(use)
    return tuple(
        HostUse(
            host=room.host,
            free=room.free,
            free_device_ids=tuple(room.devices),
            copies=tuple(by_host[room.host.instance_id]),
        )
        for room in build_rooms(hosts, held)
    )


def free_text(use: HostUse) -> str:
    """The free resources as text, with the accelerators' ids."""
    return format_shape(use.free, zeros=False) + devices_text(use.free_device_ids)


def reservation_text(use: CopyReservation) -> str:
    """A copy's reservation as text, with its accelerators' ids and its memory limit."""
    limit = use.held.requirements.max_memory_bytes
    text = format_shape(to_reserved_shape(use.held.requirements), zeros=False)
    text += devices_text(use.device_ids)
    if limit is None:
        return text
    most = Shape(cpus=0, memory_bytes=limit)
    return f"{text}, at most {format_amount(most, MEMORY)}"


def devices_text(device_ids: Sequence[int]) -> str:
    """Accelerators by id as text: " (devices 0, 1)". Empty without accelerators."""
    if not device_ids:
        return ""
    noun = "device" if len(device_ids) == 1 else "devices"
    return f" ({noun} {', '.join(str(it) for it in device_ids)})"


def why_here(
    copy: Held, hosts: Iterable[Host], held: Iterable[Held], requests: Mapping[str, CopyRequest]
) -> str:
    """Why a copy is on its instance, by its component's strategy and the present placement.

    The placement may have changed since the copy was placed.
    """
    by_id = {it.instance_id: it for it in hosts}
    mine = [it for it in held if it.owner == copy.owner and not it.leaving]
    here = sum(1 for it in mine if it.instance_id == copy.instance_id)
    host = by_id.get(copy.instance_id)
    kind = requests.get(copy.owner)
    if kind is None or host is None:
        return "nothing asks for it any more" if kind is None else "its instance is gone"
    instances = {it.instance_id for it in mine}
    spread = f"{len(mine)} on {len(instances)} instance{'' if len(instances) == 1 else 's'}"
    if kind.strategy is PlacementStrategy.BINPACK:
        others = [it for it in held if it.instance_id == copy.instance_id]
        beside = len(others) - 1
        company = f"beside {beside} other{'' if beside == 1 else 's'}" if beside else "alone"
        return f"BINPACK: on the instance that it left the least free, {company} ({spread})"
    zones = {it.zone for it in by_id.values()}
    text = f"SPREAD: on an instance with the fewest of its copies, {here} here ({spread})"
    if len(zones) < 2:
        return text
    in_zone = sum(1 for it in mine if it.instance_id in by_id and _zone(it, by_id) == host.zone)
    return f"{text}, {in_zone} of {len(mine)} in zone {host.zone}"


def what_would_help(why: WhyNot, max_more: int | None) -> str:
    """Describe the changes that would give a copy a place.

    `max_more` is the number of instances that ManagedInstanceScaling still allows, or None if it is
    off.
    """
    if why.obstacle is Obstacle.TYPE_TOO_SMALL:
        return "less in ComputeResourceRequirements, or an instance type that declares more"
    ways = [format_moves(why.moves)] if why.moves else []
    if max_more is None:
        ways.append("another instance: a higher DesiredInstanceCount, or ManagedInstanceScaling")
    elif max_more <= 0:
        ways.append("a higher MaxInstanceCount")
    else:
        ways.append(f"another instance, which is started by itself: {max_more} more may be")
    if why.obstacle is not Obstacle.NO_INSTANCE:
        ways.append("fewer copies beside it, or less in its ComputeResourceRequirements")
    return "; ".join(ways)


def _zone(copy: Held, by_id: Mapping[str, Host]) -> str:
    return by_id[copy.instance_id].zone
