"""Checks of requests beyond the service models. Each raises a ValidationException."""

from collections import Counter
from collections.abc import Mapping, Sequence

from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.endpoint_config import ManagedInstanceScaling, Variant
from hostelry.domain.isolation import read_isolation
from hostelry.domain.metric import PERIODS_S, MetricsConfig
from hostelry.domain.model import Container
from hostelry.domain.shape import Requirements, Shape

MAX_ENVIRONMENT_BYTES = 32 * 1024
MAX_INSTANCES = 1000  # of a variant
MAX_COPIES = 1000  # of a component
BYTES_PER_MB = 1024 * 1024


def check_environment(containers: Sequence[Container]) -> None:
    """Refuse environments of more than 32 KB over all containers, and unknown isolation."""
    check_isolation(containers)
    size_bytes = sum(
        len(name.encode()) + len(value.encode())
        for container in containers
        for name, value in container.environment.items()
    )
    if size_bytes > MAX_ENVIRONMENT_BYTES:
        raise validation_error(
            f"The environment variables of all containers take {size_bytes} bytes;"
            f" at most {MAX_ENVIRONMENT_BYTES} are allowed."
        )


def check_isolation(containers: Sequence[Container]) -> None:
    """Refuse containers whose environment asks for an unknown isolation."""
    for container in containers:
        try:
            read_isolation(container.environment)
        except ValueError as error:
            raise validation_error(f"{error}.") from error


def check_variants(variants: Sequence[Variant], *, has_execution_role: bool) -> None:
    """Refuse variants that no endpoint can have."""
    check_variant_names(variants)
    for variant in variants:
        check_scaling(variant)
        check_pools(variant)
        check_limit("InitialInstanceCount", variant.initial_instance_count, MAX_INSTANCES)
    without_model = [variant for variant in variants if variant.model_name is None]
    if not without_model:
        return
    if len(without_model) < len(variants):
        raise validation_error(
            f'Production variant "{without_model[0].name}" has no ModelName while others have one;'
            " models and inference components never share an endpoint."
        )
    if len(variants) > 1:
        raise validation_error(
            f"An endpoint for inference components has exactly one production variant;"
            f" {len(variants)} were given."
        )
    if not has_execution_role:
        raise validation_error(
            "ExecutionRoleArn is required on an endpoint configuration whose production variant"
            f' has no ModelName (variant "{variants[0].name}").'
        )


def check_variant_names(variants: Sequence[Variant]) -> None:
    """Refuse two variants with the same name."""
    name, times = Counter(variant.name for variant in variants).most_common(1)[0]
    if times > 1:
        raise validation_error(
            f'Production variant names must be unique; "{name}" was given {times} times.'
        )


def check_scaling(variant: Variant) -> None:
    """Refuse managed instance scaling on a model's variant, and contradictory bounds."""
    scaling = variant.scaling
    if scaling is None:
        return
    if variant.model_name is not None:
        raise validation_error(
            "ManagedInstanceScaling is only supported for inference component endpoints."
        )
    if scaling.enabled:
        check_scaling_bounds(variant, scaling)
    elif scaling.min_instances == 0:
        raise validation_error(
            f'ManagedInstanceScaling of variant "{variant.name}": MinInstanceCount 0 needs Status'
            " ENABLED; without it nothing takes instances away or brings them back."
        )


def check_scaling_bounds(variant: Variant, scaling: ManagedInstanceScaling) -> None:
    """Refuse a minimum above the maximum, and an initial count outside the bounds."""
    low, high = scaling.min_instances, scaling.max_instances
    if low > high:
        raise validation_error(
            f'ManagedInstanceScaling of variant "{variant.name}": MinInstanceCount {low} is'
            f" greater than MaxInstanceCount {high}."
        )
    if not low <= variant.initial_instance_count <= high:
        raise validation_error(
            f'InitialInstanceCount {variant.initial_instance_count} of variant "{variant.name}"'
            f" is outside of its ManagedInstanceScaling bounds, {low} to {high}."
        )


