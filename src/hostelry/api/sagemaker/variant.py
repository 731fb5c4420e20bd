"""From a ProductionVariant to a domain variant."""

from collections.abc import Mapping
from typing import Any

from hostelry.api.refusals import refuse_fields, unsupported
from hostelry.api.sagemaker.serverless import serverless_of
from hostelry.base.errors import validation_error
from hostelry.domain.deadline import PROVISION_S
from hostelry.domain.endpoint_config import (
    InstancePool,
    ManagedInstanceScaling,
    RoutingStrategy,
    ScaleInPolicy,
    ScaleInStrategy,
    Variant,
)
from hostelry.domain.validation import MAX_INSTANCES

UNSUPPORTED = (
    "CoreDumpConfig",
    "AcceleratorPartitionLayouts",
)
DEFAULT_DOWNLOAD_TIMEOUT_S = 3600.0
DEFAULT_STARTUP_TIMEOUT_S = 240.0
DEFAULT_COOLDOWN_MINUTES = 20


def variant_of(given: Mapping[str, Any], path: str) -> Variant:
    """The variant that `given` describes; `path` names it in messages."""
    refuse_fields(given, UNSUPPORTED, f"{path}.")
    if given.get("ServerlessConfig") is not None:
        return serverless_variant_of(given, path)
    if given.get("InitialInstanceCount") is None:
        raise validation_error(
            f"{path}.InitialInstanceCount is required for production variant"
            f' "{given["VariantName"]}".'
        )
    pools = pools_of(given, path)
    return Variant(
        name=given["VariantName"],
        model_name=given.get("ModelName"),
        instance_type=pools[0].instance_type if pools else given["InstanceType"],
        initial_instance_count=given["InitialInstanceCount"],
        weight=float(given.get("InitialVariantWeight", 1.0)),
        routing=routing_of(given.get("RoutingConfig") or {}, path),
        scaling=scaling_of(given.get("ManagedInstanceScaling")),
        download_timeout_s=download_timeout_s(given),
        startup_timeout_s=startup_timeout_s(given),
        pools=pools,
        provision_timeout_s=float(
            given.get("VariantInstanceProvisionTimeoutInSeconds", PROVISION_S)
        ),
    )


def serverless_variant_of(given: Mapping[str, Any], path: str) -> Variant:
    """The serverless variant that `given` describes, on an instance of the platform's own type."""
    config = serverless_of(given["ServerlessConfig"])
    return Variant(
        name=given["VariantName"],
        model_name=given["ModelName"],
        instance_type=config.instance_type,
        initial_instance_count=1,
        weight=float(given.get("InitialVariantWeight", 1.0)),
        routing=routing_of(given.get("RoutingConfig") or {}, path),
        serverless=config,
        download_timeout_s=download_timeout_s(given),
        startup_timeout_s=startup_timeout_s(given),
    )


def download_timeout_s(given: Mapping[str, Any]) -> float:
    """The time limit for the download of a model."""
    return float(given.get("ModelDataDownloadTimeoutInSeconds", DEFAULT_DOWNLOAD_TIMEOUT_S))


def startup_timeout_s(given: Mapping[str, Any]) -> float:
    """The time limit for the start of a model server."""
    return float(
        given.get("ContainerStartupHealthCheckTimeoutInSeconds", DEFAULT_STARTUP_TIMEOUT_S)
    )


def pools_of(given: Mapping[str, Any], path: str) -> tuple[InstancePool, ...]:
    """The variant's pools, the first choice first; none where it has one instance type."""
    one, several = given.get("InstanceType"), given.get("InstancePools")
    if (one is None) == (not several):
        which = "both were" if one is not None else "none was"
        raise validation_error(
            f"Exactly one of {path}.InstanceType and {path}.InstancePools is required for"
            f' production variant "{given["VariantName"]}"; {which} given.'
        )
    pools = (
        InstancePool(
            instance_type=pool["InstanceType"],
            priority=pool["Priority"],
            model_name=pool.get("ModelNameOverride"),
        )
        for pool in several or ()
    )
    return tuple(sorted(pools, key=lambda pool: pool.priority))


def routing_of(given: Mapping[str, Any], path: str) -> RoutingStrategy:
    """The routing strategy; RANDOM is the default."""
    refuse_fields(given, ("PrefixAwareRoutingConfig",), f"{path}.RoutingConfig.")
    asked = given.get("RoutingStrategy", RoutingStrategy.RANDOM.value)
    if asked not in {strategy.value for strategy in RoutingStrategy}:
        raise unsupported(f"{path}.RoutingConfig.RoutingStrategy={asked}")
    return RoutingStrategy(asked)


def scaling_of(given: Mapping[str, Any] | None) -> ManagedInstanceScaling | None:
    """The bounds of the instance count; None where the platform does not scale it."""
    if given is None:
        return None
    return ManagedInstanceScaling(
        enabled=given.get("Status", "DISABLED") == "ENABLED",
        min_instances=given.get("MinInstanceCount", 1),
        max_instances=given.get("MaxInstanceCount", MAX_INSTANCES),
        scale_in=scale_in_of(given.get("ScaleInPolicy")),
    )


def scale_in_of(given: Mapping[str, Any] | None) -> ScaleInPolicy:
    """The policy for instances that are not needed; by default those without copies are ended."""
    if given is None:
        return ScaleInPolicy()
    return ScaleInPolicy(
        strategy=ScaleInStrategy(given["Strategy"]),
        max_step=given.get("MaximumStepSize", 1),
        cooldown_s=given.get("CooldownInMinutes", DEFAULT_COOLDOWN_MINUTES) * 60.0,
    )
