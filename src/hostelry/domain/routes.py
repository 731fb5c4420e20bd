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
    """A ready copy; `address` is ``http://host:port``, `key` the secret that requests carry.

    `models_address`, of a multi-model copy, is where its models are leased. `config` is its
    endpoint configuration, while an update to another one is under way. Where its model has several
    containers `container` is the name of this one, and `log_stream` where its output goes;
    `further` are the copies of a pipeline's other containers on its instance, in their order.
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
    """A variant of a model endpoint; `weight` is its share of requests without TargetVariant.

    `waiting_for` is why it has no copy, where that is known. With `is_multi_model` requests name
    the model. Where `serverless` is set, each copy is an environment: it takes one request at a
    time, and more are started as requests come. `copies` are those of both fleets while `shift` is
    set. `capture` is set where its requests are captured. Where requests name the container,
    `containers` has all of them, and `copies` none.
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

    `capture` is set where its answers are captured.
    """

    name: str
    share: float
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]
    capture: DataCapture | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRoute:
    """A component; `copies` are its own, or its base's copies that have the adapter registered.

    `adapter_id` is set on adapter components and sent as X-Amzn-SageMaker-Adapter-Identifier.
    `at_zero` is what a request gets while there is no copy, `wakeable` whether it may start one
    where none is desired; `waiting_for` is why there is none, where that is known. `base_name` is
    the base whose copies an adapter uses.
    """

    name: str
    variant_name: str
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]
    adapter_id: str | None = None
    desired_copies: int = 0  # an adapter: its base's; above 0 without copies: they come up
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
    """An endpoint that serves; exactly one of `variants` and `components` is used.

    `failed` are components without a route, whose requests get the reason.
    `takes_components` distinguishes an endpoint without components yet from a model endpoint.
    `at_zero` is what requests for its variants get while there is no copy. `async_inference` is set
    where its requests are queued, `shadow` where requests for its variants are mirrored.
    `created_at` is of an endpoint whose requests are queued; 0.0 of others.
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
    """Every endpoint that serves; `version` is a digest of the content."""

    version: str
    endpoints: tuple[EndpointRoute, ...]
