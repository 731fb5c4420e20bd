"""CreateInferenceComponent, DescribeInferenceComponent, ListInferenceComponents and Delete."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result, new_generation
from hostelry.api.deregistration import deregister_component
from hostelry.api.page import list_answer, select_in_parts
from hostelry.api.sagemaker.component_fit import check_fits_pending
from hostelry.api.sagemaker.component_spec import (
    Given,
    build_adapter_spec,
    build_component_spec,
    find_endpoints_role,
    parse_specifications,
    resolve_container,
)
from hostelry.api.sagemaker.component_summary import component_summary
from hostelry.api.sagemaker.endpoint import find_endpoint
from hostelry.api.sagemaker.kinds import COMPONENTS, check_new
from hostelry.api.sagemaker.tag import check_verdict_tag, get_at_zero, is_pinned
from hostelry.api.tags import parse_tags, write_tags
from hostelry.base.errors import validation_error
from hostelry.domain.component import (
    AdapterSpec,
    ComponentSpec,
    ComponentStatus,
    InferenceComponent,
)
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.resize import copies_deadline
from hostelry.domain.status import Event, delete_deadline, next_status, start_deadline
from hostelry.domain.validation import MAX_COPIES, check_limit
from hostelry.store.records import on_endpoint, parts_in_scope

KIND = "inference-component"
# A component may be created while its endpoint is created. It waits for the instances.
HOSTING = {
    EndpointStatus.CREATING,
    EndpointStatus.IN_SERVICE,
    EndpointStatus.UPDATING,
}


def create_inference_component(context: CallContext, params: Params) -> Result:
    """CreateInferenceComponent: a base, or with BaseInferenceComponentName an adapter of a base."""
    scope, name = context.scope, params["InferenceComponentName"]
    tags = parse_tags(params.get("Tags"))
    check_verdict_tag(tags, KIND)
    check_new(context, KIND, name)
    endpoint = find_endpoint(context, params["EndpointName"]).value
    variant = hosting_variant(endpoint, params.get("VariantName"))
    given = parse_specifications(params, variant)
    common: dict[str, Any] = {
        "scope": scope,
        "name": name,
        "arn": scope.arn(KIND, name),
        "endpoint_name": endpoint.name,
        "variant_name": variant.name,
        "created_at": context.now,
        "modified_at": context.now,
        "status": ComponentStatus.CREATING,
        "pinned": is_pinned(tags),
        "at_zero": get_at_zero(tags),
        "given": dict(params),
    }
    make = new_adapter if is_of_adapter(given) else new_base
    component = make(context, params, given, variant, common)
    check_fits_pending(context, component, endpoint)
    deregister_component(context, name)  # earlier versions kept a predecessor's scalable target
    COMPONENTS.put(context, component)
    write_tags(context, component.arn, tags)
    return {"InferenceComponentArn": component.arn}


def is_of_adapter(given: Sequence[Given]) -> bool:
    """True if the specifications belong to an adapter, which has only one."""
    bases = [one.get("BaseInferenceComponentName") for one in given]
    if all(base is None for base in bases):
        return False
    if len(given) > 1:
        raise validation_error(
            "An adapter (BaseInferenceComponentName is given) has one Specification: it is on every"
            " copy of its base inference component, whatever its instance."
        )
    return True


def new_base(
    context: CallContext,
    params: Params,
    given: Sequence[Given],
    variant: Variant,
    common: dict[str, Any],
) -> InferenceComponent:
    """Build a base component, which reserves resources for its copies."""
    copies = (params.get("RuntimeConfig") or {"CopyCount": 1})["CopyCount"]
    if copies < 1:
        raise validation_error(
            f"RuntimeConfig.CopyCount is {copies}; at creation the copy count must be an integer"
            " larger than 0."
        )
    check_limit("RuntimeConfig.CopyCount", copies, MAX_COPIES)
    role = find_endpoints_role(find_endpoint(context, common["endpoint_name"]).value)
    containers = [resolve_container(context, one, role) for one in given]
    spec = build_component_spec(context, given, containers, variant, new_generation(context))
    return InferenceComponent(
        **common,
        desired_copies=copies,
        spec=spec,
        deadline_at=spec_deadline(context, spec, variant),
    )


def new_adapter(
    context: CallContext,
    params: Params,
    given: Sequence[Given],
    variant: Variant,
    common: dict[str, Any],
) -> InferenceComponent:
    """Build an adapter component, which lives in every copy of its base and reserves nothing."""
    refuse_runtime_config(params, "RuntimeConfig")
    refuse_variant_name(params)
    base_name = given[0]["BaseInferenceComponentName"]
    base = find_base(context, base_name, common["endpoint_name"])
    adapter = build_adapter_spec(given[0], base.name, new_generation(context))
    return InferenceComponent(
        **{**common, "variant_name": base.variant_name},
        desired_copies=0,
        adapter=adapter,
        deadline_at=adapter_deadline(context, adapter, base, variant),
    )


def describe_inference_component(context: CallContext, params: Params) -> Result:
    """DescribeInferenceComponent."""
    component = COMPONENTS.find(context, params["InferenceComponentName"]).value
    return component_summary(context, component)


def list_inference_components(context: CallContext, params: Params) -> Result:
    """ListInferenceComponents."""
    endpoint, variant = params.get("EndpointNameEquals"), params.get("VariantNameEquals")
    components = select_in_parts(
        params,
        parts_in_scope(context.state.components, context.scope, endpoint),
        context.state.first_components,
        None if variant is None else lambda it: it.variant_name == variant,
    )
    operation, member = "ListInferenceComponents", "InferenceComponents"
    return list_answer(context, operation, params, member, components, _summarize)


def _summarize(component: InferenceComponent) -> Result:
    return {
        "InferenceComponentName": component.name,
        "InferenceComponentArn": component.arn,
        "InferenceComponentStatus": component.status.value,
        "EndpointName": component.endpoint_name,
        "EndpointArn": component.scope.arn("endpoint", component.endpoint_name),
        "VariantName": component.variant_name,
        "CreationTime": component.created_at,
        "LastModifiedTime": component.modified_at,
    }


def delete_inference_component(context: CallContext, params: Params) -> Result:
    """DeleteInferenceComponent: in every status, also while the component is being deleted.

    The component is deregistered as a scalable target. A delete cancels a create or an update in
    progress, which AWS may refuse. The record is deleted once every copy is stopped.
    """
    found = COMPONENTS.find(context, params["InferenceComponentName"])
    component = found.value
    check_no_adapters(context, component)
    deleting = replace(
        component,
        status=next_status(component.status, Event.DELETE),
        modified_at=context.now,
        deadline_at=delete_deadline(context.now),
        rollout=None,
        placement_note=None,
    )
    if deleting.status is component.status:
        return {}
    deregister_component(context, component.name)
    COMPONENTS.put(context, deleting, found)
    write_tags(context, component.arn, {})
    return {}


def hosting_variant(endpoint: Endpoint, name: str | None) -> Variant:
    """The variant that hosts the endpoint's components, which `name` must name if given."""
    if not endpoint.takes_components:
        raise validation_error(
            "Inference Components are not supported in this Endpoint. Please make sure this"
            " endpoint can deploy inference components."
        )
    if endpoint.status not in HOSTING:
        raise validation_error(
            f'Cannot create an inference component on endpoint "{endpoint.arn}" in status'
            f" {endpoint.status.value}."
        )
    variant = endpoint.active.variants[0].variant
    if name not in (None, variant.name):
        raise validation_error(
            f'Could not find variant "{name}" of endpoint "{endpoint.arn}"; its variant is'
            f' "{variant.name}".'
        )
    return variant


