"""Check that components can run on other instance types than their endpoint's present ones."""

from hostelry.api.context import CallContext
from hostelry.api.sagemaker.component_spec import shapes_of
from hostelry.base.errors import validation_error
from hostelry.domain.component import ComponentSpec, ComponentStatus, InferenceComponent
from hostelry.domain.endpoint import Deployment, Endpoint
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.validation import shortfall
from hostelry.store.records import on_endpoint

# A component in one of these has no copies that could move.
LEFT_BEHIND = {ComponentStatus.DELETING, ComponentStatus.FAILED}


def check_components_fit(context: CallContext, endpoint: Endpoint, pending: Deployment) -> None:
    """Refuse instance types on which a component of the endpoint cannot run."""
    for component in on_endpoint(context.state.components, context.scope, endpoint.name).values():
        if component.status not in LEFT_BEHIND:
            check_fits(context, component, endpoint, pending)


def check_fits_pending(
    context: CallContext, component: InferenceComponent, endpoint: Endpoint
) -> None:
    """Refuse a component that could not follow its endpoint's update to other instance types.

    Nor, while such an update bakes, one that could not return to the types before it.
    """
    for deployment in endpoint.deployments:
        check_fits(context, component, endpoint, deployment)


def check_fits(
    context: CallContext, component: InferenceComponent, endpoint: Endpoint, pending: Deployment
) -> None:
    """Refuse a component that cannot run on any instance of `pending`; names it and the limits."""
    old, new = hosting_variant(endpoint.active), hosting_variant(pending)
    if component.spec is None or set(old.instance_types) == set(new.instance_types):
        return
    lack = lack_on(context, component.spec, new)
    if lack is not None:
        raise validation_error(
            f'Inference component "{component.arn}" cannot be on endpoint "{endpoint.arn}" when'
            f" it moves to {', '.join(new.instance_types)}: {lack}"
        )


def hosting_variant(deployment: Deployment) -> Variant:
    """The one variant of an endpoint for components."""
    return deployment.variants[0].variant


def lack_on(context: CallContext, spec: ComponentSpec, variant: Variant) -> str | None:
    """Why no instance of the variant could hold a copy; None where one could."""
    lacks = []
    for name, shape in shapes_of(context, variant).items():
        typed = spec.on(name)
        lack = f"it has no specification for {name}"
        if typed is not None:
            short = shortfall(typed.requirements, name, shape)
            if short is None:
                return None
            lack = short
        lacks.append(lack)
    return "; ".join(lacks) + "."
