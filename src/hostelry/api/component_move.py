"""Whether components can run on another instance type than their endpoint's present one."""

from hostelry.api.component_spec import Given, chosen_specification, given_in_force
from hostelry.api.context import Context
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.endpoint import Deployment, Endpoint
from hostelry.domain.validation import check_requirements

# A component in one of these has no copies that could move.
LEFT_BEHIND = {ComponentStatus.DELETING, ComponentStatus.FAILED}


def check_components_fit(context: Context, endpoint: Endpoint, pending: Deployment) -> None:
    """Refuse an instance type that some component of the endpoint cannot run on."""
    for stored in context.state.components.list(context.scope):
        component = stored.value
        if component.endpoint_name == endpoint.name and component.status not in LEFT_BEHIND:
            check_fits(context, component, endpoint, pending)


def check_fits_pending(context: Context, component: InferenceComponent, endpoint: Endpoint) -> None:
    """Refuse a component that could not follow its endpoint's update to another instance type."""
    if endpoint.pending is not None:
        check_fits(context, component, endpoint, endpoint.pending)


def check_fits(
    context: Context, component: InferenceComponent, endpoint: Endpoint, pending: Deployment
) -> None:
    """Refuse a component that cannot run on one instance of `pending`; names it and the limit."""
    old_type, new_type = instance_type_of(endpoint.active), instance_type_of(pending)
    if old_type == new_type:
        return
    try:
        check_same_specification(component, old_type, new_type)
        if component.spec is not None:
            shape = context.shape_of(new_type)
            check_requirements(component.spec.requirements, new_type, shape)
    except ServiceError as error:
        raise validation_error(
            f'Inference component "{component.arn}" cannot be on endpoint "{endpoint.arn}" when'
            f" it moves to {new_type}: {error.message}"
        ) from error


def instance_type_of(deployment: Deployment) -> str:
    """The instance type of an endpoint for components, which has one variant."""
    return deployment.variants[0].variant.instance_type


def check_same_specification(component: InferenceComponent, old_type: str, new_type: str) -> None:
    """Refuse where the request gave no specification for the new type, or another one."""
    given = given_in_force(component)
    old = chosen_specification(given, old_type)
    new = chosen_specification(given, new_type)
    if without_type(old) != without_type(new):
        raise validation_error(
            f"Its Specifications for {old_type} and {new_type} differ; an update of the endpoint"
            " does not exchange them."
        )


def without_type(given: Given) -> Given:
    """What a specification says beside the instance type it is for."""
    return {name: value for name, value in given.items() if name != "InstanceType"}
