"""Steps of endpoints, whose configurations have the hash of their content in their names. Pure."""

from collections.abc import Mapping
from typing import Any

from hostelry.cli.declared.change import changes
from hostelry.cli.declared.document import SAGEMAKER
from hostelry.cli.declared.forms import hashed_name, models_in, with_models, without_counts
from hostelry.cli.declared.observation import scaled_resources
from hostelry.cli.declared.plan_models import TAG_CALLS
from hostelry.cli.declared.planning import Planning, tag_members
from hostelry.cli.declared.resource import (
    NAME_TAG,
    Observed,
    Params,
    ResourceKey,
    ResourceKind,
    Wanted,
    target_of,
)
from hostelry.cli.declared.step import StepAct, Until

RETAINED = {
    "RetainAllVariantProperties": True,
    "ExcludeRetainedVariantProperties": [
        {"VariantPropertyType": "DesiredWeight"},
        {"VariantPropertyType": "DataCaptureConfig"},
    ],
}


def replaced_endpoints(planning: Planning) -> None:
    """Note the endpoints that no update can make what is wanted, with the reason."""
    for wanted in planning.of(ResourceKind.ENDPOINT):
        found = planning.found(wanted.key)
        if found is None:
            continue
        if found.status == "Failed":
            planning.replaced[wanted.key] = f"it is Failed: {found.reason or 'without a reason'}"
        elif _takes_components(found.params) != _takes_components(wanted.params):
            planning.replaced[wanted.key] = "no update makes models of components, nor back"


def _takes_components(params: Params) -> bool:
    variants = params["Config"].get("ProductionVariants", ())
    return not any(
        "ModelName" in one or "ModelName" in str(one.get("InstancePools")) for one in variants
    )


def plan_endpoints(planning: Planning) -> None:
    """Create, update or replace endpoints."""
    for wanted in planning.of(ResourceKind.ENDPOINT):
        if wanted.key in planning.replaced:
            _plan_deletion(planning, wanted)
        found = planning.found(wanted.key)
        if found is None:
            _plan_creation(planning, wanted)
        else:
            _plan_changes(planning, wanted, found)


def _plan_deletion(planning: Planning, wanted: Wanted) -> None:
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
    """The configuration with the names that models have in AWS."""
    found: dict[str, Any] = with_models(wanted.params["Config"], planning.model_names)
    return found


def _plan_config(planning: Planning, wanted: Wanted, config: Params) -> tuple[str, list[int]]:
    """The name of the configuration, and the step that creates it where it is not there."""
    name = hashed_name(wanted.key.name, config)
    key = ResourceKey(ResourceKind.CONFIG, name)
    if planning.found(key) is not None:
        return name, []
    tags = planning.tags(wanted, names=True)
    own = {field: it for field, it in tags.items() if field not in (wanted.tags or {})}
    hosts_components = not all(map(models_in, config["ProductionVariants"]))
    role = {"ExecutionRoleArn": planning.role_arn} if hosts_components else {}
    params = {"EndpointConfigName": name, **role, **config, **tag_members(own, SAGEMAKER)}
    models = [ResourceKey(ResourceKind.MODEL, it) for it in models_in(wanted.params["Config"])]
    needs = planning.needs_of(config, *models)
    number = planning.add(
        StepAct.CREATE, key, (SAGEMAKER, "CreateEndpointConfig", params), needs=needs
    )
    return name, [number]


def _plan_creation(planning: Planning, wanted: Wanted) -> None:
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


def _plan_changes(planning: Planning, wanted: Wanted, found: Observed) -> None:
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
    _plan_counts(planning, wanted, live, scaled)


def _live_after(
    config: Params, retained: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Counts and weights by variant after an update; counts may be `retained`."""
    return {
        variant["VariantName"]: {
            "DesiredWeight": variant.get("InitialVariantWeight", 1),
            "DesiredInstanceCount": retained.get(variant["VariantName"], {}).get(
                "DesiredInstanceCount", variant.get("InitialInstanceCount")
            ),
        }
        for variant in config["ProductionVariants"]
    }


def _plan_counts(
    planning: Planning, wanted: Wanted, live: Mapping[str, Mapping[str, Any]], scaled: set[str]
) -> None:
    """Set counts and weights that differ; a scaled variant's count is its target's."""
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
    """The variants whose number of instances is a scalable target's, wanted or observed."""
    scaled = scaled_resources(planning.observed.of(ResourceKind.TARGET))
    scaled |= {target_of(it.key.name)[0] for it in planning.of(ResourceKind.TARGET)}
    prefix = f"endpoint/{wanted.key.name}/variant/"
    return {it.removeprefix(prefix) for it in scaled if it.startswith(prefix)}


def _deployment(wanted: Wanted) -> dict[str, Any]:
    given = wanted.params.get("DeploymentConfig")
    return {} if given is None else {"DeploymentConfig": given}


def _alarms(planning: Planning, wanted: Wanted) -> list[int]:
    """The steps of alarms that roll the endpoint back."""
    rollback = _deployment(wanted).get("DeploymentConfig", {}).get("AutoRollbackConfiguration", {})
    names = [it["AlarmName"] for it in rollback.get("Alarms", ())]
    return planning.needs_of(None, *(ResourceKey(ResourceKind.ALARM, it) for it in names))


def is_old_config(planning: Planning, config: Observed, endpoint: Observed | None) -> bool:
    """Whether a configuration is a former one of a wanted endpoint, that none needs any more."""
    wanted = planning.wanted.get(ResourceKey(ResourceKind.ENDPOINT, config.tags.get(NAME_TAG, "")))
    if wanted is None or config.owner != planning.owner:
        return False
    realised = realised_config(planning, wanted)
    in_use = hashed_name(wanted.key.name, realised)
    if endpoint is not None and without_counts(endpoint.params["Config"]) == without_counts(
        realised
    ):
        in_use = endpoint.config_name
    return config.key.name != in_use
