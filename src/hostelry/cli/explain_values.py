"""Control's account of an endpoint as the values that placement decides with, and its reasons.

The reasons are found by asking placement again about what stands now. Why a copy has no place is
told in control's own words where it has said so. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hostelry.domain.component import PlacementStrategy
from hostelry.domain.shape import Requirements, Shape
from hostelry.placement.explain import HostUse, uses, what_would_help, why_here
from hostelry.placement.pack import place
from hostelry.placement.values import Held, Host, Wanted, WhyNot

ABOUT_TO_BE_PLACED = "it is about to be placed"
WHOLE_INSTANCE = "a model endpoint's copy has its instance to itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """Copies of a component that are wanted and have no place: how many, why, what would help."""

    component: str
    count: int
    wanted: int
    why_not: str
    would_help: str | None = None
    obstacle: str | None = None
    short_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """An endpoint's placement: what each instance holds, why, and what has no place.

    `endpoint` is control's account; `why` has a reason for each copy by its id.
    """

    endpoint: Mapping[str, Any]
    uses: tuple[HostUse, ...]
    why: Mapping[str, str]
    unplaced: tuple[Unplaced, ...]


def explained(endpoint: Mapping[str, Any]) -> Explained:
    """The placement of one endpoint of control's account."""
    hosts = [_host(it) for it in endpoint["instances"]]
    held = [it for it in (_held(one) for one in endpoint["copies"]) if it is not None]
    types = _instance_types(endpoint)
    bases = [it for it in endpoint["components"] if it.get("base") is None]
    kinds = {it["name"]: _wanted(it, types) for it in bases}
    why = {it.copy_id: why_here(it, hosts, held, kinds) for it in held}
    whole = [it["id"] for it in endpoint["copies"] if it.get("reserved") is None]
    found = (_unplaced(endpoint, it, kinds[it["name"]], hosts, held) for it in bases)
    return Explained(
        endpoint=endpoint,
        uses=uses(hosts, held),
        why={**why, **dict.fromkeys(whole, WHOLE_INSTANCE)},
        unplaced=tuple(it for it in found if it is not None),
    )


def _unplaced(
    endpoint: Mapping[str, Any],
    component: Mapping[str, Any],
    wanted: Wanted,
    hosts: Sequence[Host],
    held: Sequence[Held],
) -> Unplaced | None:
    mine = [it for it in held if it.owner == wanted.owner and not it.leaving]
    desired = component.get("desired_copies", 0)
    count = desired - len(mine)
    if count <= 0 or component["status"] == "Deleting":
        return None
    states = {it["id"]: it.get("state") for it in endpoint["instances"]}
    staying = [it for it in hosts if states[it.instance_id] != "terminating"]
    why = place([wanted], staying, held).first_obstacle
    said = component.get("failure_reason") or component.get("placement_note")
    if why is None:
        return Unplaced(
            component=wanted.owner, count=count, wanted=desired, why_not=said or ABOUT_TO_BE_PLACED
        )
    return Unplaced(
        component=wanted.owner,
        count=count,
        wanted=desired,
        why_not=said or why.text,
        would_help=_help(endpoint, component, why, len(staying)),
        obstacle=why.obstacle.value,
        short_of=why.binding,
    )


def _help(
    endpoint: Mapping[str, Any], component: Mapping[str, Any], why: WhyNot, num_instances: int
) -> str:
    variants = {it["name"]: it for it in endpoint.get("variants", ())}
    variant = variants.get(component.get("variant"), {})
    maximum = variant.get("max_instances")
    return what_would_help(why, None if maximum is None else maximum - num_instances)


def _instance_types(endpoint: Mapping[str, Any]) -> set[str]:
    variants: Iterable[Mapping[str, Any]] = endpoint.get("variants", ())
    started = {it["type"] for it in endpoint["instances"]}
    return started | {name for it in variants for name in it.get("instance_types", ())}


def _host(instance: Mapping[str, Any]) -> Host:
    return Host(
        instance_id=instance["id"],
        instance_type=instance["type"],
        zone=instance.get("zone") or "",
        shape=Shape(
            cpus=instance["cpus"],
            memory_bytes=instance["memory_bytes"],
            accelerators=instance["accelerators"],
        ),
    )


def _held(copy: Mapping[str, Any]) -> Held | None:
    reserved = copy.get("reserved")
    if reserved is None:
        return None
    return Held(
        copy_id=copy["id"],
        owner=copy["owner"].removeprefix("component/"),
        instance_id=copy["instance"],
        requirements=_requirements(reserved),
        device_ids=tuple(copy.get("device_ids") or ()),
        leaving=bool(copy.get("draining")),
        moved_bytes=copy.get("memory_bytes") or None,
    )


def _wanted(component: Mapping[str, Any], instance_types: Iterable[str]) -> Wanted:
    by_type: dict[str, Requirements] = {}
    for it in component.get("requirements", ()):
        name = it.get("instance_type")
        names = sorted(instance_types) if name is None else [name]
        by_type |= dict.fromkeys(names, _requirements(it))
    return Wanted(
        owner=component["name"],
        requirements_by_type=by_type,
        strategy=PlacementStrategy(component.get("strategy", "SPREAD")),
        max_imbalance=component.get("max_imbalance"),
    )


def _requirements(given: Mapping[str, Any]) -> Requirements:
    return Requirements(
        min_memory_bytes=given["memory_bytes"],
        max_memory_bytes=given.get("max_memory_bytes"),
        cpus=given["cpus"],
        accelerators=given["accelerators"],
    )
