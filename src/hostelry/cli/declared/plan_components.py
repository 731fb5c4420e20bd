"""Steps of inference components and adapters. Pure."""

from collections.abc import Mapping
from typing import Any

from hostelry.cli.declared.change import FieldChange, changes
from hostelry.cli.declared.document import SAGEMAKER
from hostelry.cli.declared.forms import base_of, models_in, specifications, with_models
from hostelry.cli.declared.observation import scaled_resources
from hostelry.cli.declared.plan_models import TAG_CALLS
from hostelry.cli.declared.planning import Planning, tag_members
from hostelry.cli.declared.resource import (
    Observed,
    Params,
    ResourceKey,
    ResourceKind,
    Wanted,
    target_of,
)
from hostelry.cli.declared.step import StepAct, Until

NAME = "InferenceComponentName"


def replaced_components(planning: Planning) -> None:
    """Add the deletion of components that no update can make what is wanted, adapters first."""
    replaced = {
        wanted.key: why
        for wanted in planning.of(ResourceKind.COMPONENT)
        if (found := planning.found(wanted.key)) is not None
        and (why := _why_replaced(planning, wanted, found))
    }
    components = planning.observed.of(ResourceKind.COMPONENT)
    for found in components:  # adapters go with their base
        base = ResourceKey(ResourceKind.COMPONENT, base_of(found.params) or "")
        if base in replaced and found.key in planning.wanted:
            replaced.setdefault(found.key, f"its base {base.name} is replaced")
    for found in sorted(components, key=lambda it: base_of(it.params) is None):
        if found.key not in replaced:
            continue
        planning.check_owner(planning.wanted[found.key], found)
        adapters = [
            number
            for other in components
            if base_of(other.params) == found.key.name
            for number in planning.gone.get(other.key, ())
        ]
        call = (SAGEMAKER, "DeleteInferenceComponent", {NAME: found.key.name})
        planning.delete(found.key, call, adapters, replaced[found.key])


def _why_replaced(planning: Planning, wanted: Wanted, found: Observed) -> str:
    endpoint = ResourceKey(ResourceKind.ENDPOINT, found.params["EndpointName"])
    if endpoint in planning.replaced:
        return f"its endpoint {endpoint.name} is replaced"
    if found.status == "Failed":
        return f"it is Failed: {found.reason or 'without a reason'}"
    for field in ("EndpointName", "VariantName"):
        if field in wanted.params and wanted.params[field] != found.params.get(field):
            return f"{field} cannot change from {found.params.get(field)}"
    if base_of(wanted.params) != base_of(found.params):
        return f"its base cannot change from {base_of(found.params) or 'none'}"
    return ""


def plan_components(planning: Planning) -> None:
    """Create and update components; bases before their adapters."""
    components = planning.of(ResourceKind.COMPONENT)
    for wanted in sorted(components, key=lambda it: base_of(it.params) is not None):
        found = planning.found(wanted.key)
        if found is None:
            _plan_creation(planning, wanted)
        else:
            planning.retag(wanted, found, TAG_CALLS)
            _plan_update(planning, wanted, found)


def _needs(planning: Planning, wanted: Wanted) -> list[int]:
    keys = [ResourceKey(ResourceKind.ENDPOINT, wanted.params["EndpointName"])]
    keys += [ResourceKey(ResourceKind.MODEL, it) for it in sorted(models_in(wanted.params))]
    base = base_of(wanted.params)
    if base is not None:
        keys.append(ResourceKey(ResourceKind.COMPONENT, base))
    return planning.needs_of(wanted.params, *keys)


def _specification(planning: Planning, params: Params) -> dict[str, Any]:
    """Specification or Specifications, with the names that models have in AWS."""
    name = "Specification" if "Specification" in params else "Specifications"
    return {name: with_models(params[name], planning.model_names)}


