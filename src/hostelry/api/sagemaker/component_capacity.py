"""Check that the copies on an endpoint have room on the instances that an update leaves."""

from collections import Counter

from hostelry.api.context import CallContext
from hostelry.api.sagemaker.component_move import LEFT_BEHIND, hosting_variant
from hostelry.api.sagemaker.component_spec import shapes_of
from hostelry.api.sagemaker.endpoint_summary import EndpointFleet
from hostelry.base.errors import validation_error
from hostelry.domain.copy import Instance, InstanceState
from hostelry.domain.endpoint import Deployment, Endpoint
from hostelry.placement.fleet_size import fleet_growth
from hostelry.placement.values import CopyRequest, Pool
from hostelry.store.records import on_endpoint


def check_room_for_copies(context: CallContext, endpoint: Endpoint, wanted: Deployment) -> None:
    """Refuse fewer or other instances than the copies that serve now need."""
    if not endpoint.takes_components:
        return
    fleet = EndpointFleet.of(context, endpoint.name)
    variant = hosting_variant(wanted)
    limit = most_instances(wanted)
    live = live_instances(endpoint, fleet)
    stay = all(it.instance_type in variant.instance_types for it in live)
    if stay and limit >= len(live):
        return
    copies = serving_copies(context, endpoint, fleet, variant.instance_types)
    pools = [
        Pool(instance_type=it, shape=shape) for it, shape in shapes_of(context, variant).items()
    ]
    unplaced = len(fleet_growth(copies, pools, max_more=limit).why_not)
    if unplaced:
        raise validation_error(
            f'Endpoint "{endpoint.arn}" would have at most {limit} x'
            f" {' or '.join(variant.instance_types)}; of the {len(copies)} copies of inference"
            f" components that serve now, {unplaced} would have no place there. Allow more"
            " instances, or lower the copy counts first."
        )


def most_instances(wanted: Deployment) -> int:
    """The maximum of instances of a deployment of an endpoint for components."""
    only, scaling = wanted.variants[0], hosting_variant(wanted).scaling
    if scaling is None or not scaling.enabled:
        return only.desired_instance_count
    return scaling.max_instances


def live_instances(endpoint: Endpoint, fleet: EndpointFleet) -> list[Instance]:
    """The instances of the endpoint's active deployment that are not terminating."""
    return [
        instance
        for instance in fleet.instances
        if instance.generation == endpoint.active.generation
        and instance.state is not InstanceState.TERMINATING
    ]


def serving_copies(
    context: CallContext, endpoint: Endpoint, fleet: EndpointFleet, types: tuple[str, ...]
) -> list[CopyRequest]:
    """Each serving copy that is desired, with what it would reserve on instances of `types`."""
    serving = Counter(it.component_name for it in fleet.copies if it.serves)
    found: list[CopyRequest] = []
    for component in on_endpoint(context.state.components, context.scope, endpoint.name).values():
        spec = component.spec
        if component.status in LEFT_BEHIND or spec is None:
            continue
        typed = {name: spec.on(name) for name in types}
        one = CopyRequest(
            owner=component.name,
            requirements_by_type={name: it.requirements for name, it in typed.items() if it},
            strategy=spec.scheduling.strategy,
            max_imbalance=spec.scheduling.max_imbalance,
        )
        found += [one] * min(component.desired_copies, serving[component.name])
    return found
