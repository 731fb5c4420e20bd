"""An endpoint configuration: the variants an endpoint is made of; immutable."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hostelry.domain.scope import Scope


class RoutingStrategy(Enum):
    """How a variant's requests are spread over copies."""

    RANDOM = "RANDOM"
    LEAST_OUTSTANDING_REQUESTS = "LEAST_OUTSTANDING_REQUESTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedInstanceScaling:
    """Bounds within which the platform sets the instance count of a component endpoint."""

    enabled: bool
    min_instances: int
    max_instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A production variant. `model_name` None means inference components are placed on it."""

    name: str
    model_name: str | None
    instance_type: str
    initial_instance_count: int
    weight: float = 1.0
    routing: RoutingStrategy = RoutingStrategy.RANDOM
    scaling: ManagedInstanceScaling | None = None
    download_timeout_s: float = 3600.0
    startup_timeout_s: float = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """CreateEndpointConfig's result. `given` is the request, echoed by Describe."""

    scope: Scope
    name: str
    arn: str
    created_at: float
    variants: tuple[Variant, ...]
    given: Mapping[str, Any]

    @property
    def takes_components(self) -> bool:
        """Whether components are placed on the endpoint; then no variant names a model."""
        return all(variant.model_name is None for variant in self.variants)
