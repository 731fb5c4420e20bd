"""The gateway's routes from the records: ready copies of what serves, and nothing else."""

import hashlib
from collections.abc import Callable, Iterable

import msgspec

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, Instance
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import (
    ComponentRoute,
    CopyRoute,
    EndpointRoute,
    RouteSnapshot,
    VariantRoute,
)
from hostelry.reconcile.adapters import adapter_id, routed_adapter
from hostelry.reconcile.world import LIVE_COMPONENT, World, is_routable

SERVING = frozenset({EndpointStatus.IN_SERVICE, EndpointStatus.UPDATING})


def plan_routes(worlds: Iterable[World], is_llm: Callable[[str], bool]) -> RouteSnapshot:
    """Every endpoint that serves, with its ready copies; equal content has an equal version.

    `is_llm` tells whether an image is a built-in LLM server, reachable by OpenAI clients.
    """
    found = [_endpoint_route(world, world.endpoint, is_llm) for world in worlds if world.endpoint]
    routes = [it for it in found if it is not None]
    ordered = tuple(sorted(routes, key=lambda it: (it.scope.account, it.scope.region, it.name)))
    digest = hashlib.sha256(msgspec.json.encode(ordered)).hexdigest()
    return RouteSnapshot(version=digest[:32], endpoints=ordered)


def _endpoint_route(
    world: World, endpoint: Endpoint, is_llm: Callable[[str], bool]
) -> EndpointRoute | None:
    if endpoint.status not in SERVING:
        return None
    active = endpoint.active
    if not endpoint.takes_components:
        variants = tuple(_variant_route(world, active, it) for it in active.variants)
        return EndpointRoute(
            scope=endpoint.scope, name=endpoint.name, takes_components=False, variants=variants
        )
    components = [world.components[name] for name in sorted(world.components)]
    routes = [_component_route(world, endpoint, it, is_llm) for it in components]
    return EndpointRoute(
        scope=endpoint.scope,
        name=endpoint.name,
        takes_components=True,
        components=tuple(it for it in routes if it is not None),
    )


def _variant_route(world: World, active: Deployment, wanted: EndpointVariant) -> VariantRoute:
    hosts = world.hosts(active.generation, wanted.variant.name)
    return VariantRoute(
        name=wanted.variant.name,
        weight=wanted.desired_weight,
        routing=wanted.variant.routing,
        copies=_copy_routes(world.copies_on(hosts, None)),
    )


def _component_route(
    world: World,
    endpoint: Endpoint,
    component: InferenceComponent,
    is_llm: Callable[[str], bool],
) -> ComponentRoute | None:
    adapter = routed_adapter(component)
    base = component if adapter is None else world.components.get(adapter.base_name)
    if base is None or base.spec is None or component.status not in LIVE_COMPONENT:
        return None
    hosts: list[Instance] = world.hosts(endpoint.active.generation, base.variant_name)
    copies = world.copies_on(hosts, base.name)
    wanted_id = None if adapter is None else adapter_id(component.name, adapter)
    if wanted_id is not None:
        copies = [it for it in copies if wanted_id in it.proven_adapters]
    routes = _copy_routes(copies)
    if not routes and component.status is ComponentStatus.CREATING:
        return None
    return ComponentRoute(
        name=component.name,
        variant_name=base.variant_name,
        routing=_routing(endpoint, base.variant_name),
        copies=routes,
        adapter_id=wanted_id,
        desired_copies=base.desired_copies,
        serves_llm=is_llm(base.spec.container.image),
    )


def _routing(endpoint: Endpoint, variant_name: str) -> RoutingStrategy:
    variants = [it.variant for it in endpoint.active.variants]
    named = (it.routing for it in variants if it.name == variant_name)
    return next(named, RoutingStrategy.RANDOM)


def _copy_routes(copies: Iterable[Copy]) -> tuple[CopyRoute, ...]:
    routes = [
        CopyRoute(id=it.spec.id, address=it.status.address)
        for it in copies
        if is_routable(it) and it.status.address is not None
    ]
    return tuple(sorted(routes, key=lambda it: it.id))
