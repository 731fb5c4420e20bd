"""The gateway's whole knowledge: which copies answer for which name.

A snapshot is complete and replaces the one before. It is pushed by control, kept on disk by each
gateway, and holds only copies that have proven ready.
"""

from dataclasses import dataclass

from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRoute:
    """A ready copy: `address` is ``http://host:port``."""

    id: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRoute:
    """A variant of a model endpoint; `weight` is its share of requests without TargetVariant."""

    name: str
    weight: float
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRoute:
    """A component: `copies` are its own, or its base's copies that have the adapter registered.

    `adapter_id` is set on adapter components and goes out as X-Amzn-SageMaker-Adapter-Identifier.
    """

    name: str
    variant_name: str
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]
    adapter_id: str | None = None
    desired_copies: int = 0  # its base's, for an adapter; above 0 without copies: they are coming
    serves_llm: bool = False  # reachable through the OpenAI routes


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRoute:
    """An endpoint that serves; exactly one of `variants` and `components` is used.

    `takes_components` tells an endpoint without components yet from a model endpoint.
    """

    scope: Scope
    name: str
    takes_components: bool
    variants: tuple[VariantRoute, ...] = ()
    components: tuple[ComponentRoute, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSnapshot:
    """Every endpoint that serves; `version` is a digest of the content."""

    version: str
    endpoints: tuple[EndpointRoute, ...]