def find_base(context: CallContext, base_name: str, endpoint_name: str) -> InferenceComponent:
    """Find the base of an adapter on `endpoint_name`. Raises ValidationException."""
    base = COMPONENTS.find(context, base_name).value
    arn = base.arn
    if base.endpoint_name != endpoint_name:
        raise validation_error(
            f'Base inference component "{arn}" is on endpoint "{base.endpoint_name}"; its adapters'
            f' must be on the same, not on "{endpoint_name}".'
        )
    if base.spec is None:
        raise validation_error(
            f'Inference component "{arn}" is an adapter itself and cannot be a base.'
        )
    if base.status in (ComponentStatus.DELETING, ComponentStatus.FAILED):
        raise validation_error(
            f'Base inference component "{arn}" is in status {base.status.value}.'
        )
    return base


def refuse_runtime_config(params: Params, field: str) -> None:
    """Refuse a copy count for an adapter."""
    if params.get(field) is not None:
        raise validation_error(
            f"{field} cannot be given for an adapter: it is on every copy of its base inference"
            " component; change the copy count of the base."
        )


def refuse_variant_name(params: Params) -> None:
    """Refuse a variant for an adapter. Source: Terraform's provider says that AWS forbids it."""
    if params.get("VariantName") is not None:
        raise validation_error(
            "VariantName cannot be given for an adapter (BaseInferenceComponentName is given): it"
            " is on the variant of its base inference component."
        )


def check_no_adapters(context: CallContext, component: InferenceComponent) -> None:
    """Refuse to delete a base while it has adapters that are not being deleted.

    Terraform's provider tries again while the text says "is a base inference component".
    """
    if component.adapter is not None:
        return
    mine = on_endpoint(context.state.components, context.scope, component.endpoint_name)
    adapters = [
        other.name
        for other in mine.values()
        if other.adapter is not None
        and other.adapter.base_name == component.name
        and other.status is not ComponentStatus.DELETING
    ]
    if adapters:
        raise validation_error(
            f'Cannot delete inference component "{component.arn}": it is a base inference component'
            " for one or more associated adapter inference components:"
            f" {', '.join(adapters[:10])}{', ...' if len(adapters) > 10 else ''}."
            " Delete them first."
        )


def spec_deadline(context: CallContext, spec: ComponentSpec, variant: Variant) -> float:
    """Compute the time until which copies of `spec` must start."""
    return copies_deadline(spec, variant, context.now)


def adapter_deadline(
    context: CallContext, adapter: AdapterSpec, base: InferenceComponent, variant: Variant
) -> float:
    """Compute the deadline of an adapter. It is not before the deadline of a starting base."""
    limits_s = (adapter.download_timeout_s or 0.0, adapter.startup_timeout_s or 0.0)
    deadlines = [start_deadline(context.now, *limits_s), base.deadline_at or context.now]
    if base.spec is not None:
        deadlines.append(spec_deadline(context, base.spec, variant))
    return max(deadlines)
