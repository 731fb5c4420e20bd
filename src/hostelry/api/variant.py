"""From a ProductionVariant to a domain variant."""

from collections.abc import Mapping
from typing import Any

from hostelry.api.refusals import refuse_fields, unsupported
from hostelry.base.errors import validation_error
from hostelry.domain.endpoint_config import ManagedInstanceScaling, RoutingStrategy, Variant
from hostelry.domain.validation import MAX_MANAGED_INSTANCES

UNSUPPORTED = (
    "ServerlessConfig",
    "InstancePools",
    "VariantInstanceProvisionTimeoutInSeconds",
    "CoreDumpConfig",
    "AcceleratorPartitionLayouts",
)
DEFAULT_DOWNLOAD_TIMEOUT_S = 3600.0
DEFAULT_STARTUP_TIMEOUT_S = 240.0


def variant_of(given: Mapping[str, Any], path: str) -> Variant:
    """The variant that `given` describes; `path` names it in messages."""
    refuse_fields(given, UNSUPPORTED, f"{path}.")
    for field in ("InstanceType", "InitialInstanceCount"):
        if given.get(field) is None:
            raise validation_error(
                f'{path}.{field} is required for production variant "{given["VariantName"]}".'
            )
    return Variant(
        name=given["VariantName"],
        model_name=given.get("ModelName"),
        instance_type=given["InstanceType"],
        initial_instance_count=given["InitialInstanceCount"],
        weight=float(given.get("InitialVariantWeight", 1.0)),
        routing=routing_of(given.get("RoutingConfig") or {}, path),
        scaling=scaling_of(given.get("ManagedInstanceScaling"), path),
        download_timeout_s=float(
            given.get("ModelDataDownloadTimeoutInSeconds", DEFAULT_DOWNLOAD_TIMEOUT_S)
        ),
        startup_timeout_s=float(
            given.get("ContainerStartupHealthCheckTimeoutInSeconds", DEFAULT_STARTUP_TIMEOUT_S)
        ),
    )


def routing_of(given: Mapping[str, Any], path: str) -> RoutingStrategy:
    """How requests are spread; RANDOM where nothing is said."""
    refuse_fields(given, ("PrefixAwareRoutingConfig",), f"{path}.RoutingConfig.")
    asked = given.get("RoutingStrategy", RoutingStrategy.RANDOM.value)
    if asked not in {strategy.value for strategy in RoutingStrategy}:
        raise unsupported(f"{path}.RoutingConfig.RoutingStrategy={asked}")
    return RoutingStrategy(asked)


def scaling_of(given: Mapping[str, Any] | None, path: str) -> ManagedInstanceScaling | None:
    """The instance count's bounds; None where the platform does not set it."""
    if given is None:
        return None
    refuse_fields(given, ("ScaleInPolicy",), f"{path}.ManagedInstanceScaling.")
    return ManagedInstanceScaling(
        enabled=given.get("Status", "DISABLED") == "ENABLED",
        min_instances=given.get("MinInstanceCount", 1),
        max_instances=given.get("MaxInstanceCount", MAX_MANAGED_INSTANCES),
    )
