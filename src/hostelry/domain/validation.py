"""What the service models cannot say about a request; each check raises a ValidationException."""

from collections import Counter
from collections.abc import Sequence

from hostelry.base.errors import validation_error
from hostelry.domain.endpoint_config import ManagedInstanceScaling, Variant
from hostelry.domain.model import Container
from hostelry.domain.shape import Requirements, Shape

MAX_ENVIRONMENT_BYTES = 32 * 1024
MAX_MANAGED_INSTANCES = 1000
BYTES_PER_MB = 1024 * 1024


def check_environment(containers: Sequence[Container]) -> None:
    """Refuse environments of more than 32 KB over all containers."""
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


def check_variants(variants: Sequence[Variant], *, has_execution_role: bool) -> None:
    """Refuse variants that no endpoint could be made of."""
    check_variant_names(variants)
    for variant in variants:
        check_scaling(variant)
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
    """Refuse two variants of one name."""
    name, times = Counter(variant.name for variant in variants).most_common(1)[0]
    if times > 1:
        raise validation_error(
            f'Production variant names must be unique; "{name}" was given {times} times.'
        )


def check_scaling(variant: Variant) -> None:
    """Refuse managed instance scaling on a model's variant, and bounds that contradict."""
    scaling = variant.scaling
    if scaling is None:
        return
    if variant.model_name is not None:
        raise validation_error(
            "ManagedInstanceScaling is only supported for inference component endpoints."
        )
    if scaling.enabled:
        check_scaling_bounds(variant, scaling)


def check_scaling_bounds(variant: Variant, scaling: ManagedInstanceScaling) -> None:
    """Refuse min > max, and an initial count outside of both."""
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


def check_requirements(requirements: Requirements, instance_type: str, shape: Shape) -> None:
    """Refuse what contradicts itself or what not even an empty instance could hold."""
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
    limits = (
        ("NumberOfCpuCoresRequired", requirements.cpus, shape.cpus),
        ("NumberOfAcceleratorDevicesRequired", requirements.accelerators, shape.accelerators),
        ("MinMemoryRequiredInMb", least_bytes / BYTES_PER_MB, shape.memory_bytes / BYTES_PER_MB),
    )
    for name, asked, offered in limits:
        if asked > offered:
            raise validation_error(
                f"{name} is {asked:.12g}, but one {instance_type} instance offers {offered:.12g}."
            )


def check_instance_count(variant: Variant, count: int) -> None:
    """Refuse a wanted instance count that the variant cannot have."""
    if variant.scaling is not None and variant.scaling.enabled:
        low, high = variant.scaling.min_instances, variant.scaling.max_instances
        if not low <= count <= high:
            raise validation_error(
                f'DesiredInstanceCount {count} of variant "{variant.name}" is outside of its'
                f" ManagedInstanceScaling bounds, {low} to {high}."
            )
    elif count < 1:
        raise validation_error(
            f'DesiredInstanceCount {count} of variant "{variant.name}" is not possible; at least 1'
            " instance is needed."
        )
