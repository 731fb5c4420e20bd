"""Plan steps of endpoints, inference components and adapters. Pure."""

from collections.abc import Mapping
from typing import Any

from hostelry.cli.declared.document import SAGEMAKER
from hostelry.cli.declared.forms import (
    get_base,
    hashed_name,
    models_in,
    replace_models,
    specifications,
    without_counts,
)
from hostelry.cli.declared.observation import scaled_resources
from hostelry.cli.declared.planning import TAG_CALLS, Planning, tag_members
from hostelry.cli.declared.resource import (
    NAME_TAG,
    UNNAMED_SET,
    FieldChange,
    Observed,
    Params,
    ResourceKey,
    ResourceKind,
    StepAct,
    Until,
    Wanted,
    changes,
    split_target,
)

RETAINED = {
    "RetainAllVariantProperties": True,
    "ExcludeRetainedVariantProperties": [
        {"VariantPropertyType": "DesiredWeight"},
        {"VariantPropertyType": "DataCaptureConfig"},
    ],
}
NAME = "InferenceComponentName"


def replaced_endpoints(planning: Planning) -> None:
    """Note the endpoints that no update can change as wanted, with the reason."""
    for wanted in planning.of(ResourceKind.ENDPOINT):
        found = planning.find(wanted.key)
        if found is None:
            continue
        if found.status == "Failed":
            planning.replaced[wanted.key] = f"it is Failed: {found.reason or 'without a reason'}"
        elif _takes_components(found.params) != _takes_components(wanted.params):
            planning.replaced[wanted.key] = "cannot switch between model and component hosting"


def _takes_components(params: Params) -> bool:
    variants = params["Config"].get("ProductionVariants", ())
    return not any(
        "ModelName" in one or "ModelName" in str(one.get("InstancePools")) for one in variants
    )


def plan_endpoints(planning: Planning) -> None:
    """Create, update or replace endpoints."""
    for wanted in planning.of(ResourceKind.ENDPOINT):
        if wanted.key in planning.replaced:
            _delete_endpoint(planning, wanted)
        found = planning.find(wanted.key)
        if found is None:
            _create_endpoint(planning, wanted)
        else:
            _update_endpoint(planning, wanted, found)


def _delete_endpoint(planning: Planning, wanted: Wanted) -> None:
    found = planning.observed.resources[wanted.key]
    planning.check_owner(wanted, found)
    hosted = [
        number
        for key, numbers in planning.gone.items()
        if key.kind is ResourceKind.COMPONENT
        and planning.observed.resources[key].params["EndpointName"] == wanted.key.name
        for number in numbers
    ]
    call = (SAGEMAKER, "DeleteEndpoint", {"EndpointName": wanted.key.name})
    planning.delete(wanted.key, call, hosted, planning.replaced[wanted.key])


def realised_config(planning: Planning, wanted: Wanted) -> dict[str, Any]:
    """The configuration with the models' names in AWS."""
    found: dict[str, Any] = replace_models(wanted.params["Config"], planning.model_names)
    return found


def _plan_config(planning: Planning, wanted: Wanted, config: Params) -> tuple[str, list[int]]:
    """The name of the configuration, and the step that creates it, if it is missing."""
    name = planning.config_names.get(wanted.key.name) or hashed_name(wanted.key.name, config)
    key = ResourceKey(ResourceKind.CONFIG, name)
    if planning.find(key) is not None:
        return name, []
    tags = planning.tags(wanted, names=True)
    own = {field: it for field, it in tags.items() if field not in (wanted.tags or {})}
    hosts_components = not all(map(models_in, config["ProductionVariants"]))
    role = {"ExecutionRoleArn": planning.role_arn} if hosts_components else {}
    params = {"EndpointConfigName": name, **role, **config, **tag_members(own, SAGEMAKER)}
    models = [ResourceKey(ResourceKind.MODEL, it) for it in models_in(wanted.params["Config"])]
    needs = planning.find_needs(config, *models)
    number = planning.add(
        StepAct.CREATE, key, (SAGEMAKER, "CreateEndpointConfig", params), needs=needs
    )
    return name, [number]


def _create_endpoint(planning: Planning, wanted: Wanted) -> None:
    config = realised_config(planning, wanted)
    name, needs = _plan_config(planning, wanted, config)
    params = {
        "EndpointName": wanted.key.name,
        "EndpointConfigName": name,
        **_deployment(wanted),
        **tag_members(planning.tags(wanted), SAGEMAKER),
    }
    planning.add(
        StepAct.CREATE,
        wanted.key,
        (SAGEMAKER, "CreateEndpoint", params),
        needs=[*needs, *_alarms(planning, wanted)],
        until=Until.IN_SERVICE,
        changes=changes({}, wanted.params["Config"]),
    )


