"""Routes for the gateway, from the records: the ready copies of everything that serves.

an endpoint or component                             result
--------------------------------------------------   -------------------------------------------
endpoint not InService or Updating                   no route
component Deleting, or its base is gone              no route
component Failed                                     no route, but its name and reason
component Creating, without a ready copy             no route: AWS answers with an error, too
any other, without a ready copy                      a route without copies, with the reason
a copy that is draining, or not proven ready         in no route
a copy that has not registered an adapter            not in the adapter's route
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from hostelry.domain.at_zero import AtZero, Wakeable
from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.route_delta import (
    NO_PARTS,
    EndpointDelta,
    EndpointParts,
    after,
    build_head,
    build_snapshot,
    difference,
    is_empty,
)
from hostelry.domain.routes import (
    ComponentRoute,
    CopyRoute,
    EndpointRoute,
    FailedComponent,
    RouteSnapshot,
)
from hostelry.domain.scaling import Dimension, ScalableTarget
from hostelry.domain.scope import Scope
from hostelry.reconcile.plan.adapters import (
    build_adapter_id,
    find_changed_components,
    get_routed_adapter,
)
from hostelry.reconcile.plan.endpoint_state import (
    LIVE_COMPONENT,
    SERVING_ENDPOINT,
    EndpointState,
    find_changed_families,
)
from hostelry.reconcile.plan.variant_routes import (
    MAX_WAITING_FOR_CHARS,
    build_copy_routes,
    build_shadow_route,
    build_variant_routes,
    explain_waiting,
)
from hostelry.scaling.decide.wake import wakeable

FAILED = ComponentStatus.FAILED


class WakeRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for requests without a copy: their default answer, and which may start copies.

    `targets` are the scalable targets of components, by scope and component name.
    """

    at_zero: AtZero = AtZero.HOLD
    targets: Mapping[tuple[Scope, str], ScalableTarget] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, at_zero: AtZero, targets: Iterable[ScalableTarget]) -> "WakeRules":
        """Build the rules from the `targets` that belong to components."""
        found = [it for it in targets if it.dimension is Dimension.COPIES]
        by_name = {(it.scope, it.resource_id.partition("/")[2]): it for it in found}
        return cls(at_zero=at_zero, targets=by_name)


class RouteRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of all routes that are not in the records.

    `is_llm` decides whether an image is a built-in LLM server, which OpenAI clients can reach.
    """

    is_llm: Callable[[str], bool]
    waking: WakeRules = msgspec.field(default_factory=WakeRules)


class PlannedEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's route (None: it does not serve), and the state that it was planned from.

    `delta` leads to it from the route that was planned before. None if both are the same.
    """

    state: EndpointState
    route: EndpointRoute | None
    delta: EndpointDelta | None = None
    families: Mapping[str, "_Family"] = msgspec.field(default_factory=dict)


class _Family(msgspec.Struct, frozen=True, kw_only=True):
    """A base (None: it does not exist) with its adapters, and their routes."""

    components: Mapping[str, InferenceComponent]
    base: "_Base | None" = None
    parts: EndpointParts = NO_PARTS


NO_FAMILY = _Family(components={})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """The values that the routes of a base component and of its adapters share."""

    component: InferenceComponent
    routing: RoutingStrategy
    at_zero: AtZero
    wakeable: Wakeable
    serves_llm: bool
    why: str | None
    routes: tuple[CopyRoute, ...]
    proven: tuple[frozenset[str], ...] = field(compare=False)  # the adapters of each of `routes`

    def routes_with(self, adapter_id: str) -> tuple[CopyRoute, ...]:
        """The copies that have an adapter registered."""
        pairs = zip(self.routes, self.proven, strict=True)
        return tuple([route for route, proven in pairs if adapter_id in proven])


def plan_routes(
    states: Iterable[EndpointState], is_llm: Callable[[str], bool], waking: WakeRules | None = None
) -> RouteSnapshot:
    """Plan the routes of every endpoint that serves. Equal content has an equal version."""
    rules = RouteRules(is_llm=is_llm, waking=waking or WakeRules())
    found = [plan_endpoint_routes(it, rules).route for it in states]
    return build_snapshot(it for it in found if it is not None)


def plan_endpoint_routes(
    state: EndpointState,
    rules: RouteRules,
    before: PlannedEndpoint | None = None,
    *,
    afresh: bool = False,
) -> PlannedEndpoint:
    """Plan the route of an endpoint. `before` is its last plan.

    Families whose records are the same objects are not planned again, unless `afresh`: the rules
    may have changed.
    """
    endpoint = state.endpoint
    if endpoint is None or endpoint.status not in SERVING_ENDPOINT:
        return PlannedEndpoint(state=state, route=None)
    if before is None or not _has_kind(before.route, endpoint):
        before = PlannedEndpoint(state=state, route=None)
    changed = _plan_changed(state, endpoint, rules, before, afresh=afresh)
    pairs = [(before.families.get(it, NO_FAMILY).parts, new.parts) for it, new in changed.items()]
    delta = difference(_build_head(state, endpoint, rules.waking), pairs)
    families = {**before.families, **changed}
    for name, family in changed.items():
        if family is NO_FAMILY:
            del families[name]
    if before.route is not None and is_empty(delta) and build_head(before.route) == delta.head:
        return PlannedEndpoint(state=state, route=before.route, families=families)
    delta = replace(delta, is_whole=before.route is None)
    return PlannedEndpoint(
        state=state, route=after(before.route, delta), delta=delta, families=families
    )


