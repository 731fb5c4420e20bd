"""UpdateInferenceComponent and UpdateInferenceComponentRuntimeConfig."""

from collections.abc import Sequence
from dataclasses import replace

from hostelry.api.context import CallContext, Params, Result, new_generation
from hostelry.api.refusals import in_progress
from hostelry.api.sagemaker.component import (
    KIND,
    adapter_deadline,
    find_component,
    refuse_runtime_config,
    spec_deadline,
)
from hostelry.api.sagemaker.component_move import check_fits_pending
from hostelry.api.sagemaker.component_rollout import MAX_EXECUTION_S, rolling_update
from hostelry.api.sagemaker.component_spec import (
    adapter_spec,
    component_spec,
    overridden,
    resolved_container,
)
from hostelry.api.sagemaker.component_summary import inherited_requirements
from hostelry.api.sagemaker.endpoint import find_endpoint
from hostelry.api.sagemaker.specifications import (
    Given,
    all_given,
    changed_by,
    given_after,
    given_in_force,
    given_next,
    merged,
    specifications_of,
)
from hostelry.base.errors import validation_error
from hostelry.domain.component import AdapterSpec, ComponentSpec, InferenceComponent, Rollout
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.model import Container
from hostelry.domain.resize import with_copies
from hostelry.domain.status import Event, can, is_final, next_status
from hostelry.domain.validation import MAX_COPIES, check_limit
from hostelry.store.records import Versioned


def update_inference_component(context: CallContext, params: Params) -> Result:
    """UpdateInferenceComponent: new copies, or a new adapter, beside those that serve.

    A member that a new specification leaves out keeps its value; see `merged`.
    """
    found = find_component(context, params["InferenceComponentName"])
    component = found.value
    check_updatable(component)
    if not any(params.get(it) for it in ("Specification", "Specifications", "RuntimeConfig")):
        raise validation_error(
            "Nothing to update: give Specification, Specifications or RuntimeConfig."
        )
    variant = variant_of(context, component)
    if component.spec is not None:
        updated = updated_base(context, component, component.spec, params, variant)
    else:
        assert component.adapter is not None, "a component is a base or an adapter"
        updated = updated_adapter(context, component, component.adapter, params, variant)
    check_fits_pending(context, updated, find_endpoint(context, component.endpoint_name).value)
    return put_updating(context, found, updated, variant)


def update_inference_component_runtime_config(context: CallContext, params: Params) -> Result:
    """UpdateInferenceComponentRuntimeConfig: another number of copies, 0 included."""
    found = find_component(context, params["InferenceComponentName"])
    component = found.value
    check_updatable(component)
    if component.adapter is not None:
        refuse_runtime_config(params, "DesiredRuntimeConfig")
    copies = params["DesiredRuntimeConfig"]["CopyCount"]
    check_limit("DesiredRuntimeConfig.CopyCount", copies, MAX_COPIES)
    changed = with_copies(component, copies, variant_of(context, component), context.now)
    context.state.components.put(context.scope, changed.name, changed, expect=found.version)
    return {"InferenceComponentArn": changed.arn}


def put_updating(
    context: CallContext,
    found: Versioned[InferenceComponent],
    changed: InferenceComponent,
    variant: Variant,
) -> Result:
    """Write the component as updating to `changed`."""
    updated = replace(
        changed,
        status=next_status(found.value.status, Event.UPDATE),
        modified_at=context.now,
        deadline_at=update_deadline(context, changed, variant),
        failure_reason=None,
    )
    context.state.components.put(context.scope, updated.name, updated, expect=found.version)
    return {"InferenceComponentArn": updated.arn}


def update_deadline(context: CallContext, changed: InferenceComponent, variant: Variant) -> float:
    """The deadline of the update."""
    if changed.spec is None:
        assert changed.adapter is not None, "a component is a base or an adapter"
        base = find_component(context, changed.adapter.base_name).value
        return adapter_deadline(context, changed.adapter, base, variant)
    if changed.rollout is None:
        return spec_deadline(context, changed.spec, variant)
    return context.now + (changed.rollout.policy.max_execution_s or MAX_EXECUTION_S)


def check_updatable(component: InferenceComponent) -> None:
    """Refuse an update in a status that allows none."""
    if can(component.status, Event.UPDATE):
        return
    if not is_final(component.status):
        raise in_progress(KIND, component.arn)
    raise validation_error(
        f'Cannot update inference component "{component.arn}" in status {component.status.value};'
        " delete it and create it again."
    )


