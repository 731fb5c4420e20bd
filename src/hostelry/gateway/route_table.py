"""Index of a route snapshot: every look-up of a request is one dictionary access."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hostelry.domain.at_zero import AtZero, Wakeable
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.load import LoadKey
from hostelry.domain.route_delta import (
    EndpointDelta,
    EndpointId,
    RouteDelta,
    applied,
    endpoint_id,
    head_of,
)
from hostelry.domain.routes import (
    ComponentRoute,
    CopyRoute,
    EndpointRoute,
    FailedComponent,
    RouteSnapshot,
    VariantRoute,
)
from hostelry.domain.scope import Scope
from hostelry.domain.serverless import ServerlessConfig

EMPTY_SNAPSHOT = RouteSnapshot(version="", endpoints=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleets:
    """The copies of a variant's two fleets, and the share of its requests for the new one."""

    share: float
    old: tuple[CopyRoute, ...]
    new: tuple[CopyRoute, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """The copies of a shadow variant, and the share of requests that they get copies of.

    `key` is the name that these are counted under; `capture` is set where answers are captured.
    """

    key: LoadKey
    share: float
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]
    capture: DataCapture | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The copies of one variant or component.

    `component_name` is None on a model endpoint, which always has a desired copy. `adapter_id` and
    `adapter_alias` are set for an adapter. `key` is the name that its requests are counted under;
    `base_key`, for an adapter, is the base that has the copies. On a serverless variant a copy is
    an environment, which takes one request at a time; `concurrency_id` counts those of all. While
    traffic shifts, `fleets` divides the copies. `capture` is set where requests are captured;
    `shadow` is where they are mirrored to. `container` is the one that the request names by
    TargetContainerHostname, whose copies these are.
    """

    scope: Scope
    endpoint_name: str
    variant_name: str
    component_name: str | None
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]
    desired_copies: int = 0
    adapter_id: str | None = None
    adapter_alias: str | None = None
    serves_llm: bool = False
    at_zero: AtZero = AtZero.COMPAT
    wakeable: Wakeable = Wakeable.NO_TARGET
    waiting_for: str | None = None
    key: LoadKey
    base_key: LoadKey | None = None
    serverless: ServerlessConfig | None = None
    fleets: Fleets | None = None
    capture: DataCapture | None = None
    shadow: Shadow | None = None
    container: str | None = None

    @property
    def is_pipeline(self) -> bool:
        """Whether its copies are the first of several containers; all of a deployment are alike."""
        return bool(self.copies) and bool(self.copies[0].further)

    @property
    def begins_with_models(self) -> bool:
        """Whether a request's TargetModel is for the first container, not for one that follows."""
        return not self.is_pipeline or self.copies[0].models_address is not None

    @property
    def concurrency_id(self) -> str:
        """The name that all requests of a serverless variant are counted under, among copies."""
        scope = self.scope
        return f"serverless/{scope.account}/{scope.region}/{self.endpoint_name}/{self.variant_name}"