def check_pools(variant: Variant) -> None:
    """Refuse an instance type in two pools, and a model where components are placed."""
    for instance_type, times in Counter(it.instance_type for it in variant.pools).items():
        if times > 1:
            raise validation_error(
                f'InstancePools of variant "{variant.name}" name {instance_type} {times} times;'
                " each instance type needs one pool."
            )
    if variant.model_name is not None:
        return
    for pool in variant.pools:
        if pool.model_name is not None:
            raise validation_error(
                f'InstancePools of variant "{variant.name}": ModelNameOverride'
                f' "{pool.model_name}" cannot be given where the variant has no ModelName; an'
                " inference component says in its Specifications what runs on each instance type."
            )


def check_metrics(metrics: MetricsConfig) -> None:
    """Refuse periods at which metrics cannot be published.

    Source: MetricPublishFrequencyInSeconds in the SageMaker API reference.
    """
    if metrics.period_s not in PERIODS_S:
        allowed = ", ".join(map(str, PERIODS_S))
        raise validation_error(
            f"MetricPublishFrequencyInSeconds of MetricsConfig is {metrics.period_s};"
            f" valid values are {allowed}."
        )


def check_limit(name: str, asked: int, limit: int) -> None:
    """Refuse numbers above `limit`, with ResourceLimitExceeded."""
    if asked > limit:
        raise ServiceError(
            "ResourceLimitExceeded", f"{name} is {asked}; at most {limit} are possible."
        )


def check_requirements(requirements: Requirements, offers: Mapping[str, Shape]) -> None:
    """Refuse contradictory requirements, and those that fit on no type in `offers`, even empty."""
    check_consistent(requirements)
    lacks = [shortfall(requirements, name, shape) for name, shape in offers.items()]
    if lacks and None not in lacks:
        raise validation_error(" ".join(f"{lack}." for lack in lacks))


def check_consistent(requirements: Requirements) -> None:
    """Refuse contradictory requirements."""
    least_bytes, most_bytes = requirements.min_memory_bytes, requirements.max_memory_bytes
    if most_bytes is not None and most_bytes < least_bytes:
        raise validation_error(
            f"MaxMemoryRequiredInMb {most_bytes // BYTES_PER_MB} is less than"
            f" MinMemoryRequiredInMb {least_bytes // BYTES_PER_MB}."
        )
    if not float(requirements.accelerators).is_integer():
        raise validation_error(
            f"NumberOfAcceleratorDevicesRequired is {requirements.accelerators}; a copy owns whole"
            " accelerators, so it must be a whole number."
        )


def shortfall(requirements: Requirements, instance_type: str, shape: Shape) -> str | None:
    """Describe the resources that an empty instance lacks for a copy. None if the copy fits."""
    least_bytes = requirements.min_memory_bytes
    limits = (
        ("NumberOfCpuCoresRequired", requirements.cpus, shape.cpus),
        ("NumberOfAcceleratorDevicesRequired", requirements.accelerators, shape.accelerators),
        ("MinMemoryRequiredInMb", least_bytes / BYTES_PER_MB, shape.memory_bytes / BYTES_PER_MB),
    )
    for name, asked, offered in limits:
        if asked > offered:
            return f"{name} is {asked:.12g}, but one {instance_type} instance offers {offered:.12g}"
    return None


def check_instance_count(variant: Variant, count: int, least: int) -> None:
    """Refuse a desired instance count that the variant cannot have. `least` is the minimum."""
    if variant.scaling is not None and variant.scaling.enabled:
        raise validation_error(
            f'DesiredInstanceCount of variant "{variant.name}" cannot be set: its'
            " ManagedInstanceScaling is ENABLED, so that instances follow the copies of inference"
            " components. Change their copy counts, or MinInstanceCount by UpdateEndpoint."
        )
    if count < least:
        raise validation_error(
            f'DesiredInstanceCount {count} of variant "{variant.name}" is not possible; at least 1'
            " instance is needed. Only endpoints with an AsyncInferenceConfig can have none."
        )
    check_limit("DesiredInstanceCount", count, MAX_INSTANCES)


def possible_instance_count(variant: Variant, count: int, least: int) -> int:
    """The possible instance count of the variant that is nearest to `count`."""
    if variant.scaling is None or not variant.scaling.enabled:
        return max(least, count)
    return min(max(variant.scaling.min_instances, count), variant.scaling.max_instances)