def updated_base(
    context: CallContext,
    component: InferenceComponent,
    old: ComponentSpec,
    params: Params,
    variant: Variant,
) -> InferenceComponent:
    """The base with its new specifications, its new copy count, or both."""
    runtime = params.get("RuntimeConfig") or {}
    copies = runtime.get("CopyCount", component.desired_copies)
    check_limit("RuntimeConfig.CopyCount", copies, MAX_COPIES)
    component = replace(component, desired_copies=copies, rollout=None)
    if params.get("Specification") is None and params.get("Specifications") is None:
        return recounted(context, component, params)
    new = specifications_of(params, variant)
    if any(one.get("BaseInferenceComponentName") is not None for one in new):
        raise validation_error(
            f'Inference component "{component.arn}" has copies of its own; an update cannot make'
            " it an adapter."
        )
    before = all_given(given_in_force(component))
    changed = [changed_by(one, before, variant) for one in new]
    given = [merged(was or {}, one) for was, one in zip(changed, new, strict=True)]
    containers = [
        updated_container(context, old, was, one) for was, one in zip(changed, new, strict=True)
    ]
    spec = component_spec(context, given, containers, variant, new_generation(context))
    updated = respecified(component, spec, params, given)
    if params.get("DeploymentConfig") is None:
        return updated
    policy = rolling_update(context, params["DeploymentConfig"], copies)
    return replace(updated, rollout=Rollout(policy=policy, started_at=context.now))


def recounted(
    context: CallContext, component: InferenceComponent, params: Params
) -> InferenceComponent:
    """The base whose number of copies alone changes: a DeploymentConfig is checked and shown.

    No copy is exchanged, so there is no batch: copies are added or removed at once, as with AWS's
    UpdateInferenceComponentRuntimeConfig.
    """
    given = params.get("DeploymentConfig")
    if given is None:
        return component
    rolling_update(context, given, component.desired_copies)
    return replace(component, given={**component.given, "DeploymentConfig": given})


def updated_container(
    context: CallContext, old: ComponentSpec, changed: Given | None, new: Given
) -> Container:
    """The container of new copies: the old one unless the new specification replaces it."""
    override = new.get("Container") or {}
    container = None if changed is None else container_for(old, changed)
    if container is None or new.get("ModelName") or override.get("Image"):
        return resolved_container(context, new)
    return overridden(container, override)


def container_for(spec: ComponentSpec, given: Given) -> Container | None:
    """The container of `spec` by one of the specifications that it was made of."""
    typed = spec.on(given["InstanceType"]) if given.get("InstanceType") else None
    if spec.by_type:
        return None if typed is None else typed.container
    return spec.container


def updated_adapter(
    context: CallContext,
    component: InferenceComponent,
    old: AdapterSpec,
    params: Params,
    variant: Variant,
) -> InferenceComponent:
    """The adapter with its new weights, which have their own name in the model server."""
    refuse_runtime_config(params, "RuntimeConfig")
    refuse_rolling(params, "an adapter, which is exchanged on every copy of its base in place")
    new, *more = (without_inherited(context, old, it) for it in specifications_of(params, variant))
    if more:
        raise validation_error(
            f'Inference component "{component.arn}" is an adapter, which has one Specification.'
        )
    if new.get("BaseInferenceComponentName") not in (None, old.base_name):
        raise validation_error(
            f'Adapter "{component.arn}" belongs to base "{old.base_name}"; an update cannot give it'
            f' another, "{new["BaseInferenceComponentName"]}".'
        )
    given = merged(all_given(given_in_force(component))[0], new)
    spec = adapter_spec(given, old.base_name, new_generation(context))
    return respecified(component, spec, params, [given])


def without_inherited(context: CallContext, old: AdapterSpec, given: Given) -> Given:
    """`given` without the requirements that Describe shows of the base, if it repeats them.

    A program that sends back what it read, as Terraform does, changes nothing by that.
    """
    inherited = inherited_requirements(context, old.base_name)
    if inherited is None or given.get("ComputeResourceRequirements") != inherited:
        return given
    return {name: it for name, it in given.items() if name != "ComputeResourceRequirements"}


def refuse_rolling(params: Params, what: str) -> None:
    """Refuse a DeploymentConfig for an update that is not done in batches."""
    if params.get("DeploymentConfig") is not None:
        raise validation_error(f"DeploymentConfig cannot be given for an update of {what}.")


def respecified(
    component: InferenceComponent,
    spec: ComponentSpec | AdapterSpec,
    params: Params,
    given: Sequence[Given],
) -> InferenceComponent:
    """The component with `spec`, and the one before it for a rollback."""
    shown = {**given_after(params, given), "DeploymentConfig": params.get("DeploymentConfig")}
    component = replace(component, given=given_next(component, shown))
    if isinstance(spec, ComponentSpec):
        return replace(component, spec=spec, previous_spec=component.spec)
    return replace(component, adapter=spec, previous_adapter=component.adapter)


def variant_of(context: CallContext, component: InferenceComponent) -> Variant:
    """The variant that hosts the component."""
    endpoint = find_endpoint(context, component.endpoint_name).value
    variants = (it.variant for it in endpoint.active.variants)
    return next(it for it in variants if it.name == component.variant_name)
