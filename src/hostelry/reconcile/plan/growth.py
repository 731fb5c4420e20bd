"""Scale-out of instances, for copies that fit on no present instance.

ManagedInstanceScaling     instances                        result
------------------------   ------------------------------   ------------------------------------
disabled                   any                              none, each copy keeps its reason
enabled                    fewer than desired are there     wait: the rest may be room enough
enabled                    all there, below the maximum     as many as the copies need, at most up
                                                            to the maximum. The endpoint is Updating
enabled                    at the maximum                   none. The reason says so
"""

from collections.abc import Sequence

from msgspec.structs import replace

from hostelry.domain.copy import Instance, InstanceState
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.endpoint_config import ManagedInstanceScaling, Variant
from hostelry.domain.status import Event, next_status
from hostelry.placement.fleet_size import explain_growth, plan_growth
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext
from hostelry.reconcile.plan.placement_request import Unplaced, get_pools


def grow_fleet(
    state: EndpointState,
    deployment: Deployment,
    variant: EndpointVariant,
    unplaced: Sequence[Unplaced],
    context: PlanContext,
) -> tuple[EndpointState, list[Unplaced]]:
    """The state with new instances for `unplaced`, and those that get none, with the reason."""
    scaling, endpoint = get_managed_scaling(variant.variant), state.endpoint
    if not unplaced or endpoint is None:
        return state, []
    if scaling is None:
        return state, list(unplaced)
    hosts = state.staying(state.hosts(deployment.generation, variant.variant.name))
    count = variant.desired_instance_count
    if count > len(hosts):
        return state, []
    growth = plan_growth(
        [it.request for it in unplaced],
        get_pools(variant.variant, context.get_shape),
        max_more=max(0, scaling.max_instances - max(count, len(hosts))),
        unavailable=find_unavailable_types(variant, context),
    )
    refused = [
        replace(unplaced[it], why=explain_growth(unplaced[it].why, why))
        for it, why in growth.why_not.items()
    ]
    if not growth.instances:
        return state, refused
    for needed in growth.instances:
        new = build_instance(state, deployment, variant, needed.instance_type, context)
        state = state.add_instances([new])
    count = max(count, len(hosts)) + len(growth.instances)
    more = replace(variant, desired_instance_count=count)
    return state.replace_endpoint(rescale_endpoint(endpoint, deployment, more, context)), refused


def get_managed_scaling(variant: Variant) -> ManagedInstanceScaling | None:
    """The bounds of managed instance scaling. None if it is not enabled."""
    scaling = variant.scaling
    return scaling if scaling is not None and scaling.enabled else None


def find_unavailable_types(variant: EndpointVariant, context: PlanContext) -> frozenset[str]:
    """Instance types in backoff, since none of them came up a while ago.

    Empty if no other type would be left: then all are tried.
    """
    passed = {it.instance_type for it in variant.passed_over if context.now < it.until}
    return frozenset(passed) if set(variant.variant.instance_types) - passed else frozenset()


def get_next_type(variant: EndpointVariant, context: PlanContext) -> str:
    """The preferred type that is not in backoff."""
    unavailable = find_unavailable_types(variant, context)
    return next(it for it in variant.variant.instance_types if it not in unavailable)


def get_deployment(endpoint: Endpoint, generation: int) -> Deployment:
    """The endpoint's deployment of `generation`. Raises StopIteration if it has none."""
    return next(it for it in endpoint.deployments if it.generation == generation)


def build_instance(
    state: EndpointState,
    deployment: Deployment,
    variant: EndpointVariant,
    instance_type: str,
    context: PlanContext,
) -> Instance:
    """An instance to launch, in the zone that has the fewest of its variant."""
    endpoint = state.endpoint
    assert endpoint is not None, "only an endpoint has deployments"
    hosts = state.hosts(deployment.generation, variant.variant.name)
    used = [it.zone for it in hosts]
    zones = [endpoint.scope.region + letter for letter in context.zone_letters]
    return Instance(
        id=context.new_instance_id(),
        scope=endpoint.scope,
        endpoint_name=endpoint.name,
        variant_name=variant.variant.name,
        generation=deployment.generation,
        instance_type=instance_type,
        shape=variant.serverless.shape
        if variant.serverless is not None
        else context.get_shape(instance_type),
        state=InstanceState.LAUNCHING,
        created_at=context.now,
        zone=min(zones, key=used.count, default=""),
    )


def rescale_endpoint(
    endpoint: Endpoint, deployment: Deployment, changed: EndpointVariant, context: PlanContext
) -> Endpoint:
    """The endpoint with a variant's new instance count, Updating until that many run."""
    endpoint = replace_variant(endpoint, deployment, changed)
    if endpoint.status is not EndpointStatus.IN_SERVICE:
        return endpoint
    return replace(
        endpoint,
        status=next_status(endpoint.status, Event.UPDATE),
        modified_at=context.now,
        deadline_at=context.get_work_limit(context.now, changed.variant.provisioning_s),
    )


def replace_variant(
    endpoint: Endpoint, deployment: Deployment, changed: EndpointVariant
) -> Endpoint:
    """The endpoint with one variant of one of its deployments changed."""
    name = changed.variant.name
    variants = tuple(changed if it.variant.name == name else it for it in deployment.variants)
    after = replace(deployment, variants=variants)
    if deployment.generation == endpoint.active.generation:
        return replace(endpoint, active=after)
    if endpoint.bake is not None:
        return replace(endpoint, bake=replace(endpoint.bake, before=after))
    return replace(endpoint, pending=after)