class RouteTable:
    """Immutable index of one snapshot; `changed` makes the next one's of it."""

    def __init__(self, snapshot: RouteSnapshot) -> None:
        self.version = snapshot.version
        self._ids: dict[EndpointId, frozenset[str]] = {}
        self._endpoints: dict[tuple[str, str, str], EndpointRoute] = {}
        self._components: dict[tuple[str, str, str], Destination] = {}
        self._variants: dict[tuple[str, str, str, str], Destination] = {}
        self._containers: dict[tuple[str, str, str, str, str], Destination] = {}
        self._llms: dict[tuple[str, str], list[Destination]] = {}
        self._serverless: dict[tuple[str, str, str], Destination] = {}
        self._failed: dict[tuple[str, str, str], FailedComponent] = {}
        self._shadows: dict[tuple[str, str, str, str], Shadow] = {}
        for endpoint in snapshot.endpoints:
            self._add_head(endpoint)
            self._add_components(endpoint, endpoint.components, endpoint.failed)

    def changed(self, delta: RouteDelta) -> "RouteTable":
        """The index of the routes with the changes applied.

        Raises ValueError where they do not lead to the version that `delta` names.
        """
        endpoints = applied(self._endpoints, self.version, delta)
        after = self._copied(delta.version)
        added: list[EndpointDelta] = []
        for address in delta.removed:
            after._drop(self._endpoints.get(address))
        for change in delta.changed:  # all that goes first: a name may move between endpoints
            known = self._endpoints.get(endpoint_id(change.head))
            if known is None or change.is_whole or head_of(known) != change.head:
                after._drop(known)
                now = endpoints[endpoint_id(change.head)]
                change = replace(change, head=now, components=now.components, failed=now.failed)
            else:
                after._drop_parts(change)
            added.append(change)
        after._endpoints = endpoints
        for change in added:
            after._add_head(endpoints[endpoint_id(change.head)])
            after._add_components(change.head, change.components, change.failed)
        return after

    def snapshot(self) -> RouteSnapshot:
        """The routes as they are published."""
        ordered = sorted(self._endpoints.values(), key=endpoint_id)
        return RouteSnapshot(version=self.version, endpoints=tuple(ordered))

    def endpoint(self, scope: Scope, name: str) -> EndpointRoute | None:
        """The endpoint of that name, or None."""
        return self._endpoints.get((scope.account, scope.region, name))

    def endpoints(self) -> Iterator[EndpointRoute]:
        """Every endpoint."""
        yield from self._endpoints.values()

    def component(self, scope: Scope, name: str) -> Destination | None:
        """The inference component of that name, or None."""
        return self._components.get((scope.account, scope.region, name))

    def failed(self, scope: Scope, name: str) -> FailedComponent | None:
        """The component of that name where it is Failed, else None."""
        return self._failed.get((scope.account, scope.region, name))

    def variant(
        self, endpoint: EndpointRoute, variant: VariantRoute, container: str | None = None
    ) -> Destination:
        """The destination of that variant of a model endpoint, or of one of its containers."""
        key = (endpoint.scope.account, endpoint.scope.region, endpoint.name, variant.name)
        return self._variants[key] if container is None else self._containers[*key, container]

    def serverless(self, scope: Scope, endpoint_name: str) -> Destination | None:
        """The serverless variant of that endpoint, which is its only one; None on others."""
        if not self._serverless:
            return None
        return self._serverless.get((scope.account, scope.region, endpoint_name))

    def shadow(self, address: tuple[str, str, str, str]) -> Shadow | None:
        """The shadow at that account, region, endpoint and variant, or None."""
        return self._shadows.get(address)

    def llm(self, scope: Scope, name: str) -> Destination | None:
        """The component that serves an LLM under that name; one in the scope's region goes first.

        OpenAI clients know no regions, so any region of the account will do.
        """
        found = self._llms.get((scope.account, name), [])
        return next(
            (it for it in found if it.scope.region == scope.region), next(iter(found), None)
        )

    def llms(self, account: str) -> Iterator[Destination]:
        """Every component of the account that serves an LLM, by name."""
        for (owner, _), found in sorted(self._llms.items()):
            if owner == account:
                yield found[0]

    def counted_ids(self) -> set[str]:
        """What requests are counted on: every copy, and all of a serverless variant together."""
        for address, endpoint in self._endpoints.items():
            if address not in self._ids:
                self._ids[address] = _copy_ids(endpoint)
        copies = set[str]().union(*self._ids.values())
        return copies | {it.concurrency_id for it in self._serverless.values()}

    def _copied(self, version: str) -> "RouteTable":
        """A table of that version with the same content, to be changed."""
        after = RouteTable(RouteSnapshot(version=version, endpoints=()))
        after._endpoints = self._endpoints.copy()
        after._ids = self._ids.copy()
        after._components = self._components.copy()
        after._variants = self._variants.copy()
        after._containers = self._containers.copy()
        after._llms = self._llms.copy()
        after._serverless = self._serverless.copy()
        after._failed = self._failed.copy()
        after._shadows = self._shadows.copy()
        return after

    def _add_head(self, endpoint: EndpointRoute) -> None:
        scope = endpoint.scope
        self._endpoints[scope.account, scope.region, endpoint.name] = endpoint
        shadow = _shadow(endpoint)
        if shadow is not None:
            name = shadow.key.variant_name
            self._shadows[scope.account, scope.region, endpoint.name, name] = shadow
        for variant in endpoint.variants:
            key = (scope.account, scope.region, endpoint.name, variant.name)
            destination = self._variants[key] = _variant_destination(endpoint, variant, shadow)
            for container in variant.containers:
                self._containers[*key, container.hostname] = replace(
                    destination,
                    copies=container.copies,
                    container=container.hostname,
                    fleets=_fleets(replace(variant, copies=container.copies)),
                )
            if variant.serverless is not None:
                self._serverless[scope.account, scope.region, endpoint.name] = destination

    def _add_components(
        self,
        endpoint: EndpointRoute,
        components: Iterable[ComponentRoute],
        failed: Iterable[FailedComponent],
    ) -> None:
        scope = endpoint.scope
        for one in failed:
            self._failed[scope.account, scope.region, one.name] = one
        for component in components:
            destination = _component_destination(endpoint, component)
            self._components[scope.account, scope.region, component.name] = destination
            if component.serves_llm:
                found = [*self._llms_beside(scope, component.name), destination]
                found.sort(key=lambda it: it.scope.region)
                self._llms[scope.account, component.name] = found

    def _llms_beside(self, scope: Scope, name: str) -> list[Destination]:
        """The LLMs of the account under that name in other regions."""
        found = self._llms.get((scope.account, name), [])
        return [it for it in found if it.scope.region != scope.region]

    def _drop(self, endpoint: EndpointRoute | None) -> None:
        """Remove everything of an endpoint."""
        if endpoint is None:
            return
        scope, name = endpoint.scope, endpoint.name
        address = (scope.account, scope.region, name)
        self._endpoints.pop(address, None)
        self._ids.pop(address, None)
        self._serverless.pop(address, None)
        for variant in endpoint.variants:
            self._variants.pop((*address, variant.name), None)
            for container in variant.containers:
                self._containers.pop((*address, variant.name, container.hostname), None)
        if endpoint.shadow is not None:
            self._shadows.pop((*address, endpoint.shadow.name), None)
        for component in endpoint.components:
            self._drop_component(scope, component.name)
        for failed in endpoint.failed:
            self._failed.pop((scope.account, scope.region, failed.name), None)

    def _drop_parts(self, change: EndpointDelta) -> None:
        """Remove the parts of an endpoint that changed."""
        scope, address = change.head.scope, endpoint_id(change.head)
        self._ids.pop(address, None)
        for name in (*change.gone, *(it.name for it in change.components)):
            self._drop_component(scope, name)
        for name in (*change.recovered, *(it.name for it in change.failed)):
            self._failed.pop((scope.account, scope.region, name), None)

    def _drop_component(self, scope: Scope, name: str) -> None:
        found = self._components.pop((scope.account, scope.region, name), None)
        if found is not None and found.serves_llm:
            others = self._llms_beside(scope, name)
            if others:
                self._llms[scope.account, name] = others
            else:
                self._llms.pop((scope.account, name), None)


