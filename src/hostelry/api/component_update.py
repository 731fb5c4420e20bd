"""UpdateInferenceComponent and UpdateInferenceComponentRuntimeConfig."""

from dataclasses import replace

from hostelry.api.component import (
    KIND,
    adapter_deadline,
    find_component,
    refuse_runtime_config,
    spec_deadline,
)
from hostelry.api.component_move import check_fits_pending
from hostelry.api.component_spec import (
    Given,
    adapter_spec,
    chosen_specification,
    component_spec,
    given_in_force,
    given_next,
    overridden,
    resolved_container,
)
from hostelry.api.context import Context, Params, Result, new_generation
from hostelry.api.endpoint import find_endpoint
from hostelry.api.refusals import in_progress, refuse_fields
from hostelry.base.errors import validation_error
from hostelry.domain.component import AdapterSpec, ComponentSpec, InferenceComponent
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.model import Container
from hostelry.domain.status import Event, can, is_final, next_status
from hostelry.store.records import Versioned


def update_inference_component(context: Context, params: Params) -> Result:
    """UpdateInferenceComponent: new copies, or a new adapter, beside what serves.

    A member that the new Specification leaves out keeps its value. ModelName and Container go
    together: a new ModelName, or a Container with an Image, starts afresh; a Container without one
    changes what is there.
    """
    refuse_fields(params, ("DeploymentConfig",))
    found = find_component(context, params["InferenceComponentName"])
    check_updatable(found.value)
    if not any(params.get(it) for it in ("Specification", "Specifications", "RuntimeConfig")):
        raise validation_error(
            "Nothing to update: give Specification, Specifications or RuntimeConfig."
        )
    component = found.value
    if component.spec is not None:
        updated = updated_base(context, component, component.spec, params)
    else:
        assert component.adapter is not None, "a component is a base or an adapter"
        updated = updated_adapter(context, component, component.adapter, params)
    check_fits_pending(context, updated, find_endpoint(context, component.endpoint_name).value)
    return put_updating(context, found, updated)


def update_inference_component_runtime_config(context: Context, params: Params) -> Result:
    """UpdateInferenceComponentRuntimeConfig: another number of copies, 0 included."""
    found = find_component(context, params["InferenceComponentName"])
    component = found.value
    check_updatable(component)
    if component.adapter is not None:
        refuse_runtime_config(params, "DesiredRuntimeConfig")
    copies = params["DesiredRuntimeConfig"]["CopyCount"]
    return put_updating(context, found, replace(component, desired_copies=copies))


def put_updating(
    context: Context, found: Versioned[InferenceComponent], changed: InferenceComponent
) -> Result:
    """Write the component on its way to what `changed` wants."""
    updated = replace(
        changed,
        status=next_status(found.value.status, Event.UPDATE),
        modified_at=context.now,
        deadline_at=update_deadline(context, changed),
        failure_reason=None,
    )
    context.state.components.put(context.scope, updated.name, updated, expect=found.version)
    return {"InferenceComponentArn": updated.arn}


def update_deadline(context: Context, changed: InferenceComponent) -> float:
    """When the update fails."""
    if changed.spec is not None:
        return spec_deadline(context, changed.spec)
    assert changed.adapter is not None, "a component is a base or an adapter"
    base = find_component(context, changed.adapter.base_name).value
    return adapter_deadline(context, base)


def check_updatable(component: InferenceComponent) -> None:
    """Refuse an update that the component's status has no row for."""
    if can(component.status, Event.UPDATE):
        return
    if not is_final(component.status):
        raise in_progress(KIND, component.arn)
    raise validation_error(
        f'Cannot update inference component "{component.arn}" in status {component.status.value};'
        " delete it and create it again."
    )


def updated_base(
    context: Context, component: InferenceComponent, old: ComponentSpec, params: Params
) -> InferenceComponent:
    """The base with its new specification, its new copy count, or both."""
    runtime = params.get("RuntimeConfig") or {}
    component = replace(
        component, desired_copies=runtime.get("CopyCount", component.desired_copies)
    )
    if params.get("Specification") is None and params.get("Specifications") is None:
        return component
    variant = variant_of(context, component)
    new = chosen_specification(params, variant.instance_type)
    if new.get("BaseInferenceComponentName") is not None:
        raise validation_error(
            f'Inference component "{component.arn}" has copies of its own; an update cannot make'
            " it an adapter."
        )
    given = merged(given_specification(component, variant), new)
    spec = component_spec(
        context, given, variant, new_generation(context), updated_container(context, old, new)
    )
    return respecified(component, spec, given_after(given, new, params))


def updated_container(context: Context, old: ComponentSpec, new: Given) -> Container:
    """What the new copies run: the old container unless the new specification says otherwise."""
    override = new.get("Container") or {}
    if new.get("ModelName") or override.get("Image"):
        return resolved_container(context, new)
    return overridden(old.container, override)


def updated_adapter(
    context: Context, component: InferenceComponent, old: AdapterSpec, params: Params
) -> InferenceComponent:
    """The adapter with its new weights, which get a name of their own in the model server."""
    refuse_runtime_config(params, "RuntimeConfig")
    variant = variant_of(context, component)
    new = chosen_specification(params, variant.instance_type)
    if new.get("BaseInferenceComponentName") not in (None, old.base_name):
        raise validation_error(
            f'Adapter "{component.arn}" belongs to base "{old.base_name}"; an update cannot give it'
            f' another, "{new["BaseInferenceComponentName"]}".'
        )
    given = merged(given_specification(component, variant), new)
    spec = adapter_spec(given, old.base_name, new_generation(context))
    return respecified(component, spec, given_after(given, new, params))


def given_after(given: Given, new: Given, params: Params) -> Given:
    """What Describe echoes after the update: `given` where the request had `new`."""
    several = params.get("Specifications")
    if several is None:
        return {"Specification": given, "Specifications": None}
    return {
        "Specification": None,
        "Specifications": [given if it is new else it for it in several],
    }


def respecified(
    component: InferenceComponent, spec: ComponentSpec | AdapterSpec, echoed: Given
) -> InferenceComponent:
    """The component with `spec`, keeping the one before it to fall back to."""
    component = replace(component, given=given_next(component, echoed))
    if isinstance(spec, ComponentSpec):
        return replace(component, spec=spec, previous_spec=component.spec)
    return replace(component, adapter=spec, previous_adapter=component.adapter)


def given_specification(component: InferenceComponent, variant: Variant) -> Given:
    """The specification that was in force so far."""
    return chosen_specification(given_in_force(component), variant.instance_type)


def merged(old: Given, new: Given) -> Given:
    """`old` with the members of `new`; see `update_inference_component`."""
    override = new.get("Container") or {}
    kept = dict(old)
    if new.get("ModelName") or override.get("Image"):
        for field in ("ModelName", "Container"):
            kept.pop(field, None)
    before = kept.get("Container") or {}
    container = {**before, **override}
    if before.get("Environment") and override.get("Environment"):
        container["Environment"] = {**before["Environment"], **override["Environment"]}
    return {**kept, **new, **({"Container": container} if container else {})}


def variant_of(context: Context, component: InferenceComponent) -> Variant:
    """The variant that hosts the component."""
    endpoint = find_endpoint(context, component.endpoint_name).value
    variants = (it.variant for it in endpoint.active.variants)
    return next(it for it in variants if it.name == component.variant_name)
