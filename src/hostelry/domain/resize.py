"""Resizing of components and endpoints, for clients' calls and auto scaling. Pure."""

from msgspec.structs import replace

from hostelry.domain.component import ComponentSpec, ComponentStatus, InferenceComponent
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.serverless import ServerlessConfig
from hostelry.domain.status import Event, next_status, start_deadline


def longest_start(spec: ComponentSpec) -> tuple[float, float]:
    """The longest download and start-up time limits of a copy, over all instance types."""
    typed = [(it.download_timeout_s, it.startup_timeout_s) for it in spec.by_type]
    return max([(spec.download_timeout_s, spec.startup_timeout_s), *typed], key=sum)


def copies_deadline(spec: ComponentSpec, variant: Variant, now: float) -> float:
    """The deadline for copies of `spec` to come up."""
    return start_deadline(now, *longest_start(spec), variant.provisioning_s)


def deployment_deadline(deployment: Deployment, now: float) -> float:
    """The deadline for `deployment` to come up. A variant without a model downloads nothing."""
    return max(
        start_deadline(
            now,
            desired.variant.download_timeout_s if desired.model else 0.0,
            desired.variant.startup_timeout_s if desired.model else 0.0,
            desired.variant.provisioning_s,
        )
        for desired in deployment.variants
    )


def resize_component(
    component: InferenceComponent, copies: int, variant: Variant, now: float
) -> InferenceComponent:
    """Update the base component to `copies` copies.

    Raises IllegalTransition if its status allows no update. A resize may follow a resize.
    """
    assert component.spec is not None, "a base component has a spec"
    resizing = is_only_resizing(component)
    return replace(
        component,
        desired_copies=copies,
        rollout=None,
        status=component.status if resizing else next_status(component.status, Event.UPDATE),
        modified_at=now,
        deadline_at=copies_deadline(component.spec, variant, now),
        failure_reason=None,
    )


def is_only_resizing(component: InferenceComponent) -> bool:
    """Whether the component's update under way changes only its number of copies."""
    return (
        component.status is ComponentStatus.UPDATING
        and component.spec is not None
        and component.previous_spec is None
        and component.rollout is None
    )


def replace_active(endpoint: Endpoint, active: Deployment, now: float) -> Endpoint:
    """Update the endpoint to other counts or weights in its active deployment.

    Raises IllegalTransition if its status allows no update. A resize may follow a resize.
    """
    resizing = is_only_resized(endpoint)
    return replace(
        endpoint,
        active=active,
        status=endpoint.status if resizing else next_status(endpoint.status, Event.UPDATE),
        modified_at=now,
        deadline_at=deployment_deadline(active, now),
        failure_reason=None,
    )


def is_only_resized(endpoint: Endpoint) -> bool:
    """Whether the endpoint's update under way changes only its active deployment."""
    is_new = endpoint.pending is not None or endpoint.bake is not None
    return endpoint.status is EndpointStatus.UPDATING and not is_new


def set_instances(active: Deployment, variant_name: str, count: int) -> Deployment:
    """Set the number of instances of one variant."""
    variants = tuple(
        replace(desired, desired_instance_count=count)
        if desired.variant.name == variant_name
        else desired
        for desired in active.variants
    )
    return replace(active, variants=variants)


def set_environments(
    variant: EndpointVariant, count: int, idle: tuple[str, ...] = ()
) -> EndpointVariant:
    """Set the number of environments of a serverless variant, within its configuration.

    `idle` environments end first. Environments need an instance. With 0 environments, the instance
    count does not change.
    """
    config = variant.serverless
    assert config is not None, "only a serverless variant has environments"
    possible = max(config.provisioned_concurrency, min(count, config.max_concurrency))
    instances = 1 if possible else variant.desired_instance_count
    return replace(variant, environments=possible, idle=idle, desired_instance_count=instances)


def set_serverless(variant: EndpointVariant, config: ServerlessConfig) -> EndpointVariant:
    """Begin the change of a serverless variant to `config`."""
    if config == variant.serverless:
        return variant
    before = variant.serverless_before or variant.serverless
    changed = replace(variant, serverless=config, serverless_before=before)
    return set_environments(changed, variant.environments, variant.idle)


def replace_variant(deployment: Deployment, changed: EndpointVariant) -> Deployment:
    """Replace the variant of that name."""
    name = changed.variant.name
    variants = tuple(changed if it.variant.name == name else it for it in deployment.variants)
    return replace(deployment, variants=variants)