def _copy_ids(endpoint: EndpointRoute) -> frozenset[str]:
    """The ids of all copies that requests for an endpoint are sent to; not those of its shadow."""
    copies = (
        *(copy for it in endpoint.variants for copy in it.all_copies),
        *(copy for it in endpoint.components for copy in it.copies),
    )
    return frozenset(counted.id for copy in copies for counted in (copy, *copy.further))


def _shadow(endpoint: EndpointRoute) -> Shadow | None:
    route = endpoint.shadow
    if route is None:
        return None
    return Shadow(
        key=LoadKey(scope=endpoint.scope, endpoint_name=endpoint.name, variant_name=route.name),
        share=route.share,
        routing=route.routing,
        copies=route.copies,
        capture=route.capture,
    )


def _variant_destination(
    endpoint: EndpointRoute, variant: VariantRoute, shadow: Shadow | None
) -> Destination:
    return Destination(
        scope=endpoint.scope,
        endpoint_name=endpoint.name,
        variant_name=variant.name,
        component_name=None,
        routing=variant.routing,
        copies=variant.copies,
        desired_copies=0 if variant.serverless else 1,
        at_zero=AtZero.HOLD if variant.serverless else endpoint.at_zero,
        wakeable=Wakeable.YES if variant.serverless else Wakeable.NO_TARGET,
        waiting_for=variant.waiting_for,
        serverless=variant.serverless,
        fleets=_fleets(variant),
        capture=variant.capture,
        shadow=shadow,
        key=LoadKey(scope=endpoint.scope, endpoint_name=endpoint.name, variant_name=variant.name),
    )


def _fleets(variant: VariantRoute) -> Fleets | None:
    if variant.shift is None:
        return None
    new_ids = set(variant.shift.new_ids)
    return Fleets(
        share=variant.shift.share,
        old=tuple(it for it in variant.copies if it.id not in new_ids),
        new=tuple(it for it in variant.copies if it.id in new_ids),
    )


def _component_destination(endpoint: EndpointRoute, component: ComponentRoute) -> Destination:
    key = LoadKey(
        scope=endpoint.scope,
        endpoint_name=endpoint.name,
        variant_name=component.variant_name,
        component_name=component.name,
    )
    base_name = component.base_name
    return Destination(
        scope=endpoint.scope,
        endpoint_name=endpoint.name,
        variant_name=component.variant_name,
        component_name=component.name,
        routing=component.routing,
        copies=component.copies,
        desired_copies=component.desired_copies,
        adapter_id=component.adapter_id,
        adapter_alias=component.name if component.adapter_id is not None else None,
        serves_llm=component.serves_llm,
        at_zero=component.at_zero,
        wakeable=component.wakeable,
        waiting_for=component.waiting_for,
        key=key,
        base_key=None if base_name is None else replace(key, component_name=base_name),
    )