def _has_kind(route: EndpointRoute | None, endpoint: Endpoint) -> bool:
    return route is not None and route.takes_components == endpoint.takes_components


def _build_head(state: EndpointState, endpoint: Endpoint, waking: WakeRules) -> EndpointRoute:
    """The endpoint's route without components."""
    at_zero = endpoint.at_zero or waking.at_zero
    if endpoint.takes_components:
        return EndpointRoute(
            scope=endpoint.scope, name=endpoint.name, takes_components=True, at_zero=at_zero
        )
    queued = endpoint.active.config.async_inference
    return EndpointRoute(
        scope=endpoint.scope,
        name=endpoint.name,
        takes_components=False,
        variants=build_variant_routes(state, endpoint),
        at_zero=at_zero,
        async_inference=queued,
        created_at=0.0 if queued is None else endpoint.created_at,
        shadow=build_shadow_route(state, endpoint),
    )


def _plan_changed(
    state: EndpointState,
    endpoint: Endpoint,
    rules: RouteRules,
    before: PlannedEndpoint,
    *,
    afresh: bool,
) -> dict[str, _Family]:
    """The families that may have other routes than before. NO_FAMILY if one is gone."""
    if not endpoint.takes_components:
        return {}
    had, found = before.state, dict[str, _Family]()
    same = before.route is not None and not afresh and had.endpoint is endpoint
    same = same and had.instances is state.instances
    every: set[str | None] = {*before.families, *state.families}
    for name in find_changed_families(had, state) if same else every:
        if name is None:  # the copies of a model
            continue
        known, components = before.families.get(name, NO_FAMILY), state.families.get(name)
        found[name] = NO_FAMILY
        if components is not None:
            base = _plan_base(state, endpoint, rules, components.get(name), known.base)
            found[name] = _plan_family(components, base, known)
    return found


def _plan_family(
    components: Mapping[str, InferenceComponent], base: _Base | None, known: _Family
) -> _Family:
    """The routes of a base and its adapters. Routes without a change are kept from `known`."""
    if base is None or known.base is None or base != known.base:
        names = known.components.keys() | components.keys()
    else:
        names = find_changed_components(
            known.components, components, known.base.proven, base.proven
        )
    routes, failed = dict(known.parts.components), dict(known.parts.failed)
    for name in names:
        old, component = routes.pop(name, None), components.get(name)
        failed.pop(name, None)
        if component is None:
            continue
        if component.status is FAILED:
            failed[name] = _describe_failed(component, base)
        elif base is not None and component.status in LIVE_COMPONENT:
            route = _build_route(component, base)
            if route is not None:
                routes[name] = route if old != route or old is None else old
    parts = EndpointParts(components=routes, failed=failed)
    return _Family(components=components, base=base, parts=parts)


def _plan_base(
    state: EndpointState,
    endpoint: Endpoint,
    rules: RouteRules,
    component: InferenceComponent | None,
    before: _Base | None,
) -> _Base | None:
    """A base component with its copies. None if it is not a base. Equal copies stay the same."""
    if component is None or component.spec is None:
        return None
    waking = rules.waking
    copies = state.list_variant_copies(
        endpoint.active.generation, component.variant_name, component.name
    )
    proven = {it.spec.id: it.proven_adapters for it in copies}
    known = {} if before is None else {it.id: it for it in before.routes}
    routes = [it if it != known.get(it.id) else known[it.id] for it in build_copy_routes(copies)]
    return _Base(
        component=component,
        routing=_get_routing(endpoint, component.variant_name),
        at_zero=component.at_zero or endpoint.at_zero or waking.at_zero,
        wakeable=wakeable(waking.targets.get((component.scope, component.name))),
        serves_llm=rules.is_llm(component.spec.container.image),
        why=explain_waiting(component.placement_note, copies),
        routes=tuple(routes),
        proven=tuple([proven[it.id] for it in routes]),
    )


def _build_route(component: InferenceComponent, base: _Base) -> ComponentRoute | None:
    """The route of a base or of its adapter. None before it has a copy for the first time."""
    owner, adapter = base.component, get_routed_adapter(component)
    routed_id = None if adapter is None else build_adapter_id(component.name, adapter)
    to = base.routes if routed_id is None else base.routes_with(routed_id)
    if not to and component.status is ComponentStatus.CREATING:
        return None
    failure = component.failure_reason or owner.failure_reason
    why = base.why or (None if failure is None else failure[:MAX_WAITING_FOR_CHARS])
    return ComponentRoute(
        name=component.name,
        variant_name=owner.variant_name,
        routing=base.routing,
        copies=to,
        adapter_id=routed_id,
        desired_copies=owner.desired_copies,
        serves_llm=base.serves_llm,
        at_zero=component.at_zero or base.at_zero,
        wakeable=base.wakeable,
        waiting_for=None if to or not owner.desired_copies else why,
        base_name=None if routed_id is None else owner.name,
    )


def _describe_failed(component: InferenceComponent, base: _Base | None) -> FailedComponent:
    return FailedComponent(
        name=component.name,
        reason=(component.failure_reason or "No reason is known.")[:MAX_WAITING_FOR_CHARS],
        serves_llm=base is not None and base.serves_llm,
    )


def _get_routing(endpoint: Endpoint, variant_name: str) -> RoutingStrategy:
    variants = [it.variant for it in endpoint.active.variants]
    named = (it.routing for it in variants if it.name == variant_name)
    return next(named, RoutingStrategy.RANDOM)
