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

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hostelry.domain.at_zero import AtZero
from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.route_delta import snapshot_of
from hostelry.domain.routes import (
    ComponentRoute,
    CopyRoute,
    EndpointRoute,
    FailedComponent,
    RouteSnapshot,
)
from hostelry.domain.scaling import Dimension, ScalableTarget
from hostelry.domain.scope import Scope
from hostelry.reconcile.plan.adapters import adapter_id, routed_adapter
from hostelry.reconcile.plan.endpoint_state import (
    LIVE_COMPONENT,
    SERVING_ENDPOINT,
    EndpointState,
)
from hostelry.reconcile.plan.variant_routes import (
    MAX_WAITING_FOR_CHARS,
    copy_routes,
    shadow_route,
    variant_routes,
    waiting_for,
)
from hostelry.scaling_policy.wake import wakeable

FAILED = ComponentStatus.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeRules:
    """Rules for requests without a copy: what they get by default, and which may start copies.

    `targets` are the scalable targets of components, by scope and component name.
    """

    at_zero: AtZero = AtZero.HOLD
    targets: Mapping[tuple[Scope, str], ScalableTarget] = field(default_factory=dict)

    @classmethod
    def of(cls, at_zero: AtZero, targets: Iterable[ScalableTarget]) -> "WakeRules":
        """The rules, with those of `targets` that belong to components."""
        found = [it for it in targets if it.dimension is Dimension.COPIES]
        by_name = {(it.scope, it.resource_id.partition("/")[2]): it for it in found}
        return cls(at_zero=at_zero, targets=by_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRules:
    """Rules of all routes beside the records.

    `is_llm` decides whether an image is a built-in LLM server, which OpenAI clients can reach.
    """

    is_llm: Callable[[str], bool]
    waking: WakeRules = field(default_factory=WakeRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEndpoint:
    """An endpoint's route (None: it does not serve), and what it was planned from.

    What is planned from the same objects again is the same object again.
    """

    state: EndpointState
    route: EndpointRoute | None
    bases: Mapping[str, "_Base"] = field(default_factory=dict)
    components: Mapping[str, tuple[InferenceComponent, "_Base", ComponentRoute | None]] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """A base component with its copies, and what its own route and its adapters' share."""

    component: InferenceComponent
    endpoint: Endpoint
    target: ScalableTarget | None
    at_zero: AtZero
    serves_llm: bool
    copies: Sequence[Copy]
    routes: Mapping[str, CopyRoute]  # by copy id; of those that requests may go to
    routing: RoutingStrategy
    why: str | None

    def is_of(self, other: "_Base") -> bool:
        """Whether both come from the same objects."""
        return (
            self.component is other.component
            and self.endpoint is other.endpoint
            and self.target == other.target
            and self.at_zero is other.at_zero
            and self.serves_llm == other.serves_llm
            and len(self.copies) == len(other.copies)
            and all(map(operator.is_, self.copies, other.copies))
        )


def plan_routes(
    states: Iterable[EndpointState], is_llm: Callable[[str], bool], waking: WakeRules | None = None
) -> RouteSnapshot:
    """The routes of every endpoint that serves; equal content has an equal version."""
    rules = RouteRules(is_llm=is_llm, waking=waking or WakeRules())
    found = [planned_endpoint(it, rules).route for it in states]
    return snapshot_of(it for it in found if it is not None)


def planned_endpoint(
    state: EndpointState, rules: RouteRules, before: PlannedEndpoint | None = None
) -> PlannedEndpoint:
    """The route of an endpoint; `before` has what was planned for it last, under any rules."""
    endpoint = state.endpoint
    if endpoint is None or endpoint.status not in SERVING_ENDPOINT:
        return PlannedEndpoint(state=state, route=None)
    active, waking = endpoint.active, rules.waking
    if not endpoint.takes_components:
        route = EndpointRoute(
            scope=endpoint.scope,
            name=endpoint.name,
            takes_components=False,
            variants=variant_routes(state, endpoint),
            at_zero=endpoint.at_zero or waking.at_zero,
            async_inference=active.config.async_inference,
            shadow=shadow_route(state, endpoint),
        )
        return PlannedEndpoint(state=state, route=route)
    known = before or PlannedEndpoint(state=state, route=None)
    bases = _bases(state, endpoint, rules, known)
    components = [state.components[name] for name in sorted(state.components)]
    planned: dict[str, tuple[InferenceComponent, _Base, ComponentRoute | None]] = {}
    for component in components:
        base = bases.get(_base_name(component))
        if base is None or component.status not in LIVE_COMPONENT:
            continue
        old = known.components.get(component.name)
        if old is None or old[0] is not component or old[1] is not base:
            made = _component_route(component, base)
            same = old is not None and old[2] == made
            old = (component, base, old[2] if old is not None and same else made)
        planned[component.name] = old
    route = EndpointRoute(
        scope=endpoint.scope,
        name=endpoint.name,
        takes_components=True,
        components=tuple(it for _, _, it in planned.values() if it is not None),
        failed=tuple(_failed(state, it, rules.is_llm) for it in components if it.status is FAILED),
        at_zero=endpoint.at_zero or waking.at_zero,
    )
    return PlannedEndpoint(state=state, route=route, bases=bases, components=planned)


def _base_name(component: InferenceComponent) -> str:
    adapter = routed_adapter(component)
    return component.name if adapter is None else adapter.base_name


def _bases(
    state: EndpointState, endpoint: Endpoint, rules: RouteRules, before: PlannedEndpoint
) -> dict[str, _Base]:
    """Every base component with its copies; the ones before where nothing of theirs changed."""
    found: dict[str, _Base] = {}
    llms: dict[str, bool] = {}
    for component in state.components.values():
        if component.spec is None:
            continue
        image = component.spec.container.image
        if image not in llms:
            llms[image] = rules.is_llm(image)
        base = _base(state, endpoint, component, rules.waking, serves_llm=llms[image])
        old = before.bases.get(component.name)
        found[component.name] = old if old is not None and old.is_of(base) else base
    return found


def _base(
    state: EndpointState,
    endpoint: Endpoint,
    component: InferenceComponent,
    waking: WakeRules,
    *,
    serves_llm: bool,
) -> _Base:
    hosts = state.hosts(endpoint.active.generation, component.variant_name)
    copies = state.copies_on(hosts, component.name)
    return _Base(
        component=component,
        endpoint=endpoint,
        target=waking.targets.get((component.scope, component.name)),
        at_zero=component.at_zero or endpoint.at_zero or waking.at_zero,
        serves_llm=serves_llm,
        copies=copies,
        routes={it.id: it for it in copy_routes(copies)},
        routing=_routing(endpoint, component.variant_name),
        why=waiting_for(component.placement_note, copies),
    )


def _component_route(component: InferenceComponent, base: _Base) -> ComponentRoute | None:
    adapter, owner = routed_adapter(component), base.component
    routed_id = None if adapter is None else adapter_id(component.name, adapter)
    routes = tuple(base.routes.values())
    if routed_id is not None:
        proven = {it.spec.id for it in base.copies if routed_id in it.proven_adapters}
        routes = tuple(it for it in routes if it.id in proven)
    if not routes and component.status is ComponentStatus.CREATING:
        return None
    failure = component.failure_reason or owner.failure_reason
    why = base.why or (None if failure is None else failure[:MAX_WAITING_FOR_CHARS])
    return ComponentRoute(
        name=component.name,
        variant_name=owner.variant_name,
        routing=base.routing,
        copies=routes,
        adapter_id=routed_id,
        desired_copies=owner.desired_copies,
        serves_llm=base.serves_llm,
        at_zero=component.at_zero or base.at_zero,
        wakeable=wakeable(base.target),
        waiting_for=None if routes or not owner.desired_copies else why,
        base_name=None if adapter is None else adapter.base_name,
    )


def _failed(
    state: EndpointState, component: InferenceComponent, is_llm: Callable[[str], bool]
) -> FailedComponent:
    adapter = routed_adapter(component)
    base = component if adapter is None else state.components.get(adapter.base_name)
    spec = None if base is None else base.spec
    return FailedComponent(
        name=component.name,
        reason=(component.failure_reason or "No reason is known.")[:MAX_WAITING_FOR_CHARS],
        serves_llm=spec is not None and is_llm(spec.container.image),
    )


def _routing(endpoint: Endpoint, variant_name: str) -> RoutingStrategy:
    variants = [it.variant for it in endpoint.active.variants]
    named = (it.routing for it in variants if it.name == variant_name)
    return next(named, RoutingStrategy.RANDOM)
