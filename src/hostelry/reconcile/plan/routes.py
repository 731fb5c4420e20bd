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

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from hostelry.domain.at_zero import AtZero
from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Instance
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import (
    ComponentRoute,
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


def plan_routes(
    states: Iterable[EndpointState], is_llm: Callable[[str], bool], waking: WakeRules | None = None
) -> RouteSnapshot:
    """The routes of every endpoint that serves; equal content has an equal version.

    `is_llm` decides whether an image is a built-in LLM server, which OpenAI clients can reach.
    """
    rules = waking or WakeRules()
    found = [
        _endpoint_route(state, state.endpoint, is_llm, rules) for state in states if state.endpoint
    ]
    routes = [it for it in found if it is not None]
    ordered = tuple(sorted(routes, key=lambda it: (it.scope.account, it.scope.region, it.name)))
    digest = hashlib.sha256(msgspec.json.encode(ordered)).hexdigest()
    return RouteSnapshot(version=digest[:32], endpoints=ordered)


def _endpoint_route(
    state: EndpointState, endpoint: Endpoint, is_llm: Callable[[str], bool], waking: WakeRules
) -> EndpointRoute | None:
    if endpoint.status not in SERVING_ENDPOINT:
        return None
    active = endpoint.active
    if not endpoint.takes_components:
        return EndpointRoute(
            scope=endpoint.scope,
            name=endpoint.name,
            takes_components=False,
            variants=variant_routes(state, endpoint),
            at_zero=endpoint.at_zero or waking.at_zero,
            async_inference=active.config.async_inference,
            shadow=shadow_route(state, endpoint),
        )
    components = [state.components[name] for name in sorted(state.components)]
    routes = [_component_route(state, endpoint, it, is_llm, waking) for it in components]
    return EndpointRoute(
        scope=endpoint.scope,
        name=endpoint.name,
        takes_components=True,
        components=tuple(it for it in routes if it is not None),
        failed=tuple(_failed(state, it, is_llm) for it in components if it.status is FAILED),
        at_zero=endpoint.at_zero or waking.at_zero,
    )


def _component_route(
    state: EndpointState,
    endpoint: Endpoint,
    component: InferenceComponent,
    is_llm: Callable[[str], bool],
    waking: WakeRules,
) -> ComponentRoute | None:
    adapter = routed_adapter(component)
    base = component if adapter is None else state.components.get(adapter.base_name)
    if base is None or base.spec is None or component.status not in LIVE_COMPONENT:
        return None
    hosts: list[Instance] = state.hosts(endpoint.active.generation, base.variant_name)
    copies = state.copies_on(hosts, base.name)
    failure = component.failure_reason or base.failure_reason
    why = waiting_for(base.placement_note, copies, failure)
    routed_id = None if adapter is None else adapter_id(component.name, adapter)
    if routed_id is not None:
        copies = [it for it in copies if routed_id in it.proven_adapters]
    routes = copy_routes(copies)
    if not routes and component.status is ComponentStatus.CREATING:
        return None
    return ComponentRoute(
        name=component.name,
        variant_name=base.variant_name,
        routing=_routing(endpoint, base.variant_name),
        copies=routes,
        adapter_id=routed_id,
        desired_copies=base.desired_copies,
        serves_llm=is_llm(base.spec.container.image),
        at_zero=component.at_zero or base.at_zero or endpoint.at_zero or waking.at_zero,
        wakeable=wakeable(waking.targets.get((base.scope, base.name))),
        waiting_for=None if routes or not base.desired_copies else why,
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
