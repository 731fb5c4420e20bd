"""Builds the deployment of a configuration on an endpoint."""

from collections.abc import Mapping
from typing import Any

from hostelry.api.context import CallContext, new_generation
from hostelry.api.refusals import unsupported
from hostelry.api.sagemaker.kinds import MODELS
from hostelry.api.sagemaker.model import check_same_containers
from hostelry.api.sagemaker.serverless import check_serverless_model
from hostelry.api.sagemaker.variant import check_shadow_model
from hostelry.base.errors import validation_error
from hostelry.domain.endpoint import Deployment, EndpointVariant, UpdateGuard
from hostelry.domain.endpoint_config import EndpointConfig, Variant
from hostelry.domain.traffic import (
    ALL_AT_ONCE,
    ROLLING_POLICY,
    ROUTING,
    SIZE_FIELDS,
    FleetSize,
    FleetUnit,
    TrafficPolicy,
    TrafficType,
    check_rollback_size,
    check_size,
    check_waits,
)

ALARMS = "DeploymentConfig.AutoRollbackConfiguration.Alarms"


def build_deployment(context: CallContext, config: EndpointConfig) -> Deployment:
    """Build a deployment of `config` with copies of its models, as a new generation."""
    deployment = Deployment(
        generation=new_generation(context),
        config=config,
        variants=tuple(_build_endpoint_variant(context, variant) for variant in config.variants),
        started_at=context.now,
        capture=config.capture,
    )
    if deployment.shadow is not None:
        for model in (model for variant in deployment.variants for model in variant.models):
            check_shadow_model(model)
    return deployment


def _build_endpoint_variant(context: CallContext, variant: Variant) -> EndpointVariant:
    """The variant with a copy of its model. Raises ValidationException for a missing model."""
    name, serverless = variant.model_name, variant.serverless
    model = None if name is None else MODELS.find(context, name).value
    if model is not None and serverless is not None:
        check_serverless_model(model)
    wanted = EndpointVariant(
        variant=variant,
        model=model,
        desired_instance_count=variant.initial_instance_count,
        desired_weight=variant.weight,
        pool_models={
            pool.instance_type: MODELS.find(context, pool.model_name).value
            for pool in variant.pools
            if pool.model_name is not None
        },
        serverless=serverless,
        # One shows that the model starts, before anything is in service.
        environments=0 if serverless is None else max(1, serverless.provisioned_concurrency),
    )
    check_same_containers(variant.name, wanted.models)
    return wanted


def check_deployment_config(given: Mapping[str, Any] | None, wanted: Deployment) -> None:
    """Refuse a DeploymentConfig that cannot bring `wanted` into service.

    Steps and batches are refused for endpoints of inference components.
    """
    if not given:
        return
    blue_green = given.get("BlueGreenUpdatePolicy") or {}
    if given.get("RollingUpdatePolicy"):
        check_rolling(given, wanted)
    traffic = blue_green.get("TrafficRoutingConfiguration") or {}
    kind = traffic.get("Type", "ALL_AT_ONCE")
    if kind != "ALL_AT_ONCE" and wanted.config.takes_components:
        reason = "It is for endpoints of models. Use ALL_AT_ONCE for inference components."
        raise unsupported(f"{ROUTING}.Type={kind}", reason)
    policy = traffic_policy(given)
    for variant in wanted.production:
        name, count = variant.variant.name, variant.desired_instance_count
        check_size(policy, name, count)
        check_rollback_size(policy, name, count)
    bake_s = float(blue_green.get("TerminationWaitInSeconds") or 0)
    check_waits(policy, wanted.fleets, bake_s, time_limit_s(given))


