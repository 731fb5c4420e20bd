"""UpdateInferenceComponent and UpdateInferenceComponentRuntimeConfig."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result, new_generation
from hostelry.api.sagemaker.component import (
    KIND,
    adapter_deadline,
    refuse_runtime_config,
    spec_deadline,
)
from hostelry.api.sagemaker.component_fit import check_fits_pending
from hostelry.api.sagemaker.component_spec import (
    Given,
    build_adapter_spec,
    build_component_spec,
    build_echoed_given,
    build_next_given,
    find_changed,
    find_endpoints_role,
    get_given_in_force,
    get_given_specifications,
    merge_specification,
    override_container,
    parse_specifications,
    resolve_container,
)
from hostelry.api.sagemaker.component_summary import inherited_requirements
from hostelry.api.sagemaker.deployment import rollback_alarms
from hostelry.api.sagemaker.endpoint import find_endpoint
from hostelry.api.sagemaker.kinds import COMPONENTS, in_progress
from hostelry.base.errors import validation_error
from hostelry.domain.component import (
    AdapterSpec,
    CapacitySize,
    CapacityUnit,
    ComponentSpec,
    InferenceComponent,
    RollingUpdate,
    Rollout,
)
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.model import Container
from hostelry.domain.resize import resize_component
from hostelry.domain.status import Event, can, is_final, next_status
from hostelry.domain.validation import MAX_COPIES, check_limit
from hostelry.store.records import Versioned

LEAST_PERCENT, MOST_PERCENT = 5, 50
WHOLE_PERCENT = 100
# The maximum and the default of MaximumExecutionTimeoutInSeconds.
MAX_EXECUTION_S = 28_800.0
POLICY = "DeploymentConfig.RollingUpdatePolicy"


def update_inference_component(context: CallContext, params: Params) -> Result:
    """UpdateInferenceComponent: starts new copies, or a new adapter, while the old ones serve.

    Omitted members of a specification keep their values (see `merge_specification`).
    """
    found = COMPONENTS.find(context, params["InferenceComponentName"])
    component = found.value
    _check_updatable(component)
    if not any(params.get(it) for it in ("Specification", "Specifications", "RuntimeConfig")):
        raise validation_error(
            "Nothing to update: give Specification, Specifications or RuntimeConfig."
        )
    variant = _get_variant(context, component)
    if component.spec is not None:
        updated = _update_base(context, component, component.spec, params, variant)
    else:
        assert component.adapter is not None, "a component is a base or an adapter"
        updated = _update_adapter(context, component, component.adapter, params, variant)
    check_fits_pending(context, updated, find_endpoint(context, component.endpoint_name).value)
    return _put_updating(context, found, updated, variant)


def update_inference_component_runtime_config(context: CallContext, params: Params) -> Result:
    """UpdateInferenceComponentRuntimeConfig: changes the number of copies, which may be 0."""
    found = COMPONENTS.find(context, params["InferenceComponentName"])
    component = found.value
    _check_updatable(component)
    if component.adapter is not None:
        refuse_runtime_config(params, "DesiredRuntimeConfig")
    copies = params["DesiredRuntimeConfig"]["CopyCount"]
    check_limit("DesiredRuntimeConfig.CopyCount", copies, MAX_COPIES)
    changed = resize_component(component, copies, _get_variant(context, component), context.now)
    COMPONENTS.put(context, changed, found)
    return {"InferenceComponentArn": changed.arn}


def _put_updating(
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
        deadline_at=_get_deadline(context, changed, variant),
        failure_reason=None,
    )
    COMPONENTS.put(context, updated, found)
    return {"InferenceComponentArn": updated.arn}


def _get_deadline(context: CallContext, changed: InferenceComponent, variant: Variant) -> float:
    if changed.spec is None:
        assert changed.adapter is not None, "a component is a base or an adapter"
        base = COMPONENTS.find(context, changed.adapter.base_name).value
        return adapter_deadline(context, changed.adapter, base, variant)
    if changed.rollout is None:
        return spec_deadline(context, changed.spec, variant)
    return context.now + (changed.rollout.policy.max_execution_s or MAX_EXECUTION_S)


def _check_updatable(component: InferenceComponent) -> None:
    if can(component.status, Event.UPDATE):
        return
    if not is_final(component.status):
        raise in_progress(KIND, component.arn)
    raise validation_error(
        f'Cannot update inference component "{component.arn}" in status {component.status.value};'
        " delete it and create it again."
    )


def _update_base(
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
        return _change_count(context, component, params)
    new = parse_specifications(params, variant)
    if any(one.get("BaseInferenceComponentName") is not None for one in new):
        raise validation_error(
            f'Inference component "{component.arn}" has copies of its own; an update cannot make'
            " it an adapter."
        )
    before = get_given_specifications(get_given_in_force(component))
    changed = [find_changed(one, before, variant) for one in new]
    given = [merge_specification(was or {}, one) for was, one in zip(changed, new, strict=True)]
    role = find_endpoints_role(find_endpoint(context, component.endpoint_name).value)
    containers = [
        _update_container(context, old, was, one, role)
        for was, one in zip(changed, new, strict=True)
    ]
    spec = build_component_spec(context, given, containers, variant, new_generation(context))
    updated = _replace_spec(component, spec, params, given)
    if params.get("DeploymentConfig") is None:
        return updated
    policy = _build_rolling_update(context, params["DeploymentConfig"], copies)
    return replace(updated, rollout=Rollout(policy=policy, started_at=context.now))


def _change_count(
    context: CallContext, component: InferenceComponent, params: Params
) -> InferenceComponent:
    """Build the base with only another number of copies. A DeploymentConfig is checked and shown.

    No copy is replaced, so batches have no effect. Copies are added or removed at once, as with
    AWS's UpdateInferenceComponentRuntimeConfig.
    """
    given = params.get("DeploymentConfig")
    if given is None:
        return component
    _build_rolling_update(context, given, component.desired_copies)
    return replace(component, given={**component.given, "DeploymentConfig": given})


def _update_container(
    context: CallContext, old: ComponentSpec, changed: Given | None, new: Given, role: str
) -> Container:
    """Build the container of new copies. It stays the same unless the specification replaces it."""
    override = new.get("Container") or {}
    container = None if changed is None else _find_container(old, changed)
    if container is None or new.get("ModelName") or override.get("Image"):
        return resolve_container(context, new, role)
    return override_container(container, override, role)


def _find_container(spec: ComponentSpec, given: Given) -> Container | None:
    """Find the container in `spec` that was made from the specification `given`."""
    typed = spec.on(given["InstanceType"]) if given.get("InstanceType") else None
    if spec.by_type:
        return None if typed is None else typed.container
    return spec.container


def _update_adapter(
    context: CallContext,
    component: InferenceComponent,
    old: AdapterSpec,
    params: Params,
    variant: Variant,
) -> InferenceComponent:
    """The adapter with its new weights, which have their own name in the model server."""
    refuse_runtime_config(params, "RuntimeConfig")
    _refuse_rolling(params, "an adapter, which is exchanged on every copy of its base in place")
    specifications = parse_specifications(params, variant)
    new, *more = (_without_inherited(context, old, it) for it in specifications)
    if more:
        raise validation_error(
            f'Inference component "{component.arn}" is an adapter, which has one Specification.'
        )
    if new.get("BaseInferenceComponentName") not in (None, old.base_name):
        raise validation_error(
            f'Adapter "{component.arn}" belongs to base "{old.base_name}"; an update cannot give it'
            f' another, "{new["BaseInferenceComponentName"]}".'
        )
    given = merge_specification(get_given_specifications(get_given_in_force(component))[0], new)
    spec = build_adapter_spec(given, old.base_name, new_generation(context))
    return _replace_spec(component, spec, params, [given])


def _without_inherited(context: CallContext, old: AdapterSpec, given: Given) -> Given:
    """Remove the requirements that Describe shows of the base, if `given` repeats them.

    So a program that sends back an answer of Describe, as Terraform does, changes nothing.
    """
    inherited = inherited_requirements(context, old.base_name)
    if inherited is None or given.get("ComputeResourceRequirements") != inherited:
        return given
    return {name: it for name, it in given.items() if name != "ComputeResourceRequirements"}


def _refuse_rolling(params: Params, what: str) -> None:
    """Refuse a DeploymentConfig for an update that is not done in batches."""
    if params.get("DeploymentConfig") is not None:
        raise validation_error(f"DeploymentConfig cannot be given for an update of {what}.")


def _replace_spec(
    component: InferenceComponent,
    spec: ComponentSpec | AdapterSpec,
    params: Params,
    given: Sequence[Given],
) -> InferenceComponent:
    """Build the component with `spec`, and keep the spec before it for a rollback."""
    shown = {
        **build_echoed_given(params, given),
        "DeploymentConfig": params.get("DeploymentConfig"),
    }
    component = replace(component, given=build_next_given(component, shown))
    if isinstance(spec, ComponentSpec):
        return replace(component, spec=spec, previous_spec=component.spec)
    return replace(component, adapter=spec, previous_adapter=component.adapter)


def _get_variant(context: CallContext, component: InferenceComponent) -> Variant:
    """The variant that hosts the component."""
    endpoint = find_endpoint(context, component.endpoint_name).value
    variants = (it.variant for it in endpoint.active.variants)
    return next(it for it in variants if it.name == component.variant_name)


def _build_rolling_update(
    context: CallContext, given: Mapping[str, Any], copies: int
) -> RollingUpdate:
    """The rolling update of a DeploymentConfig. Raises ValidationException."""
    policy = given["RollingUpdatePolicy"]
    update = RollingUpdate(
        max_batch=_parse_batch(policy["MaximumBatchSize"], copies),
        wait_s=float(policy["WaitIntervalInSeconds"]),
        max_execution_s=float(policy.get("MaximumExecutionTimeoutInSeconds", MAX_EXECUTION_S)),
        rollback_batch=_parse_rollback_batch(policy.get("RollbackMaximumBatchSize")),
        alarm_names=rollback_alarms(context, given),
    )
    _check_waits(update, copies)
    return update


def _parse_batch(given: Mapping[str, Any], copies: int) -> CapacitySize:
    """Parse MaximumBatchSize: 5 to 50 per cent of the copies, or one copy."""
    size = _parse_size(given)
    if size.unit is CapacityUnit.CAPACITY_PERCENT:
        least, most, of = LEAST_PERCENT, MOST_PERCENT, "per cent of the copies"
    else:
        least = max(1, -(-copies * LEAST_PERCENT // WHOLE_PERCENT))
        most = max(1, copies * MOST_PERCENT // WHOLE_PERCENT)
        of = f"of {copies} copies ({LEAST_PERCENT} to {MOST_PERCENT} per cent, at least one)"
    if not least <= size.value <= most:
        raise validation_error(
            f"{POLICY}.MaximumBatchSize is {size.value}; it must be {least} to {most} {of}."
        )
    return size


def _parse_rollback_batch(given: Mapping[str, Any] | None) -> CapacitySize | None:
    """RollbackMaximumBatchSize, or None if all copies roll back in one step."""
    if given is None:
        return None
    size = _parse_size(given)
    if size.unit is CapacityUnit.COPY_COUNT or size.value < WHOLE_PERCENT:
        return size
    if size.value > WHOLE_PERCENT:
        raise validation_error(
            f"{POLICY}.RollbackMaximumBatchSize is {size.value} per cent; at most"
            f" {WHOLE_PERCENT} are possible."
        )
    return None


def _parse_size(given: Mapping[str, Any]) -> CapacitySize:
    return CapacitySize(unit=CapacityUnit(given["Type"]), value=given["Value"])


def _check_waits(update: RollingUpdate, copies: int) -> None:
    """Refuse waits that take longer than the time limit of the update."""
    limit_s = update.max_execution_s or MAX_EXECUTION_S
    waits_s = _num_batches(update, copies) * update.wait_s
    if waits_s >= limit_s:
        raise validation_error(
            f"{POLICY}: {_num_batches(update, copies)} batches that wait {update.wait_s:.0f} s each"
            f" take {waits_s:.0f} s, and the whole update may take {limit_s:.0f} s."
            " Make batches larger, waits shorter or MaximumExecutionTimeoutInSeconds longer."
        )


def _num_batches(update: RollingUpdate, copies: int) -> int:
    return -(-copies // update.max_batch.copies(copies))
