"""An endpoint configuration: the variants of an endpoint. Immutable."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.domain.async_request import AsyncInference
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.metric import (
    DEFAULT_PERIOD_S,
    PERIODS_S,
    MetricsConfig,
    get_metrics_config,
)
from hostelry.domain.scope import Scope
from hostelry.domain.serverless import ServerlessConfig


class RoutingStrategy(Enum):
    """How a variant's requests are distributed over its copies."""

    RANDOM = "RANDOM"
    LEAST_OUTSTANDING_REQUESTS = "LEAST_OUTSTANDING_REQUESTS"


class ScaleInStrategy(Enum):
    """Which instances ManagedInstanceScaling releases."""

    IDLE_RELEASE = "IDLE_RELEASE"  # instances without a copy
    CONSOLIDATION = "CONSOLIDATION"  # also instances whose copies can move to others


class ScaleInPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Scale-in of unneeded instances: at most `max_step` at once, then a cooldown.

    AWS documents step and cooldown for CONSOLIDATION only. Source:
    ProductionVariantManagedInstanceScalingScaleInPolicy in the SageMaker API reference.
    """

    strategy: ScaleInStrategy = ScaleInStrategy.IDLE_RELEASE
    max_step: int = 1
    cooldown_s: float = 1200.0


class ManagedInstanceScaling(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds within which the platform sets the instance count of a component endpoint."""

    enabled: bool
    min_instances: int
    max_instances: int
    scale_in: ScaleInPolicy = ScaleInPolicy()


class InstancePool(msgspec.Struct, frozen=True, kw_only=True):
    """An instance type among several of a variant. The lowest `priority` is tried first."""

    instance_type: str
    priority: int
    model_name: str | None = None


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A variant. Without `model_name`, inference components are placed on it.

    With `pools`, `instance_type` is the first pool's type. `provision_timeout_s` limits the start
    of an instance before another type is tried. `serverless` is set if the platform chooses the
    instances. Then `instance_type` is one of the platform's own types. A shadow variant gets copies
    of requests, and its answers are not used.
    """

    name: str
    model_name: str | None
    instance_type: str
    initial_instance_count: int
    weight: float = 1.0
    routing: RoutingStrategy = RoutingStrategy.RANDOM
    scaling: ManagedInstanceScaling | None = None
    download_timeout_s: float = 3600.0
    startup_timeout_s: float = 240.0
    pools: tuple[InstancePool, ...] = ()
    provision_timeout_s: float = 600.0
    serverless: ServerlessConfig | None = None
    is_shadow: bool = False

    @property
    def instance_types(self) -> tuple[str, ...]:
        """The types of its instances, in order of preference."""
        if not self.pools:
            return (self.instance_type,)
        ordered = sorted(self.pools, key=lambda it: it.priority)
        return tuple(it.instance_type for it in ordered)

    @property
    def provisioning_s(self) -> float:
        """The time limit for starting its instances, if every type is tried."""
        return self.provision_timeout_s * len(self.instance_types)


class EndpointConfig(msgspec.Struct, frozen=True, kw_only=True):
    """CreateEndpointConfig's result. `given` is the request, which Describe returns.

    `variants` has the production variants and the shadow variant, if there is one.
    `async_inference` is set if requests are queued, `capture` if requests are captured.
    """

    scope: Scope
    name: str
    arn: str
    created_at: float
    variants: tuple[Variant, ...]
    async_inference: AsyncInference | None = None
    capture: DataCapture | None = None
    given: Mapping[str, Any]

    @property
    def takes_components(self) -> bool:
        """Whether components are placed on the endpoint: no variant names a model."""
        return all(variant.model_name is None for variant in self.variants)

    @property
    def has_shadow(self) -> bool:
        """Whether a shadow variant gets copies of the endpoints' requests."""
        return any(variant.is_shadow for variant in self.variants)

    @property
    def least_instances(self) -> int:
        """The minimum number of a variant's instances. It can be 0 if requests are queued."""
        return 0 if self.async_inference is not None else 1

    @property
    def metrics(self) -> MetricsConfig:
        """MetricsConfig of its endpoints. An invalid period is replaced by the default."""
        found = get_metrics_config(self.given)  # records of earlier versions were not checked
        return found if found.period_s in PERIODS_S else replace(found, period_s=DEFAULT_PERIOD_S)
