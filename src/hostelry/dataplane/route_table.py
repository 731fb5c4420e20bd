"""Index of a route snapshot: every look-up of a request is one dictionary access."""

from collections.abc import Iterable, Iterator, KeysView, Sequence
from copy import copy

import msgspec
from msgspec.structs import replace

from hostelry.dataplane.endpoint_entry import EndpointEntry
from hostelry.domain.at_zero import AtZero, Wakeable
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.load import LoadKey
from hostelry.domain.route_delta import (
    EndpointDelta,
    EndpointId,
    RouteDelta,
    endpoint_id,
    endpoint_total,
    get_total,
    get_version,
    total_change,
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


class Fleets(msgspec.Struct, frozen=True, kw_only=True):
    """The copies of a variant's two fleets, and the share of requests for the new fleet."""

    share: float
    old: tuple[CopyRoute, ...]
    new: tuple[CopyRoute, ...]


class Shadow(msgspec.Struct, frozen=True, kw_only=True):
    """The copies of a shadow variant, and the share of requests that they get a copy of.

    `key` is the name that these requests are counted under. `capture` is set if answers are
    captured.
    """

    key: LoadKey
    share: float
    routing: RoutingStrategy
    copies: tuple[CopyRoute, ...]
    capture: DataCapture | None = None


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """The copies of one variant or component.

    `component_name` is None on a model endpoint, which always has a desired copy. `adapter_id` and
    `adapter_alias` are set for an adapter. `key` is the name that the requests are counted under.
    Of an adapter, `base_key` is the name of the base component, which has the copies. On a
    serverless variant, a copy is an environment, which takes one request at a time.
    `concurrency_id` counts the requests of all its environments. While traffic shifts, `fleets`
    divides the copies. `capture` is set if requests are captured, `shadow` if they are mirrored.
    `container` is the container that the request names by TargetContainerHostname. `copies` are its
    copies.
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
        """True if its copies are the first of several containers."""
        return bool(self.copies) and bool(self.copies[0].further)

    @property
    def begins_with_models(self) -> bool:
        """True if a request's TargetModel is for the first container."""
        return not self.is_pipeline or self.copies[0].models_address is not None

    @property
    def concurrency_id(self) -> str:
        """The name that all requests of a serverless variant are counted under."""
        scope = self.scope
        return f"serverless/{scope.account}/{scope.region}/{self.endpoint_name}/{self.variant_name}"


OnEndpoint = tuple[str, ComponentRoute]  # the endpoint's name, and a component of it


class RouteTable:
    """Index of the routes of one version. `apply` makes the index of the next version."""

    def __init__(self, snapshot: RouteSnapshot) -> None:
        self.version = snapshot.version
        self._endpoints: dict[EndpointId, EndpointEntry] = {}
        self._counted: dict[str, int] = {}  # the number of routes with the copy of each id
        # By account and region, then name. A destination is made once it is asked for, because a
        # process never needs most of a hundred thousand adapters.
        self._components: dict[tuple[str, str], dict[str, Destination | OnEndpoint]] = {}
        self._variants: dict[tuple[str, str, str, str], Destination] = {}
        self._containers: dict[tuple[str, str, str, str, str], Destination] = {}
        self._serverless: dict[tuple[str, str, str], Destination] = {}
        self._failed: dict[tuple[str, str, str], FailedComponent] = {}
        self._shadows: dict[tuple[str, str, str, str], Shadow] = {}
        for endpoint in snapshot.endpoints:
            self._add(endpoint)

    def apply(self, delta: RouteDelta) -> "RouteTable":
        """Apply changes, and return the index of the newer routes.

        The time depends on the changes alone. The indexes share their content, so this table finds
        newer routes too. Raises ValueError, and changes nothing, if `delta` does not lead to the
        version that it names, or names an endpoint twice.
        """
        self._verify(delta)
        after = copy(self)
        after.version = delta.version
        for address in delta.removed:
            after._drop(address)
        for change in delta.changed:  # first, because a name may move between endpoints
            after._drop_changed(change)
        for change in delta.changed:
            after._add_changed(change)
        return after

    @property
    def num_components(self) -> int:
        """Number of components, including adapters."""
        return sum(map(len, self._components.values()))

    def snapshot(self) -> RouteSnapshot:
        """The routes as control publishes them."""
        ordered = tuple(self._endpoints[it].route() for it in sorted(self._endpoints))
        return RouteSnapshot(version=self.version, endpoints=ordered)

    def endpoint(self, scope: Scope, name: str) -> EndpointRoute | None:
        """Find the endpoint, without its components."""
        found = self._endpoints.get((scope.account, scope.region, name))
        return None if found is None else found.head

    def endpoints(self) -> Iterator[EndpointRoute]:
        """Every endpoint, without its components."""
        for found in self._endpoints.values():
            yield found.head

    def component(self, scope: Scope, name: str) -> Destination | None:
        """Find the inference component."""
        there = self._components.get((scope.account, scope.region))
        if there is None:
            return None
        found = there.get(name)
        if not isinstance(found, tuple):
            return found
        made = there[name] = _component_destination(scope, *found)
        return made

    def find_failed(self, scope: Scope, name: str) -> FailedComponent | None:
        """Find the component if its status is Failed."""
        return self._failed.get((scope.account, scope.region, name))

    def find_failed_on(self, endpoint: EndpointRoute, name: str) -> FailedComponent | None:
        """Find the component of `endpoint` if its status is Failed."""
        entry = self._endpoints.get(endpoint_id(endpoint))
        return None if entry is None else entry.find_failed(name)

    def variant(
        self, endpoint: EndpointRoute, variant: VariantRoute, container: str | None = None
    ) -> Destination:
        """Find a variant of a model endpoint, or one of the variant's containers."""
        key = (endpoint.scope.account, endpoint.scope.region, endpoint.name, variant.name)
        return self._variants[key] if container is None else self._containers[*key, container]

    def serverless(self, scope: Scope, endpoint_name: str) -> Destination | None:
        """Find the serverless variant of an endpoint, which is its only variant."""
        if not self._serverless:
            return None
        return self._serverless.get((scope.account, scope.region, endpoint_name))

    def shadow(self, address: tuple[str, str, str, str]) -> Shadow | None:
        """Find a shadow by account, region, endpoint and variant."""
        return self._shadows.get(address)

    def llm(self, scope: Scope, name: str) -> Destination | None:
        """Find the component that serves an LLM under `name`, in any region of the account.

        OpenAI's clients know no regions. The scope's region goes first.
        """
        account = scope.account
        others = (region for owner, region in sorted(self._components) if owner == account)
        for region in (scope.region, *others):
            found = self.component(Scope(account, region), name)
            if found is not None and found.serves_llm:
                return found
        return None

    def llms(self, account: str) -> list[str]:
        """The names of the account's components that serve an LLM, sorted."""
        found = set[str]()
        for (owner, _), there in self._components.items():
            for name, known in there.items() if owner == account else ():
                part = known[1] if isinstance(known, tuple) else known
                if part.serves_llm:
                    found.add(name)
        return sorted(found)

    def counted_ids(self) -> KeysView[str]:
        """The ids that requests are counted on: every copy, and each serverless variant.

        The ids follow the newest routes.
        """
        return self._counted.keys()

    def _verify(self, delta: RouteDelta) -> None:
        """Raise ValueError if the changes do not lead to the version that they name.

        The sum over all parts shows whether both sides had the same parts before.
        """
        if self.version != delta.since:
            raise ValueError(f"changes since {delta.since!r} do not apply to {self.version!r}")
        changed = {endpoint_id(it.head): it for it in delta.changed}
        if len(changed) < len(delta.changed) or changed.keys() & set(delta.removed):
            raise ValueError(f"the changes since {delta.since!r} name an endpoint twice")
        total = get_total(self.version)
        for address in set(delta.removed) & self._endpoints.keys():
            total -= endpoint_total(self._endpoints[address].route())
        for address, change in changed.items():
            entry = self._endpoints.get(address)
            if entry is None or change.is_whole:
                total += total_change(None if entry is None else entry.route(), change)
            else:
                total += entry.total_change(change)
        if get_version(total) != delta.version:
            raise ValueError(
                f"the changes since {delta.since!r} lead to {get_version(total)!r}, not to"
                f" {delta.version!r}"
            )

    def _add_changed(self, change: EndpointDelta) -> None:
        """Add the changed parts of an endpoint. `_drop_changed` removed the old parts."""
        entry = self._endpoints.get(endpoint_id(change.head))
        if entry is None:
            self._add(replace(change.head, components=change.components, failed=change.failed))
            return
        if entry.head != change.head:
            self._add_head(change.head)
        entry.apply(change)
        self._add_components(change.head, change.components, change.failed)

    def _add(self, endpoint: EndpointRoute) -> None:
        self._endpoints[endpoint_id(endpoint)] = EndpointEntry(endpoint)
        self._add_head(endpoint)
        self._add_components(endpoint, endpoint.components, endpoint.failed)

    def _add_head(self, endpoint: EndpointRoute) -> None:
        scope = endpoint.scope
        shadow = _shadow(endpoint)
        if shadow is not None:
            name = shadow.key.variant_name
            self._shadows[scope.account, scope.region, endpoint.name, name] = shadow
        for variant in endpoint.variants:
            key = (scope.account, scope.region, endpoint.name, variant.name)
            destination = self._variants[key] = _variant_destination(endpoint, variant, shadow)
            self._count(variant.all_copies)
            for container in variant.containers:
                self._containers[*key, container.hostname] = replace(
                    destination,
                    copies=container.copies,
                    container=container.hostname,
                    fleets=_fleets(replace(variant, copies=container.copies)),
                )
            if variant.serverless is not None:
                self._serverless[scope.account, scope.region, endpoint.name] = destination
                self._count_id(destination.concurrency_id, 1)

    def _add_components(
        self,
        endpoint: EndpointRoute,
        components: Sequence[ComponentRoute],
        failed: Iterable[FailedComponent],
    ) -> None:
        scope = endpoint.scope
        for one in failed:
            self._failed[scope.account, scope.region, one.name] = one
        place = (scope.account, scope.region)
        there = self._components.setdefault(place, {}) if components else {}
        for component in components:
            there[component.name] = endpoint.name, component
            self._count(component.copies)

    def _drop(self, address: EndpointId) -> None:
        """Remove an endpoint."""
        entry = self._endpoints.pop(address, None)
        if entry is not None:
            self._drop_head(entry.head)
            self._drop_components(entry.head.scope, entry.components, entry.failed)

    def _drop_changed(self, change: EndpointDelta) -> None:
        """Remove the changed parts of an endpoint."""
        address = endpoint_id(change.head)
        entry = self._endpoints.get(address)
        if entry is None:
            return
        if change.is_whole:
            self._drop(address)
            return
        if entry.head != change.head:
            self._drop_head(entry.head)
        self._drop_components(change.head.scope, *entry.find_replaced(change))

    def _drop_head(self, endpoint: EndpointRoute) -> None:
        address = endpoint_id(endpoint)
        self._serverless.pop(address, None)
        for variant in endpoint.variants:
            destination = self._variants.pop((*address, variant.name))
            if destination.serverless is not None:
                self._count_id(destination.concurrency_id, -1)
            self._count(variant.all_copies, -1)
            for container in variant.containers:
                self._containers.pop((*address, variant.name, container.hostname), None)
        if endpoint.shadow is not None:
            self._shadows.pop((*address, endpoint.shadow.name), None)

    def _drop_components(
        self, scope: Scope, components: Iterable[ComponentRoute], failed: Iterable[FailedComponent]
    ) -> None:
        place = (scope.account, scope.region)
        there = self._components.get(place, {})
        for component in components:
            there.pop(component.name, None)
            self._count(component.copies, -1)
        if not there:
            self._components.pop(place, None)
        for one in failed:
            self._failed.pop((scope.account, scope.region, one.name), None)

    def _count(self, copies: Iterable[CopyRoute], by: int = 1) -> None:
        for one in copies:
            for counted in (one, *one.further):
                self._count_id(counted.id, by)

    def _count_id(self, id: str, by: int) -> None:
        now = self._counted.get(id, 0) + by
        if now:
            self._counted[id] = now
        else:
            del self._counted[id]


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


def _component_destination(
    scope: Scope, endpoint_name: str, component: ComponentRoute
) -> Destination:
    key = LoadKey(
        scope=scope,
        endpoint_name=endpoint_name,
        variant_name=component.variant_name,
        component_name=component.name,
    )
    base_name = component.base_name
    return Destination(
        scope=scope,
        endpoint_name=endpoint_name,
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
