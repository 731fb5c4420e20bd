"""Routes of the gateway: the copies that serve each name.

A snapshot is complete and replaces the snapshot before. Control pushes it, and each gateway keeps
it on disk. It contains only copies that have proven ready.
"""

from dataclasses import dataclass, field

import msgspec

from hostelry.domain.async_request import AsyncInference
from hostelry.domain.at_zero import AtZero, Wakeable
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.scope import Scope
from hostelry.domain.serverless import ServerlessConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRoute:
    """A ready copy. `address` is ``http://host:port``, `key` the secret that requests carry.

    At `models_address` the models of a multi-model copy are leased. While an update is under way,
    `config` is the copy's endpoint configuration. If its model has several containers, `container`
    is the name of this container, and `log_stream` the stream of its output. In a pipeline,
    `further` has the copies of the other containers on the same instance, in order.
    """

    id: str
    address: str
    key: str | None = field(default=None, repr=False)
    models_address: str | None = None
    config: str | None = None
    container: str | None = None
    log_stream: str | None = None
    further: tuple["CopyRoute", ...] = ()


class ContainerRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A container that requests name by TargetContainerHostname, and its ready copies."""

    hostname: str
    copies: tuple[CopyRoute, ...]


class FleetShift(msgspec.Struct, frozen=True, kw_only=True):
    """The new fleet's share of a variant's requests, from 0 to 1, and the copies of this fleet.

    If a fleet has no copies, the other fleet gets its requests.
    """

    share: float
    new_ids: tuple[str, ...]


class VariantRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A variant of a model endpoint. `weight` is its share of requests without TargetVariant.

    `waiting_for` says why it has no copy, if that is known. With `is_multi_model` requests name the
    model. If `serverless` is set, each copy is an environment, which takes one request at a time,
    and more environments start as requests come. While `shift` is set, `copies` includes both
    fleets. `capture` is set if its requests are captured. If requests name the container,
    `containers` has all containers, and `copies` is empty.
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
        """All copies that requests are sent to, including those in `containers`."""
        return (*self.copies, *(copy for it in self.containers for copy in it.copies))


class ShadowRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The shadow variant of a model endpoint: it gets copies of `share` of the requests.

    `capture` is set if its answers are captured.
    """

    name: str
    share: float
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]
    capture: DataCapture | None = None


class ComponentRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A component. The `copies` of an adapter are its base's copies that have it registered.

    `adapter_id` is set for adapter components, and sent as X-Amzn-SageMaker-Adapter-Identifier.
    `at_zero` decides about requests without a copy. `wakeable` says whether a request may start a
    copy if none is desired. `waiting_for` says why copies are missing, if that is known.
    `base_name` is the base whose copies an adapter uses.
    """

    name: str
    variant_name: str
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]
    adapter_id: str | None = None
    desired_copies: int = 0  # for an adapter, its base's number
    serves_llm: bool = False  # can be called through the OpenAI routes
    at_zero: AtZero = AtZero.COMPAT
    wakeable: Wakeable = Wakeable.NO_TARGET
    waiting_for: str | None = None
    base_name: str | None = None


class FailedComponent(msgspec.Struct, frozen=True, kw_only=True):
    """A component that takes no requests because it is Failed, for `reason`."""

    name: str
    reason: str
    serves_llm: bool = False


class EndpointRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A serving endpoint. Exactly one of `variants` and `components` is used.

    `failed` has components without a route, with the reason that requests get. `takes_components`
    distinguishes an endpoint that has no components yet from a model endpoint. `at_zero` decides
    about requests for its variants without a copy. `async_inference` is set if its requests are
    queued, `shadow` if requests for its variants are mirrored. `created_at` is 0.0 unless its
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


class RouteSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Every serving endpoint. `version` is a digest of the content."""

    version: str
    endpoints: tuple[EndpointRoute, ...]
