"""Builds a domain variant from a ProductionVariant or a ShadowProductionVariant.

Source: ProductionVariants and ShadowProductionVariants of CreateEndpointConfig in the SageMaker API
reference, and "Shadow variants" in the developer guide.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from hostelry.api.context import Params
from hostelry.api.refusals import refuse_fields, unsupported
from hostelry.api.sagemaker.model import check_one_container
from hostelry.api.sagemaker.serverless import build_serverless
from hostelry.base.errors import validation_error
from hostelry.domain.endpoint_config import (
    InstancePool,
    ManagedInstanceScaling,
    RoutingStrategy,
    ScaleInPolicy,
    ScaleInStrategy,
    Variant,
)
from hostelry.domain.model import Model
from hostelry.domain.status import PROVISION_S
from hostelry.domain.validation import MAX_INSTANCES

UNSUPPORTED = (
    "CoreDumpConfig",
    "AcceleratorPartitionLayouts",
)
DEFAULT_DOWNLOAD_TIMEOUT_S = 3600.0
DEFAULT_STARTUP_TIMEOUT_S = 240.0
DEFAULT_COOLDOWN_MINUTES = 20
SHADOW_FIELD = "ShadowProductionVariants"


def build_variant(given: Mapping[str, Any], path: str) -> Variant:
    """The variant that `given` describes. `path` names it in messages."""
    refuse_fields(given, UNSUPPORTED, f"{path}.")
    if given.get("ServerlessConfig") is not None:
        return _build_serverless_variant(given, path)
    if given.get("InitialInstanceCount") is None:
        raise validation_error(
            f"{path}.InitialInstanceCount is required for production variant"
            f' "{given["VariantName"]}".'
        )
    pools = _build_pools(given, path)
    return Variant(
        name=given["VariantName"],
        model_name=given.get("ModelName"),
        instance_type=pools[0].instance_type if pools else given["InstanceType"],
        initial_instance_count=given["InitialInstanceCount"],
        weight=float(given.get("InitialVariantWeight", 1.0)),
        routing=_parse_routing(given.get("RoutingConfig") or {}, path),
        scaling=_build_scaling(given.get("ManagedInstanceScaling")),
        download_timeout_s=_download_timeout_s(given),
        startup_timeout_s=_startup_timeout_s(given),
        pools=pools,
        provision_timeout_s=float(
            given.get("VariantInstanceProvisionTimeoutInSeconds", PROVISION_S)
        ),
    )


def _build_serverless_variant(given: Mapping[str, Any], path: str) -> Variant:
    """The serverless variant that `given` describes, on the platform's own type of instance."""
    config = build_serverless(given["ServerlessConfig"])
    return Variant(
        name=given["VariantName"],
        model_name=given["ModelName"],
        instance_type=config.instance_type,
        initial_instance_count=1,
        weight=float(given.get("InitialVariantWeight", 1.0)),
        routing=_parse_routing(given.get("RoutingConfig") or {}, path),
        serverless=config,
        download_timeout_s=_download_timeout_s(given),
        startup_timeout_s=_startup_timeout_s(given),
    )


def _download_timeout_s(given: Mapping[str, Any]) -> float:
    return float(given.get("ModelDataDownloadTimeoutInSeconds", DEFAULT_DOWNLOAD_TIMEOUT_S))


def _startup_timeout_s(given: Mapping[str, Any]) -> float:
    return float(
        given.get("ContainerStartupHealthCheckTimeoutInSeconds", DEFAULT_STARTUP_TIMEOUT_S)
    )


def _build_pools(given: Mapping[str, Any], path: str) -> tuple[InstancePool, ...]:
    """The variant's pools by priority. Empty for a variant of one instance type."""
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


def _parse_routing(given: Mapping[str, Any], path: str) -> RoutingStrategy:
    refuse_fields(given, ("PrefixAwareRoutingConfig",), f"{path}.RoutingConfig.")
    asked = given.get("RoutingStrategy", RoutingStrategy.RANDOM.value)
    if asked not in {strategy.value for strategy in RoutingStrategy}:
        raise unsupported(f"{path}.RoutingConfig.RoutingStrategy={asked}")
    return RoutingStrategy(asked)


def _build_scaling(given: Mapping[str, Any] | None) -> ManagedInstanceScaling | None:
    """The bounds of the instance count, or None if the platform does not scale it."""
    if given is None:
        return None
    return ManagedInstanceScaling(
        enabled=given.get("Status", "DISABLED") == "ENABLED",
        min_instances=given.get("MinInstanceCount", 1),
        max_instances=given.get("MaxInstanceCount", MAX_INSTANCES),
        scale_in=_build_scale_in(given.get("ScaleInPolicy")),
    )


def _build_scale_in(given: Mapping[str, Any] | None) -> ScaleInPolicy:
    """The policy for idle instances. By default instances without copies are terminated."""
    if given is None:
        return ScaleInPolicy()
    return ScaleInPolicy(
        strategy=ScaleInStrategy(given["Strategy"]),
        max_step=given.get("MaximumStepSize", 1),
        cooldown_s=given.get("CooldownInMinutes", DEFAULT_COOLDOWN_MINUTES) * 60.0,
    )


def build_shadow_variants(params: Params, production: Sequence[Variant]) -> tuple[Variant, ...]:
    """The shadow variant of a request, if there is one."""
    given: Sequence[Mapping[str, Any]] = params.get(SHADOW_FIELD) or ()
    if not given:
        return ()
    if len(given) != 1 or len(production) != 1:
        raise validation_error(
            f"{SHADOW_FIELD} needs exactly one production variant and one shadow variant; "
            f"{len(production)} and {len(given)} were given."
        )
    if params.get("AsyncInferenceConfig") is not None:
        raise validation_error(
            f"{SHADOW_FIELD} cannot be given beside AsyncInferenceConfig; leave one of them out."
        )
    if given[0].get("ServerlessConfig") is not None:
        raise validation_error(
            f"{SHADOW_FIELD}.1.ServerlessConfig is not possible: a shadow variant has instances."
        )
    shadow = replace(build_variant(given[0], f"{SHADOW_FIELD}.1"), is_shadow=True)
    for variant in (*production, shadow):
        if variant.model_name is None:
            raise validation_error(
                f'{SHADOW_FIELD} needs a ModelName on variant "{variant.name}": requests for'
                " inference components cannot be mirrored."
            )
    return (shadow,)


def check_shadow_model(model: Model) -> None:
    """Refuse a model with several containers or a multi-model container, on either variant."""
    check_one_container(model, SHADOW_FIELD, "Mirrored requests go to one container.")
    if model.is_multi_model:
        raise unsupported(
            f"{SHADOW_FIELD} with the multi-model container (Mode MultiModel) of model"
            f' "{model.name}"',
            "Create a model from the one archive.",
        )