def check_rolling(given: Mapping[str, Any], wanted: Deployment) -> None:
    """Refuse a RollingUpdatePolicy of a deployment without instances to replace.

    Source: "Exclusions" of deployment guardrails in the SageMaker developer guide.
    """
    if given.get("BlueGreenUpdatePolicy"):
        raise validation_error(
            "DeploymentConfig has BlueGreenUpdatePolicy and RollingUpdatePolicy; give one of them."
        )
    if wanted.config.takes_components:
        reason = (
            "It is for endpoints of models. Use it in UpdateInferenceComponent, or"
            " BlueGreenUpdatePolicy with ALL_AT_ONCE here."
        )
        raise unsupported(ROLLING_POLICY, reason)
    for variant in wanted.variants:
        kind = "serverless" if variant.serverless is not None else None
        kind = "a shadow variant" if variant.variant.is_shadow else kind
        if kind is not None:
            reason = f'Variant "{variant.variant.name}" is {kind}. Use BlueGreenUpdatePolicy.'
            raise unsupported(ROLLING_POLICY, reason)


def traffic_policy(config: Mapping[str, Any]) -> TrafficPolicy:
    """The policy of a DeploymentConfig. Raises ValidationException.

    A size belongs to its own type, and must be there.
    """
    rolling = config.get("RollingUpdatePolicy")
    if rolling:
        back = rolling.get("RollbackMaximumBatchSize")
        return TrafficPolicy(
            type=TrafficType.ROLLING,
            size=fleet_size(rolling["MaximumBatchSize"]),
            wait_s=float(rolling["WaitIntervalInSeconds"]),
            rollback_size=None if back is None else fleet_size(back),
        )
    blue_green = config.get("BlueGreenUpdatePolicy") or {}
    given = blue_green.get("TrafficRoutingConfiguration") or {}
    kind = TrafficType(given.get("Type", "ALL_AT_ONCE"))
    for of, name in SIZE_FIELDS.items():
        if of is not kind and given.get(name):
            raise validation_error(f"{ROUTING}.{name} is for {of.value}; Type is {kind.value}.")
    if kind is TrafficType.ALL_AT_ONCE:
        return ALL_AT_ONCE
    size = given.get(SIZE_FIELDS[kind])
    if not size:
        raise validation_error(f"{ROUTING}.{SIZE_FIELDS[kind]} is required for {kind.value}.")
    return TrafficPolicy(
        type=kind,
        size=fleet_size(size),
        wait_s=float(given.get("WaitIntervalInSeconds") or 0),
    )


def fleet_size(given: Mapping[str, Any]) -> FleetSize:
    """The size of a CapacitySize."""
    return FleetSize(unit=FleetUnit(given["Type"]), value=given["Value"])


def time_limit_s(config: Mapping[str, Any]) -> float | None:
    """MaximumExecutionTimeoutInSeconds of a DeploymentConfig, or None."""
    policy = config.get("RollingUpdatePolicy") or config.get("BlueGreenUpdatePolicy") or {}
    limit_s = policy.get("MaximumExecutionTimeoutInSeconds")
    return None if limit_s is None else float(limit_s)


def update_guard(context: CallContext, given: Mapping[str, Any] | None) -> UpdateGuard | None:
    """The steps and rollback conditions of `given`, a DeploymentConfig that was checked."""
    if not given:
        return None
    blue_green = given.get("BlueGreenUpdatePolicy") or {}
    return UpdateGuard(
        alarm_names=rollback_alarms(context, given),
        bake_s=float(blue_green.get("TerminationWaitInSeconds") or 0),
        max_execution_s=time_limit_s(given),
        traffic=traffic_policy(given),
    )


def rollback_alarms(context: CallContext, given: Mapping[str, Any]) -> tuple[str, ...]:
    """The names in AutoRollbackConfiguration. Raises ValidationException for a missing alarm."""
    alarms = (given.get("AutoRollbackConfiguration") or {}).get("Alarms") or ()
    names = tuple(dict.fromkeys(it["AlarmName"] for it in alarms if it.get("AlarmName")))
    state, scope = context.state, context.scope
    for name in names:
        if not (state.metric_alarms.get(scope, name) or state.composite_alarms.get(scope, name)):
            raise validation_error(
                f'{ALARMS}: there is no alarm "{name}". Create it before the update that it is to'
                " guard."
            )
    return names
