"""Serverless configuration of a variant: the memory and the number of its environments.

Source: ProductionVariantServerlessConfig in the SageMaker API reference, and, for features that
cannot be combined with it, "Deploy models with Amazon SageMaker Serverless Inference" in the
developer guide.
An environment is a copy of the model that takes one request at a time.
"""

from collections.abc import Collection

import msgspec

from hostelry.base.errors import validation_error
from hostelry.domain.shape import Requirements, Shape

MEMORY_STEP_MB = 1024
MAX_MEMORY_MB = 6144
MAX_CONCURRENCY = 200
# AWS only documents that the CPUs of serverless endpoints grow with their memory. This number comes
# from "Configure Lambda function memory" in the Lambda developer guide.
MB_PER_CPU = 1769
MAX_DISK_BYTES = 5 * 1024**3
BYTES_PER_MB = 1024**2
TYPE_PREFIX = "ml.serverless."
MAX_PAYLOAD_BYTES = 4 * 1024 * 1024
MAX_INVOCATION_S = 60.0
# Members of a variant and of its configuration that serverless environments cannot have.
NOT_OF_VARIANT = (
    "InstanceType",
    "InitialInstanceCount",
    "InstancePools",
    "AcceleratorType",
    "ManagedInstanceScaling",
    "VolumeSizeInGB",
    "VariantInstanceProvisionTimeoutInSeconds",
    "CapacityReservationConfig",
    "InferenceAmiVersion",
    "EnableSSMAccess",
)
NOT_OF_CONFIG = (
    "AsyncInferenceConfig",
    "DataCaptureConfig",
    "ExplainerConfig",
    "ShadowProductionVariants",
    "VpcConfig",
    "EnableNetworkIsolation",
)


class ServerlessConfig(msgspec.Struct, frozen=True, kw_only=True):
    """ServerlessConfig: at most `max_concurrency` environments of `memory_mb` each.

    `provisioned_concurrency` of them are kept ready.
    """

    memory_mb: int
    max_concurrency: int
    provisioned_concurrency: int = 0

    @property
    def environment(self) -> Requirements:
        """The resources of one environment: CPUs in proportion to its memory, 5 GB of disk."""
        memory_bytes = self.memory_mb * BYTES_PER_MB
        return Requirements(
            min_memory_bytes=memory_bytes,
            max_memory_bytes=memory_bytes,
            cpus=round(self.memory_mb / MB_PER_CPU, 3),
            max_disk_bytes=MAX_DISK_BYTES,
        )

    @property
    def shape(self) -> Shape:
        """The declared resources of the instance that holds all environments."""
        one = self.environment
        return Shape(
            cpus=round(one.cpus * self.max_concurrency, 3),
            memory_bytes=one.min_memory_bytes * self.max_concurrency,
        )

    @property
    def instance_type(self) -> str:
        """The platform's own type of this instance. It matches no real machine type."""
        return f"{TYPE_PREFIX}{self.memory_mb}mb"


def check_serverless(config: ServerlessConfig, path: str) -> None:
    """Refuse numbers that are invalid for a serverless variant. `path` names it in messages."""
    memory_mb, most = config.memory_mb, config.max_concurrency
    if memory_mb % MEMORY_STEP_MB or not MEMORY_STEP_MB <= memory_mb <= MAX_MEMORY_MB:
        allowed = ", ".join(map(str, range(MEMORY_STEP_MB, MAX_MEMORY_MB + 1, MEMORY_STEP_MB)))
        raise validation_error(f"{path}.MemorySizeInMB is {memory_mb}; valid values are {allowed}.")
    if not 1 <= most <= MAX_CONCURRENCY:
        raise validation_error(
            f"{path}.MaxConcurrency is {most}; it must be from 1 to {MAX_CONCURRENCY}."
        )
    if config.provisioned_concurrency > most:
        raise validation_error(
            f"{path}.ProvisionedConcurrency is {config.provisioned_concurrency}; it cannot be more"
            f" than MaxConcurrency, which is {most}."
        )


def check_combination(
    path: str, of_variant: Collection[str], of_config: Collection[str], num_variants: int
) -> None:
    """Refuse members that cannot be combined with ServerlessConfig.

    Args:
        path: names the variant in messages.
        of_variant: the members of the variant.
        of_config: the members of its configuration, without disabled switches.
        num_variants: the number of variants in the configuration.
    """
    beside = [f"{path}.{it}" for it in NOT_OF_VARIANT if it in of_variant]
    beside += [it for it in NOT_OF_CONFIG if it in of_config]
    if beside:
        raise validation_error(
            f"{beside[0]} cannot be given beside {path}.ServerlessConfig; leave one of them out."
        )
    if "ModelName" not in of_variant:
        raise validation_error(
            f"{path}.ModelName is required beside {path}.ServerlessConfig: a serverless endpoint"
            " takes no inference components."
        )
    if num_variants > 1:
        raise validation_error(
            f"A serverless endpoint has exactly one production variant; {num_variants} were given,"
            f" of which {path} has a ServerlessConfig."
        )
