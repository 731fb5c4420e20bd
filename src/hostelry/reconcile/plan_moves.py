"""Copies that move: a new one comes up on another instance, then the old one drains.

They move for the sake of packing (`plan_scale_in`), or, decided here, because a copy ends again and
again where it is.
"""

from collections.abc import Iterator
from dataclasses import replace

from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import Copy, CopyPhase
from hostelry.domain.endpoint import Deployment, EndpointVariant
from hostelry.placement.pack import place
from hostelry.reconcile.aims import aim_of, is_moving
from hostelry.reconcile.plan_component_copies import component_copy
from hostelry.reconcile.plan_growth import deployment_in, with_variant
from hostelry.reconcile.reasons import LOOPING_RESTARTS
from hostelry.reconcile.room import held_on, hosts_of, instance_types, wanted_copy
from hostelry.reconcile.world import Givens, World, drained, is_routable, stopped

LOOPING_S = 60.0


def plan_moves(world: World, givens: Givens) -> World:
    """The world with moves that are done ended, and with copies that cannot stay moving."""
    if world.endpoint is None or not world.endpoint.takes_components:
        return world
    for deployment in world.deployments():
        for variant in deployment.variants:
            world = _with_moves_done(world, deployment, variant, givens)
            world = _with_looping_moved(world, deployment, variant, givens)
    return world


def move_instants(copy: Copy) -> Iterator[float]:
    """When time alone may have the copy tried elsewhere."""
    if copy.unready_since is not None:
        yield copy.unready_since + LOOPING_S


def _with_moves_done(
    world: World, deployment: Deployment, variant: EndpointVariant, givens: Givens
) -> World:
    """Old copies drain where their successors serve; a successor that failed is given up."""
    hosts = world.hosts(deployment.generation, variant.variant.name)
    copies = [it for host in hosts for it in world.copies_at(host.id)]
    settled = [it for it in copies if it.replaces is not None and it.replaces not in world.copies]
    world = world.with_copies(replace(it, replaces=None) for it in settled)
    moving = [it for it in copies if is_moving(world, it) and not it.draining]
    pairs = [(it, world.copies[it.replaces]) for it in moving if it.replaces is not None]
    world = world.with_copies(drained(old, givens) for it, old in pairs if is_routable(it))
    # What followed a copy that does not serve is tried again like any copy that failed.
    failed = [it for it, old in pairs if it.status.phase is CopyPhase.FAILED and is_routable(old)]
    endpoint = world.endpoint
    if not failed or endpoint is None:
        return world
    world = world.with_copies(replace(stopped(it, givens.now), replaces=None) for it in failed)
    # Another attempt to pack waits for the cooldown, as after a step that was made.
    tried = replace(variant, scaled_in_at=givens.now)
    now = deployment_in(endpoint, deployment.generation)
    return replace(world, endpoint=with_variant(endpoint, now, tried))


def _with_looping_moved(
    world: World, deployment: Deployment, variant: EndpointVariant, givens: Givens
) -> World:
    """The world with a copy coming up elsewhere for each that ends again and again."""
    hosts = world.hosts(deployment.generation, variant.variant.name)
    looping = [
        it
        for host in hosts
        for it in world.copies_at(host.id)
        if _is_looping(world, it, givens.now)
    ]
    for copy in looping:
        assert copy.component_name is not None, "only components' copies loop here"
        component = world.components[copy.component_name]
        aim = aim_of(world, component, deployment, givens)
        others = [it for it in world.able(hosts, givens.now) if it.id != copy.instance_id]
        wanted = wanted_copy(component, aim.spec, instance_types(variant.variant, hosts))
        for placed in place([wanted], hosts_of(others), held_on(world, others)).placed:
            instance = world.instances[placed.instance_id]
            new = component_copy(world, aim, instance, placed.device_ids, givens)
            world = world.with_copies([replace(new, replaces=copy.spec.id)])
    return world


def _is_looping(world: World, copy: Copy, now: float) -> bool:
    """Whether a copy that served has not for a while, ends again and again, and is not followed."""
    if copy.draining or copy.component_name is None or copy.unready_since is None:
        return False
    if copy.status.restarts < LOOPING_RESTARTS or now < copy.unready_since + LOOPING_S:
        return False
    component = world.components.get(copy.component_name)
    if component is None or component.status is not ComponentStatus.IN_SERVICE:
        return False
    return all(it.replaces != copy.spec.id for it in world.copies_of(copy.component_name))
