"""Checks that components and their copies fit on the instances of an update."""

from collections import Counter

from hostelry.api.context import CallContext
from hostelry.api.sagemaker.component_spec import get_shapes
from hostelry.api.sagemaker.endpoint_summary import EndpointFleet
from hostelry.base.errors import validation_error
from hostelry.domain.component import ComponentSpec, ComponentStatus, InferenceComponent
from hostelry.domain.copy import Instance, InstanceState
from hostelry.domain.endpoint import Deployment, Endpoint
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.validation import shortfall
from hostelry.placement.fleet_size import plan_growth
from hostelry.placement.values import CopyRequest, Pool
from hostelry.store.records import on_endpoint

# A component with one of these statuses has no copies to move.
LEFT_BEHIND = {ComponentStatus.DELETING, ComponentStatus.FAILED}


def check_components_fit(context: CallContext, endpoint: Endpoint, pending: Deployment) -> None:
    """Refuse instance types on which a component of the endpoint cannot run."""
    for component in on_endpoint(context.state.components, context.scope, endpoint.name).values():
        if component.status not in LEFT_BEHIND:
            _check_fits(context, component, endpoint, pending)


def check_fits_pending(
    context: CallContext, component: InferenceComponent, endpoint: Endpoint
) -> None:
    """Refuse a component that could not follow its endpoint's update to other instance types.

    While such an update bakes, the component must also fit on the former types.
    """
    for deployment in endpoint.deployments:
        _check_fits(context, component, endpoint, deployment)


def _check_fits(
    context: CallContext, component: InferenceComponent, endpoint: Endpoint, pending: Deployment
) -> None:
    """Refuse a component that cannot run on any instance of `pending`."""
    old, new = _get_hosting_variant(endpoint.active), _get_hosting_variant(pending)
    if component.spec is None or set(old.instance_types) == set(new.instance_types):
        return
    lack = _find_lack(context, component.spec, new)
    if lack is not None:
        raise validation_error(
            f'Inference component "{component.arn}" cannot be on endpoint "{endpoint.arn}" when'
            f" it moves to {', '.join(new.instance_types)}: {lack}"
        )


def _get_hosting_variant(deployment: Deployment) -> Variant:
    return deployment.variants[0].variant


def _find_lack(context: CallContext, spec: ComponentSpec, variant: Variant) -> str | None:
    """Find the reason why no instance of the variant could hold a copy, or None."""
    lacks = []
    for name, shape in get_shapes(context, variant).items():
        typed = spec.on(name)
        lack = f"it has no specification for {name}"
        if typed is not None:
            short = shortfall(typed.requirements, name, shape)
            if short is None:
                return None
            lack = short
        lacks.append(lack)
    return "; ".join(lacks) + "."


def check_room_for_copies(context: CallContext, endpoint: Endpoint, wanted: Deployment) -> None:
    """Refuse fewer or other instances than the copies that serve now need."""
    if not endpoint.takes_components:
        return
    fleet = EndpointFleet.of(context, endpoint.name)
    variant = _get_hosting_variant(wanted)
    limit = _get_max_instances(wanted)
    live = _list_live_instances(endpoint, fleet)
    stay = all(it.instance_type in variant.instance_types for it in live)
    if stay and limit >= len(live):
        return
    copies = _list_serving_copies(context, endpoint, fleet, variant.instance_types)
    pools = [
        Pool(instance_type=it, shape=shape) for it, shape in get_shapes(context, variant).items()
    ]
    unplaced = len(plan_growth(copies, pools, max_more=limit).why_not)
    if unplaced:
        raise validation_error(
            f'Endpoint "{endpoint.arn}" would have at most {limit} x'
            f" {' or '.join(variant.instance_types)}; of the {len(copies)} copies of inference"
            f" components that serve now, {unplaced} would have no place there. Allow more"
            " instances, or lower the copy counts first."
        )


def _get_max_instances(wanted: Deployment) -> int:
    """Compute the maximum number of instances of a deployment for components."""
    only, scaling = wanted.variants[0], _get_hosting_variant(wanted).scaling
    if scaling is None or not scaling.enabled:
        return only.desired_instance_count
    return scaling.max_instances


def _list_live_instances(endpoint: Endpoint, fleet: EndpointFleet) -> list[Instance]:
    """The instances of the endpoint's active deployment that are not terminating."""
    return [
        instance
        for instance in fleet.instances
        if instance.generation == endpoint.active.generation
        and instance.state is not InstanceState.TERMINATING
    ]


def _list_serving_copies(
    context: CallContext, endpoint: Endpoint, fleet: EndpointFleet, types: tuple[str, ...]
) -> list[CopyRequest]:
    """List the desired serving copies with their reservations on instances of `types`."""
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
