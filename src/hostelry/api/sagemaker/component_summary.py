"""The answer of DescribeInferenceComponent."""

from collections import Counter
from typing import Any

from hostelry.api.context import CallContext, Result
from hostelry.api.refusals import echo_members, short_reason
from hostelry.api.sagemaker.component_spec import Given, get_given_in_force
from hostelry.api.sagemaker.endpoint_summary import deployed_image
from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy
from hostelry.store.records import on_endpoint

ECHOED = (
    "InstanceType",
    "ModelName",
    "StartupParameters",
    "ComputeResourceRequirements",
    "BaseInferenceComponentName",
    "DataCacheConfig",
    "SchedulingConfig",
)
PLACING = {ComponentStatus.CREATING, ComponentStatus.UPDATING, ComponentStatus.IN_SERVICE}
ECHOED_OF_CONTAINER = ("ArtifactUrl", "Environment", "ContainerMetricsConfig")


def component_summary(context: CallContext, component: InferenceComponent) -> Result:
    """DescribeInferenceComponent's answer."""
    result: Result = {
        "InferenceComponentName": component.name,
        "InferenceComponentArn": component.arn,
        "EndpointName": component.endpoint_name,
        "EndpointArn": context.scope.arn("endpoint", component.endpoint_name),
        "VariantName": component.variant_name,
        "InferenceComponentStatus": component.status.value,
        "CreationTime": component.created_at,
        "LastModifiedTime": component.modified_at,
        "RuntimeConfig": runtime_summary(context, component),
        **specification_summaries(context, component),
    }
    reason = component.failure_reason or placement_note(component)
    if reason:
        result["FailureReason"] = short_reason(reason)
    if component.given.get("DeploymentConfig"):
        result["LastDeploymentConfig"] = component.given["DeploymentConfig"]
    return result


def placement_note(component: InferenceComponent) -> str | None:
    """Find the reason why copies have no place yet. AWS reports it only when it gives up."""
    return component.placement_note if component.status in PLACING else None


def specification_summaries(context: CallContext, component: InferenceComponent) -> Result:
    """Build Specification or Specifications as given. An adapter shows its base's requirements.

    Source: Terraform's aws_sagemaker_inference_component, whose schema says so of the API.
    """
    given = get_given_in_force(component)
    several = given.get("Specifications")
    shown = [specification_summary(component, it) for it in several or [given["Specification"]]]
    if component.adapter is not None:
        inherited = inherited_requirements(context, component.adapter.base_name)
        if inherited is not None:
            shown = [{**it, "ComputeResourceRequirements": inherited} for it in shown]
    return {"Specifications": shown} if several else {"Specification": shown[0]}


def inherited_requirements(context: CallContext, base_name: str) -> Given | None:
    """The requirements in the first specification of an adapter's base. None for a missing base."""
    base = context.state.components.get(context.scope, base_name)
    if base is None:
        return None
    given = get_given_in_force(base.value)
    first: Given = given.get("Specification") or given["Specifications"][0]
    return first.get("ComputeResourceRequirements")


def specification_summary(component: InferenceComponent, given: Given) -> Result:
    """The given fields, and the image that they resolve to."""
    summary = echo_members(given, ECHOED)
    container = container_summary(component, given)
    return {**summary, "Container": container} if container else summary


def container_summary(component: InferenceComponent, given: Given) -> dict[str, Any]:
    """The container's given fields, and for a base its image."""
    container = given.get("Container") or {}
    summary = echo_members(container, ECHOED_OF_CONTAINER)
    image = container.get("Image") or _get_image(component, given.get("InstanceType"))
    if image:
        summary["DeployedImage"] = deployed_image(image, component.created_at)
    return summary


def _get_image(component: InferenceComponent, instance_type: str | None) -> str | None:
    """The image of a base on instances of a type, or on any type."""
    if component.spec is None:
        return None
    typed = component.spec.on(instance_type) if instance_type else None
    return (typed or component.spec).container.image


def runtime_summary(context: CallContext, component: InferenceComponent) -> Result:
    """Count the desired copies, and the serving copies by instance type.

    Copies that an update of the endpoint starts, or keeps for its rollback, do not count.
    """
    types = serving_instance_types(context, component.endpoint_name)
    copies = [
        copy
        for copy in on_endpoint(
            context.state.copies, context.scope, component.endpoint_name
        ).values()
        if copy.instance_id in types and counts_for(copy, component)
    ]
    by_type = Counter(types[it.instance_id] for it in copies)
    summary: Result = {
        "DesiredCopyCount": desired_copies(context, component),
        "CurrentCopyCount": len(copies),
    }
    if by_type:
        summary["PlacementStatus"] = [
            {"InstanceType": name, "CurrentCopyCount": count}
            for name, count in sorted(by_type.items())
        ]
    return summary


def serving_instance_types(context: CallContext, endpoint_name: str) -> dict[str, str]:
    """The type of each instance of the endpoint's active deployment, by id."""
    scope, state = context.scope, context.state
    endpoint = state.endpoints.get(scope, endpoint_name)
    return {
        instance.id: instance.instance_type
        for instance in on_endpoint(state.instances, scope, endpoint_name).values()
        if endpoint is not None and instance.generation == endpoint.value.active.generation
    }


def counts_for(copy: Copy, component: InferenceComponent) -> bool:
    """True if `copy` serves the component: its own copy, or a copy of its base with the adapter."""
    if not copy.serves:
        return False
    if component.adapter is None:
        return copy.component_name == component.name
    proven = {it.id for it in copy.spec.adapters if it.alias == component.name}
    return copy.component_name == component.adapter.base_name and bool(
        proven & copy.proven_adapters
    )


def desired_copies(context: CallContext, component: InferenceComponent) -> int:
    """The desired copies. An adapter is desired on every copy of its base."""
    if component.adapter is None:
        return component.desired_copies
    base = context.state.components.get(context.scope, component.adapter.base_name)
    return base.value.desired_copies if base else 0
