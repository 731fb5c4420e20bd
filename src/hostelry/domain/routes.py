"""The gateway's whole knowledge: which copies answer for which name.

A snapshot is complete and replaces the one before. It is pushed by control, kept on disk by each
gateway, and holds only copies that have proven ready.
"""

from dataclasses import dataclass, field

from hostelry.domain.at_zero import AtZero, Wakeable
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRoute:
    """A ready copy: `address` is ``http://host:port``, `key` what its server asks to be shown."""

    id: str
    address: str
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRoute:
    """A variant of a model endpoint; `weight` is its share of requests without TargetVariant.

    `waiting_for` says why it has no copy, where that is known.
    """

    name: str
    weight: float
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]
    waiting_for: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRoute:
    """A component: `copies` are its own, or its base's copies that have the adapter registered.

    `adapter_id` is set on adapter components and goes out as X-Amzn-SageMaker-Adapter-Identifier.
    `at_zero` is what a request gets while there is no copy, and `wakeable` whether one may be
    started for it where none is wanted; `waiting_for` says why there is none, where that is known.
    `base_name` is whose copies an adapter uses.
    """

    name: str
    variant_name: str
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]
    adapter_id: str | None = None
    desired_copies: int = 0  # its base's, for an adapter; above 0 without copies: they are coming
    serves_llm: bool = False  # reachable through the OpenAI routes
    at_zero: AtZero = AtZero.COMPAT
    wakeable: Wakeable = Wakeable.NO_TARGET
    waiting_for: str | None = None
    base_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRoute:
    """An endpoint that serves; exactly one of `variants` and `components` is used.

    `takes_components` tells an endpoint without components yet from a model endpoint. `at_zero` is
    what requests for its variants get while there is no copy.
    """

    scope: Scope
    name: str
    takes_components: bool
    variants: tuple[VariantRoute, ...] = ()
    components: tuple[ComponentRoute, ...] = ()
    at_zero: AtZero = AtZero.COMPAT


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSnapshot:
    """Every endpoint that serves; `version` is a digest of the content."""

    version: str
    endpoints: tuple[EndpointRoute, ...]
