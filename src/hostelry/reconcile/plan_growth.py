"""More instances, where ManagedInstanceScaling allows and copies have no place."""

from collections.abc import Sequence
from dataclasses import replace

from hostelry.domain.copy import Instance, InstanceState
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.endpoint_config import ManagedInstanceScaling, Variant
from hostelry.domain.status import Event, next_status
from hostelry.placement.fleet_size import fleet_growth, with_growth
from hostelry.reconcile.room import Unplaced, pools_of
from hostelry.reconcile.world import Givens, World


def grown(
    world: World,
    deployment: Deployment,
    variant: EndpointVariant,
    unplaced: Sequence[Unplaced],
    givens: Givens,
) -> tuple[World, list[Unplaced]]:
    """The world with the instances that `unplaced` need, and those that get none, with the why."""
    scaling, endpoint = managed_scaling(variant.variant), world.endpoint
    if not unplaced or endpoint is None:
        return world, []
    if scaling is None:
        return world, list(unplaced)
    hosts = world.hosts(deployment.generation, variant.variant.name)
    wanted = variant.desired_instance_count
    if wanted > len(hosts):
        return world, []  # those that are coming may be room enough
    growth = fleet_growth(
        [it.wanted for it in unplaced],
        pools_of(variant.variant, givens.shape_of),
        max_more=max(0, scaling.max_instances - max(wanted, len(hosts))),
        unavailable=unavailable_types(variant, givens),
    )
    refused = [
        replace(unplaced[it], why=with_growth(unplaced[it].why, why))
        for it, why in growth.why_not.items()
    ]
    if not growth.instances:
        return world, refused
    for it in growth.instances:
        new = new_instance(world, deployment, variant, it.instance_type, givens)
        world = world.with_instances([new])
    count = max(wanted, len(hosts)) + len(growth.instances)
    more = replace(variant, desired_instance_count=count)
    return replace(world, endpoint=rescaled(endpoint, deployment, more, givens)), refused


def managed_scaling(variant: Variant) -> ManagedInstanceScaling | None:
    """The bounds within which instances follow copies; None where they do not."""
    scaling = variant.scaling
    return scaling if scaling is not None and scaling.enabled else None


def unavailable_types(variant: EndpointVariant, givens: Givens) -> frozenset[str]:
    """The types that are passed over now, since none of them came up a while ago.

    None where that would leave no type to try.
    """
    passed = {it.instance_type for it in variant.passed_over if givens.now < it.until}
    return frozenset(passed) if set(variant.variant.instance_types) - passed else frozenset()


def next_type(variant: EndpointVariant, givens: Givens) -> str:
    """The type that the next instance has, where no copy asks for another."""
    unavailable = unavailable_types(variant, givens)
    return next(it for it in variant.variant.instance_types if it not in unavailable)


def deployment_in(endpoint: Endpoint, generation: int) -> Deployment:
    """The endpoint's deployment of that generation, which it has."""
    return next(it for it in endpoint.deployments if it.generation == generation)


def new_instance(
    world: World,
    deployment: Deployment,
    variant: EndpointVariant,
    instance_type: str,
    givens: Givens,
) -> Instance:
    """An instance to be launched, in the zone that has the fewest of its variant."""
    endpoint = world.endpoint
    assert endpoint is not None, "only an endpoint has deployments"
    hosts = world.hosts(deployment.generation, variant.variant.name)
    used = [it.zone for it in hosts]
    zones = [endpoint.scope.region + letter for letter in givens.zone_letters]
    return Instance(
        id=givens.new_instance_id(),
        scope=endpoint.scope,
        endpoint_name=endpoint.name,
        variant_name=variant.variant.name,
        generation=deployment.generation,
        instance_type=instance_type,
        shape=givens.shape_of(instance_type),
        state=InstanceState.LAUNCHING,
        created_at=givens.now,
        zone=min(zones, key=used.count, default=""),
    )


def rescaled(
    endpoint: Endpoint, deployment: Deployment, changed: EndpointVariant, givens: Givens
) -> Endpoint:
    """The endpoint with a variant's new instance count, Updating until its instances are so."""
    endpoint = with_variant(endpoint, deployment, changed)
    if endpoint.status is not EndpointStatus.IN_SERVICE:
        return endpoint
    return replace(
        endpoint,
        status=next_status(endpoint.status, Event.UPDATE),
        modified_at=givens.now,
        deadline_at=givens.came_up_by(givens.now, changed.variant.provisioning_s),
    )


def with_variant(endpoint: Endpoint, deployment: Deployment, changed: EndpointVariant) -> Endpoint:
    """The endpoint with one variant of one of its deployments changed."""
    variants = tuple(
        changed if it.variant.name == changed.variant.name else it for it in deployment.variants
    )
    after = replace(deployment, variants=variants)
    if deployment.generation == endpoint.active.generation:
        return replace(endpoint, active=after)
    if endpoint.bake is not None:
        return replace(endpoint, bake=replace(endpoint.bake, before=after))
    return replace(endpoint, pending=after)
