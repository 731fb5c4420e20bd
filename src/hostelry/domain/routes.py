"""Routes of the gateway: the copies that serve each name.

A snapshot is complete and replaces the previous one. Control pushes it, each gateway keeps it on
disk, and it has only copies that have proven ready.
"""

from dataclasses import dataclass, field

from hostelry.domain.async_request import AsyncInference
from hostelry.domain.at_zero import AtZero, Wakeable
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.scope import Scope
from hostelry.domain.serverless import ServerlessConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRoute:
    """A ready copy. `address` is ``http://host:port``, `key` the secret that requests carry.

    The models of a multi-model copy are leased at `models_address`. `config` is its endpoint
    configuration while an update is under way. If its model has several containers, `container` is
    the name of this container, and `log_stream` the stream of its output. `further` has the copies
    of a pipeline's other containers on its instance, in order.
    """

    id: str
    address: str
    key: str | None = field(default=None, repr=False)
    models_address: str | None = None
    config: str | None = None
    container: str | None = None
    log_stream: str | None = None
    further: tuple["CopyRoute", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRoute:
    """A container that requests name by TargetContainerHostname, and its ready copies."""

    hostname: str
    copies: tuple[CopyRoute, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetShift:
    """The share of a variant's requests for its new fleet, from 0 to 1, and that fleet's copies.

    The other fleet gets what one without copies cannot take.
    """

    share: float
    new_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRoute:
    """A variant of a model endpoint. `weight` is its share of requests without TargetVariant.

    `waiting_for` says why it has no copy, if that is known. With `is_multi_model` requests name the
    model. If `serverless` is set, each copy is an environment: it takes one request at a time, and
    more are started as requests come. `copies` includes both fleets while `shift` is set. `capture`
    is set if its requests are captured. If requests name the container, `containers` has all of
    them, and `copies` is empty.
    """

    name: str
    weight: float
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]
    waiting_for: str | None = None
    is_multi_model: bool = False
    serverless: ServerlessConfig | None = None
    shift: FleetShift | None = None
    capture: DataCapture | None = None
    containers: tuple[ContainerRoute, ...] = ()

    @property
    def all_copies(self) -> tuple[CopyRoute, ...]:
        """The copies that requests are sent to, whether these name the container or not."""
        return (*self.copies, *(copy for it in self.containers for copy in it.copies))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRoute:
    """The shadow variant of a model endpoint: it gets copies of `share` of the requests.

    `capture` is set if its answers are captured.
    """

    name: str
    share: float
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]
    capture: DataCapture | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRoute:
    """A component. The `copies` of an adapter are its base's copies that have it registered.

    `adapter_id` is set on adapter components and sent as X-Amzn-SageMaker-Adapter-Identifier.
    `at_zero` decides about requests without a copy, `wakeable` says if a request may start a copy
    that is not desired. `waiting_for` says why copies are missing, if that is known.
    `base_name` is the base whose copies an adapter uses.
    """

    name: str
    variant_name: str
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]
    adapter_id: str | None = None
    desired_copies: int = 0  # for an adapter, its base's
    serves_llm: bool = False  # reachable through the OpenAI routes
    at_zero: AtZero = AtZero.COMPAT
    wakeable: Wakeable = Wakeable.NO_TARGET
    waiting_for: str | None = None
    base_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedComponent:
    """A component that takes no requests because it is Failed, for `reason`."""

    name: str
    reason: str
    serves_llm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRoute:
    """A serving endpoint. Exactly one of `variants` and `components` is used.

    `failed` has components without a route, whose requests get the reason. `takes_components`
    distinguishes an endpoint that has no components yet from a model endpoint. `at_zero` decides
    about requests for its variants without a copy. `async_inference` is set if its requests
    are queued, `shadow` if requests for its variants are mirrored. `created_at` is 0.0 unless its
    requests are queued.
    """

    scope: Scope
    name: str
    takes_components: bool
    variants: tuple[VariantRoute, ...] = ()
    components: tuple[ComponentRoute, ...] = ()
    failed: tuple[FailedComponent, ...] = ()
    at_zero: AtZero = AtZero.COMPAT
    async_inference: AsyncInference | None = None
    shadow: ShadowRoute | None = None
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSnapshot:
    """Every serving endpoint. `version` is a digest of the content."""

    version: str
    endpoints: tuple[EndpointRoute, ...]