def _plan_creation(planning: Planning, wanted: Wanted) -> None:
    params = wanted.params
    copies = params.get("CopyCount")
    runtime = {} if copies is None else {"RuntimeConfig": {"CopyCount": max(1, copies)}}
    variant = {"VariantName": params["VariantName"]} if "VariantName" in params else {}
    request = {
        NAME: wanted.key.name,
        "EndpointName": params["EndpointName"],
        **variant,
        **_specification(planning, params),
        **runtime,
        **tag_members(planning.tags(wanted), SAGEMAKER),
    }
    planning.add(
        StepAct.CREATE,
        wanted.key,
        (SAGEMAKER, "CreateInferenceComponent", request),
        needs=_needs(planning, wanted),
        until=Until.IN_SERVICE,
        changes=changes({}, params),
    )
    if copies == 0 and not _is_scaled(planning, wanted):
        _plan_copies(planning, wanted, FieldChange("CopyCount", 1, 0))  # none can be created with 0


def _plan_update(planning: Planning, wanted: Wanted, found: Observed) -> None:
    given = _specification(planning, wanted.params)
    before = [comparable(it) for it in specifications(found.params)]
    after = [comparable(it) for it in specifications(given)]
    respecified = _differences(before, after)
    copies = wanted.params.get("CopyCount")
    recounted = (
        copies is not None
        and not _is_scaled(planning, wanted)
        and copies != found.params.get("CopyCount")
    )
    if not respecified:
        if recounted:
            planning.check_owner(wanted, found)
            change = FieldChange("CopyCount", found.params.get("CopyCount"), copies)
            _plan_copies(planning, wanted, change)
        return
    planning.check_owner(wanted, found)
    request = {NAME: wanted.key.name, **given}
    if recounted:
        request["RuntimeConfig"] = {"CopyCount": copies}
        respecified.append(FieldChange("CopyCount", found.params.get("CopyCount"), copies))
    if "DeploymentConfig" in wanted.params:
        request["DeploymentConfig"] = wanted.params["DeploymentConfig"]
    planning.add(
        StepAct.UPDATE,
        wanted.key,
        (SAGEMAKER, "UpdateInferenceComponent", request),
        needs=_needs(planning, wanted),
        until=Until.IN_SERVICE,
        changes=respecified,
    )


def _plan_copies(planning: Planning, wanted: Wanted, change: FieldChange) -> None:
    request = {NAME: wanted.key.name, "DesiredRuntimeConfig": {"CopyCount": change.after}}
    planning.add(
        StepAct.UPDATE,
        wanted.key,
        (SAGEMAKER, "UpdateInferenceComponentRuntimeConfig", request),
        needs=planning.needs_of(
            None, ResourceKey(ResourceKind.ENDPOINT, wanted.params["EndpointName"])
        ),
        until=Until.IN_SERVICE,
        changes=[change],
    )


def comparable(specification: Params) -> dict[str, Any]:
    """A specification, in which an image that comes of the model is left out."""
    container = dict(specification.get("Container", {}))
    rest = {name: it for name, it in specification.items() if name != "Container"}
    return {**rest, "Container": container}


def _differences(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[FieldChange]:
    """The changes that an update makes: members that the documents leave out stay as they are."""
    if len(before) != len(after):
        return changes(before, after, "Specifications")
    found: list[FieldChange] = []
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        path = "" if len(after) == 1 else f"Specifications[{number}]"
        found += changes(_of_names(old, new), new, path)
    return found


def _of_names(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The members of `old` that an update with `new` may change."""
    kept = {name: it for name, it in old.items() if name in new}
    container = dict(old.get("Container", {}))
    if "ModelName" in new and "Image" not in new["Container"]:
        container.pop("Image", None)
    return {**kept, "Container": container}


def _is_scaled(planning: Planning, wanted: Wanted) -> bool:
    """Whether its number of copies is a scalable target's, wanted or observed."""
    scaled = scaled_resources(planning.observed.of(ResourceKind.TARGET))
    scaled |= {target_of(it.key.name)[0] for it in planning.of(ResourceKind.TARGET)}
    return f"inference-component/{wanted.key.name}" in scaled