def _update_endpoint(planning: Planning, wanted: Wanted, found: Observed) -> None:
    planning.retag(wanted, found, TAG_CALLS)
    config = realised_config(planning, wanted)
    scaled = _scaled_variants(planning, wanted)
    before, after = without_counts(found.params["Config"]), without_counts(config)
    live = {name: dict(it) for name, it in found.live.items()}
    if before != after:
        planning.check_owner(wanted, found)
        name, needs = _plan_config(planning, wanted, config)
        retained = RETAINED if scaled else {}
        params = {
            "EndpointName": wanted.key.name, "EndpointConfigName": name,
            **_deployment(wanted), **retained,
        }  # fmt: skip
        planning.add(
            StepAct.UPDATE,
            wanted.key,
            (SAGEMAKER, "UpdateEndpoint", params),
            needs=[*needs, *_alarms(planning, wanted)],
            until=Until.IN_SERVICE,
            changes=changes(before, after),
        )
        live = _live_after(config, live if scaled else {})
    _set_counts(planning, wanted, live, scaled)


def _live_after(
    config: Params, retained: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Counts and weights by variant after an update. Counts may be `retained`."""
    return {
        variant["VariantName"]: {
            "DesiredWeight": variant.get("InitialVariantWeight", 1),
            "DesiredInstanceCount": retained.get(variant["VariantName"], {}).get(
                "DesiredInstanceCount", variant.get("InitialInstanceCount")
            ),
        }
        for variant in config["ProductionVariants"]
    }


def _set_counts(
    planning: Planning, wanted: Wanted, live: Mapping[str, Mapping[str, Any]], scaled: set[str]
) -> None:
    """Set counts and weights that differ. A scalable target sets the count of a scaled variant."""
    differing: list[dict[str, Any]] = []
    shown = []
    for variant in wanted.params["Config"]["ProductionVariants"]:
        name = variant["VariantName"]
        given: dict[str, Any] = {"DesiredWeight": variant.get("InitialVariantWeight", 1)}
        managed = variant.get("ManagedInstanceScaling", {}).get("Status") == "ENABLED"
        if name not in scaled and not managed and "InitialInstanceCount" in variant:
            given["DesiredInstanceCount"] = variant["InitialInstanceCount"]
        now = {field: live.get(name, {}).get(field) for field in given}
        found = changes(now, given, f"ProductionVariants[{name}]")
        if found:
            differing.append({"VariantName": name, **given})
            shown += found
    if not differing:
        return
    observed = planning.observed.resources[wanted.key]
    planning.check_owner(wanted, observed)
    params = {"EndpointName": wanted.key.name, "DesiredWeightsAndCapacities": differing}
    planning.add(
        StepAct.UPDATE,
        wanted.key,
        (SAGEMAKER, "UpdateEndpointWeightsAndCapacities", params),
        until=Until.IN_SERVICE,
        changes=shown,
    )


def _scaled_variants(planning: Planning, wanted: Wanted) -> set[str]:
    """The variants whose number of instances a wanted or observed scalable target sets."""
    scaled = scaled_resources(planning.observed.of(ResourceKind.TARGET))
    scaled |= {split_target(it.key.name)[0] for it in planning.of(ResourceKind.TARGET)}
    prefix = f"endpoint/{wanted.key.name}/variant/"
    return {it.removeprefix(prefix) for it in scaled if it.startswith(prefix)}


def _deployment(wanted: Wanted) -> dict[str, Any]:
    given = wanted.params.get("DeploymentConfig")
    return {} if given is None else {"DeploymentConfig": given}


def _alarms(planning: Planning, wanted: Wanted) -> list[int]:
    """The steps of alarms that roll the endpoint back."""
    rollback = _deployment(wanted).get("DeploymentConfig", {}).get("AutoRollbackConfiguration", {})
    names = [it["AlarmName"] for it in rollback.get("Alarms", ())]
    return planning.find_needs(None, *(ResourceKey(ResourceKind.ALARM, it) for it in names))


def is_old_config(planning: Planning, config: Observed, endpoint: Observed | None) -> bool:
    """True for a former configuration of a wanted endpoint that is no longer in use."""
    wanted = planning.wanted.get(ResourceKey(ResourceKind.ENDPOINT, config.tags.get(NAME_TAG, "")))
    if wanted is None or config.owner not in (planning.owner, UNNAMED_SET):
        return False
    realised = realised_config(planning, wanted)
    in_use = hashed_name(wanted.key.name, realised)
    if endpoint is not None and without_counts(endpoint.params["Config"]) == without_counts(
        realised
    ):
        in_use = endpoint.config_name
    return config.key.name != in_use


def replaced_components(planning: Planning) -> None:
    """Delete the components that no update can change as wanted, adapters first."""
    replaced = {
        wanted.key: why
        for wanted in planning.of(ResourceKind.COMPONENT)
        if (found := planning.find(wanted.key)) is not None
        and (why := _why_replaced(planning, wanted, found))
    }
    components = planning.observed.of(ResourceKind.COMPONENT)
    for found in components:  # adapters are replaced with their base
        base = ResourceKey(ResourceKind.COMPONENT, get_base(found.params) or "")
        if base in replaced and found.key in planning.wanted:
            replaced.setdefault(found.key, f"its base {base.name} is replaced")
    for found in sorted(components, key=lambda it: get_base(it.params) is None):
        if found.key not in replaced:
            continue
        planning.check_owner(planning.wanted[found.key], found)
        adapters = [
            number
            for other in components
            if get_base(other.params) == found.key.name
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
    if get_base(wanted.params) != get_base(found.params):
        return f"its base cannot change from {get_base(found.params) or 'none'}"
    return ""


def plan_components(planning: Planning) -> None:
    """Create and update components, bases before their adapters."""
    components = planning.of(ResourceKind.COMPONENT)
    for wanted in sorted(components, key=lambda it: get_base(it.params) is not None):
        found = planning.find(wanted.key)
        if found is None:
            _create_component(planning, wanted)
        else:
            planning.retag(wanted, found, TAG_CALLS)
            _update_component(planning, wanted, found)


def _needs(planning: Planning, wanted: Wanted) -> list[int]:
    keys = [ResourceKey(ResourceKind.ENDPOINT, wanted.params["EndpointName"])]
    keys += [ResourceKey(ResourceKind.MODEL, it) for it in sorted(models_in(wanted.params))]
    base = get_base(wanted.params)
    if base is not None:
        keys.append(ResourceKey(ResourceKind.COMPONENT, base))
    return planning.find_needs(wanted.params, *keys)


def _specification(planning: Planning, params: Params) -> dict[str, Any]:
    """Specification or Specifications, with the models' names in AWS."""
    name = "Specification" if "Specification" in params else "Specifications"
    return {name: replace_models(params[name], planning.model_names)}


def _create_component(planning: Planning, wanted: Wanted) -> None:
    params = wanted.params
    copies = params.get("CopyCount", None if get_base(params) else 1)
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
        _set_copies(planning, wanted, FieldChange("CopyCount", 1, 0))  # creation needs at least 1


def _update_component(planning: Planning, wanted: Wanted, found: Observed) -> None:
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
            _set_copies(planning, wanted, change)
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


def _set_copies(planning: Planning, wanted: Wanted, change: FieldChange) -> None:
    request = {NAME: wanted.key.name, "DesiredRuntimeConfig": {"CopyCount": change.after}}
    planning.add(
        StepAct.UPDATE,
        wanted.key,
        (SAGEMAKER, "UpdateInferenceComponentRuntimeConfig", request),
        needs=planning.find_needs(
            None, ResourceKey(ResourceKind.ENDPOINT, wanted.params["EndpointName"])
        ),
        until=Until.IN_SERVICE,
        changes=[change],
    )


def comparable(specification: Params) -> dict[str, Any]:
    """A specification without an image that comes from the model."""
    container = dict(specification.get("Container", {}))
    rest = {name: it for name, it in specification.items() if name != "Container"}
    return {**rest, "Container": container}


def _differences(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[FieldChange]:
    """The changes that an update makes. Members that the documents leave out do not change."""
    if len(before) != len(after):
        return changes(before, after, "Specifications")
    found: list[FieldChange] = []
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        path = "" if len(after) == 1 else f"Specifications[{number}]"
        found += changes(_keep_members(old, new), new, path)
    return found


def _keep_members(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The members of `old` that an update with `new` may change."""
    kept = {name: it for name, it in old.items() if name in new}
    container = dict(old.get("Container", {}))
    if "ModelName" in new and "Image" not in new["Container"]:
        container.pop("Image", None)
    return {**kept, "Container": container}


def _is_scaled(planning: Planning, wanted: Wanted) -> bool:
    """Whether a wanted or observed scalable target sets the number of copies.

    Without an owner an observed target does not count.
    """
    targets = planning.observed.of(ResourceKind.TARGET) if planning.owner else []
    scaled = scaled_resources(targets)
    scaled |= {split_target(it.key.name)[0] for it in planning.of(ResourceKind.TARGET)}
    return f"inference-component/{wanted.key.name}" in scaled
