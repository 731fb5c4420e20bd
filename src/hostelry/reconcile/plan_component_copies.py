"""The copies of base components: all of an endpoint's are placed together, in a stable order.

What fits serves; what does not waits, adds instances where ManagedInstanceScaling allows, and says
why in the component's note.
"""

from collections.abc import Sequence
from dataclasses import replace

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, CopyPhase, CopySpec, Instance
from hostelry.domain.endpoint import Deployment, EndpointVariant
from hostelry.placement.pack import place
from hostelry.placement.values import Placed, Wanted
from hostelry.reconcile.adapters import wanted_adapters
from hostelry.reconcile.aims import Aim, aim_of
from hostelry.reconcile.exchange import without_what_will_fit
from hostelry.reconcile.plan_copies import new_copy, without_failed
from hostelry.reconcile.plan_growth import grown
from hostelry.reconcile.reasons import placement_note
from hostelry.reconcile.room import Unplaced, held_on, hosts_of, instance_types, wanted_copy
from hostelry.reconcile.world import (
    DELETE_DRAIN_S,
    LIVE_COMPONENT,
    Givens,
    World,
    drained,
    stopped,
)


def plan_component_copies(world: World, givens: Givens) -> World:
    """The world with the copies that the base components want, as far as they fit."""
    bases = [it for it in world.components.values() if it.spec is not None]
    for base in bases:
        if base.status not in LIVE_COMPONENT:
            leaving = [drained(it, givens, DELETE_DRAIN_S) for it in world.copies_of(base.name)]
            world = world.with_copies(leaving).with_component(replace(base, placement_note=None))
    for deployment in world.deployments():
        for variant in deployment.variants:
            world = _on_variant(world, deployment, variant, givens)
    return world


def _on_variant(
    world: World, deployment: Deployment, variant: EndpointVariant, givens: Givens
) -> World:
    components = _living(world, variant)
    if not components:
        return world
    hosts = world.hosts(deployment.generation, variant.variant.name)
    failed = [it for one in components for it in world.copies_on(hosts, one.name)]
    world = world.with_copies(without_failed(failed, givens.now))
    aims = [aim_of(world, it, deployment, givens) for it in components]
    world = world.with_copies(it for aim in aims for it in _leaving(aim, givens))
    aims = [aim_of(world, it, deployment, givens) for it in components]
    world, unplaced = _placed(world, hosts, variant, aims, givens)
    now = {it.name: aim_of(world, it, deployment, givens) for it in components if unplaced}
    unplaced = [replace(it, aim=now[it.aim.component.name]) for it in unplaced]
    world, waiting = without_what_will_fit(world, hosts, unplaced, givens)
    world, refused = grown(world, deployment, variant, waiting, givens)
    if world.endpoint is None or deployment.generation != world.endpoint.active.generation:
        return world
    said = {it.aim.component.name: it.why.text for it in (*unplaced, *refused)}
    return _with_notes(world, components, hosts, said)


def _living(world: World, variant: EndpointVariant) -> list[InferenceComponent]:
    """The base components on a variant that want copies, the oldest first."""
    mine = [
        it
        for it in world.components.values()
        if it.spec is not None
        and it.status in LIVE_COMPONENT
        and it.variant_name == variant.variant.name
    ]
    return sorted(mine, key=lambda it: (it.created_at, it.name))


def _leaving(aim: Aim, givens: Givens) -> list[Copy]:
    """The copies that are not wanted any more, on their way out; what failed has none to drain."""
    failed = [it for it in aim.others if it.status.phase is CopyPhase.FAILED]
    return [drained(it, givens) for it in aim.surplus] + [stopped(it, givens.now) for it in failed]


def _placed(
    world: World,
    hosts: Sequence[Instance],
    variant: EndpointVariant,
    aims: Sequence[Aim],
    givens: Givens,
) -> tuple[World, list[Unplaced]]:
    """The world with the missing copies that have a place, and those that have none."""
    able = world.able(hosts, givens.now)
    types = instance_types(variant.variant, hosts)
    claims = [
        (aim, wanted_copy(aim.component, aim.spec, types))
        for aim in aims
        for _ in range(aim.missing)
    ]
    world, claims = _placed_elsewhere(world, able, claims, givens)
    if not claims:
        return world, []
    packing = place([it for _, it in claims], hosts_of(able), held_on(world, able))
    found, unplaced = [], []
    for (aim, wanted), outcome in zip(claims, packing.outcomes, strict=True):
        if isinstance(outcome, Placed):
            found.append(_new_component_copy(world, aim, outcome, givens))
        else:
            unplaced.append(Unplaced(aim=aim, wanted=wanted, why=outcome))
    return world.with_copies(found), unplaced


def _placed_elsewhere(
    world: World,
    hosts: Sequence[Instance],
    claims: Sequence[tuple[Aim, Wanted]],
    givens: Givens,
) -> tuple[World, list[tuple[Aim, Wanted]]]:
    """Places what follows a failed copy on another instance, where one holds it."""
    left = []
    failed_on = {aim.component.name: _failed_on(world, aim) for aim, _ in claims}
    for aim, wanted in claims:
        elsewhere = [it for it in hosts if it.id not in failed_on[aim.component.name]]
        if len(elsewhere) == len(hosts):
            left.append((aim, wanted))
            continue
        packing = place([wanted], hosts_of(elsewhere), held_on(world, elsewhere))
        found = [_new_component_copy(world, aim, it, givens) for it in packing.placed]
        world = world.with_copies(found)
        if not found:
            left.append((aim, wanted))
    return world, left


def _failed_on(world: World, aim: Aim) -> set[str]:
    copies = world.copies_of(aim.component.name)
    return {it.instance_id for it in copies if it.status.phase is CopyPhase.FAILED}


def _new_component_copy(world: World, aim: Aim, placed: Placed, givens: Givens) -> Copy:
    instance = world.instances[placed.instance_id]
    return component_copy(world, aim, instance, placed.device_ids, givens)


def component_copy(
    world: World, aim: Aim, instance: Instance, device_ids: tuple[int, ...], givens: Givens
) -> Copy:
    """A new copy of what the aim is for, on an instance of a type that may hold it."""
    name, typed = aim.component.name, aim.spec.on(instance.instance_type)
    assert typed is not None, "placement gives no copy to an instance of a type without a spec"
    wanted = CopySpec(
        id="",
        owner=f"component/{name}",
        container=typed.container,
        requirements=typed.requirements,
        download_timeout_s=typed.download_timeout_s,
        startup_timeout_s=typed.startup_timeout_s,
        adapters=wanted_adapters(world, name, givens.now),
        device_ids=device_ids,
    )
    return new_copy(instance, name, aim.spec.generation, wanted, givens)


def _with_notes(
    world: World,
    components: Sequence[InferenceComponent],
    hosts: Sequence[Instance],
    said: dict[str, str],
) -> World:
    """The world in which each component says why some of its copies do not serve."""
    for component in components:
        now = world.components[component.name]
        note = placement_note(said.get(now.name), world.copies_on(hosts, now.name))
        if now.status is not ComponentStatus.DELETING:
            world = world.with_component(replace(now, placement_note=note))
    return world
