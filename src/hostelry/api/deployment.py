"""From a configuration to a deployment of it on an endpoint."""

from collections.abc import Mapping
from typing import Any

from hostelry.api.context import Context, new_generation
from hostelry.api.model import find_model
from hostelry.api.refusals import unsupported
from hostelry.domain.endpoint import Deployment, EndpointVariant
from hostelry.domain.endpoint_config import EndpointConfig, Variant

ALARMS = "DeploymentConfig.AutoRollbackConfiguration.Alarms"
NO_ALARMS = (
    "There are no alarms yet that could guard an update. Leave it out: an update goes back by"
    " itself where what it brings up does not prove ready."
)


def deployment_of(context: Context, config: EndpointConfig) -> Deployment:
    """`config` with copies of its models, as a new generation."""
    return Deployment(
        generation=new_generation(context),
        config=config,
        variants=tuple(endpoint_variant_of(context, variant) for variant in config.variants),
        started_at=context.now,
    )


def endpoint_variant_of(context: Context, variant: Variant) -> EndpointVariant:
    """The variant with a copy of its model; raises ValidationException where that is gone."""
    name = variant.model_name
    return EndpointVariant(
        variant=variant,
        model=None if name is None else find_model(context, name).value,
        desired_instance_count=variant.initial_instance_count,
        desired_weight=variant.weight,
        pool_models={
            pool.instance_type: find_model(context, pool.model_name).value
            for pool in variant.pools
            if pool.model_name is not None
        },
    )


def check_deployment_config(given: Mapping[str, Any] | None) -> None:
    """Refuse what would need alarms or traffic in steps; all at once is what happens here."""
    if not given:
        return
    if (given.get("AutoRollbackConfiguration") or {}).get("Alarms"):
        raise unsupported(ALARMS, NO_ALARMS)
    if given.get("RollingUpdatePolicy"):
        raise unsupported("DeploymentConfig.RollingUpdatePolicy")
    blue_green = given.get("BlueGreenUpdatePolicy") or {}
    kind = (blue_green.get("TrafficRoutingConfiguration") or {}).get("Type", "ALL_AT_ONCE")
    if kind != "ALL_AT_ONCE":
        raise unsupported(
            f"DeploymentConfig.BlueGreenUpdatePolicy.TrafficRoutingConfiguration.Type={kind}",
            "Use ALL_AT_ONCE.",
        )
