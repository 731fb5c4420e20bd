"""Whether the copies that run on an endpoint have room on the instances an update leaves it."""

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


def check_room_for_copies(context: CallContext, endpoint: Endpoint, wanted: Deployment) -> None:
    """Refuse fewer or other instances than the copies that serve now need."""
    if not endpoint.takes_components:
        return
    presence = EndpointFleet.of(context, endpoint.name)
    variant = hosting_variant(wanted)
    limit = most_instances(wanted)
    live = live_instances(endpoint, presence)
    stay = all(it.instance_type in variant.instance_types for it in live)
    if stay and limit >= len(live):
        return
    copies = serving_copies(context, endpoint, presence, variant.instance_types)
    pools = [
        Pool(instance_type=it, shape=shape) for it, shape in shapes_of(context, variant).items()
    ]
    homeless = len(fleet_growth(copies, pools, max_more=limit).why_not)
    if homeless:
        raise validation_error(
            f'Endpoint "{endpoint.arn}" would have at most {limit} x'
            f" {' or '.join(variant.instance_types)}; of the {len(copies)} copies of inference"
            f" components that serve now, {homeless} would have no place there. Allow more"
            " instances, or lower the copy counts first."
        )


def most_instances(wanted: Deployment) -> int:
    """The most instances that the deployment of an endpoint for components may have."""
    only, scaling = wanted.variants[0], hosting_variant(wanted).scaling
    if scaling is None or not scaling.enabled:
        return only.desired_instance_count
    return scaling.max_instances


def live_instances(endpoint: Endpoint, presence: EndpointFleet) -> list[Instance]:
    """The instances that the endpoint's active deployment has."""
    return [
        it
        for it in presence.instances
        if it.generation == endpoint.active.generation and it.state is not InstanceState.TERMINATING
    ]


def serving_copies(
    context: CallContext, endpoint: Endpoint, presence: EndpointFleet, types: tuple[str, ...]
) -> list[CopyRequest]:
    """What each copy that serves, as far as it is wanted, would ask of an instance of `types`."""
    serving = Counter(it.component_name for it in presence.copies if it.serves)
    found: list[CopyRequest] = []
    for stored in context.state.components.list(context.scope):
        component = stored.value
        spec = component.spec
        if component.endpoint_name != endpoint.name or component.status in LEFT_BEHIND:
            continue
        if spec is None:
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
