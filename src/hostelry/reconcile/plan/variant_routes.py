"""Routes of a model endpoint's variants: ready copies, of both fleets while traffic shifts.

a variant, while traffic shifts      its weight, of the weights of its deployment
----------------------------------   ------------------------------------------------------------
of both deployments                  the old weight by the old fleet's share, plus the new weight
                                     by the new fleet's share
of the old, or of the new alone      its own weight by its fleet's share
any, once the update has failed      the old weight: the new fleet has requests only if the old
                                     one has no copy. On the way back from a rolling update, the
                                     remaining new instances keep their share of the requests

containers of the model              the routes of an instance
----------------------------------   ------------------------------------------------------------
one                                  its copy
several, a pipeline                  one, once all containers serve: the first, then the others
several that requests name           each container that serves, under its name

Of the new fleet only the instances that are turned on are in the routes, the oldest first, unless
no old copy serves. A shadow variant has a separate route, the active deployment's shadow.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from hostelry.domain.copy import Copy, complete_sets, num_containers
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointVariant, Shift
from hostelry.domain.log_source import get_copy_source
from hostelry.domain.routes import (
    ContainerRoute,
    CopyRoute,
    FleetShift,
    ShadowRoute,
    VariantRoute,
)
from hostelry.reconcile.plan.batches import get_share_left
from hostelry.reconcile.plan.endpoint_state import EndpointState, is_routable

MAX_WAITING_FOR_CHARS = 300


def build_variant_routes(state: EndpointState, endpoint: Endpoint) -> tuple[VariantRoute, ...]:
    """The routes of the active deployment's variants, and of the one that traffic moves to."""
    active, pending, shift = endpoint.active, endpoint.pending, endpoint.shift
    is_updating = len(endpoint.deployments) > 1
    routes = [_build_route(state, active, it, is_updating=is_updating) for it in active.production]
    if pending is None or shift is None:
        return tuple(routes)
    without_old = {it.name for it in routes if not it.all_copies}
    coming = [
        _build_turned_on(
            state, pending, wanted, shift, all_at_once=wanted.variant.name in without_old
        )
        for wanted in pending.production
    ]
    return _merge_variants(routes, coming, _get_shares(state, pending, shift))


def build_shadow_route(state: EndpointState, endpoint: Endpoint) -> ShadowRoute | None:
    """The route of the active deployment's shadow. None without a shadow, or without a share."""
    active = endpoint.active
    shadow, share = active.shadow, active.shadow_share
    if shadow is None or share <= 0:
        return None
    hosts = state.hosts(active.generation, shadow.variant.name)
    return ShadowRoute(
        name=shadow.variant.name,
        share=share,
        routing=shadow.variant.routing,
        copies=build_copy_routes(state.list_copies_on(hosts, None)),
        capture=_get_capture(active),
    )


def _build_route(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, *, is_updating: bool
) -> VariantRoute:
    hosts = state.hosts(deployment.generation, variant.variant.name)
    copies = state.list_copies_on(hosts, None)
    routes = build_copy_routes(copies, deployment.config.name if is_updating else None)
    containers = _group_by_container(variant, routes)
    if not containers and num_containers(variant) > 1:
        ready = [it for it in copies if is_routable(it)]
        routes = _build_pipelines(complete_sets(variant, hosts, ready).values(), routes)
    return VariantRoute(
        name=variant.variant.name,
        weight=variant.desired_weight,
        routing=variant.variant.routing,
        copies=() if containers else routes,
        waiting_for=None if routes else explain_waiting(None, copies),
        is_multi_model=any(model.is_multi_model for model in variant.models),
        serverless=variant.serverless,
        capture=_get_capture(deployment),
        containers=containers,
    )


def _group_by_container(
    variant: EndpointVariant, routes: Iterable[CopyRoute]
) -> tuple[ContainerRoute, ...]:
    """The routes of each container that requests name. Empty if they name no container."""
    named = {it.hostname: None for m in variant.models if m.is_direct for it in m.containers}
    return tuple(
        ContainerRoute(hostname=name, copies=tuple(it for it in routes if it.container == name))
        for name in named
        if name is not None
    )


def _build_pipelines(
    whole: Iterable[Sequence[Copy]], routes: Iterable[CopyRoute]
) -> tuple[CopyRoute, ...]:
    """The route of each instance whose containers all serve, by the id of the first."""
    by_id = {it.id: it for it in routes}
    found = []
    for copies in whole:
        first, *further = (by_id[it.spec.id] for it in copies)
        found.append(dataclasses.replace(first, further=tuple(further)))
    return tuple(sorted(found, key=lambda it: it.id))


def _get_capture(deployment: Deployment) -> DataCapture | None:
    """The deployment's capture, if it captures anything now."""
    capture = deployment.capture
    return capture if capture is not None and capture.takes_any else None


def _build_turned_on(
    state: EndpointState,
    deployment: Deployment,
    variant: EndpointVariant,
    shift: Shift,
    *,
    all_at_once: bool,
) -> VariantRoute:
    """The route of a variant's new fleet, with as many copies as the step turns on.

    All of them if no old copy serves, since they get its requests, and on the way back.
    """
    assert deployment.guard is not None, "only a deployment with steps shifts traffic"
    route = _build_route(state, deployment, variant, is_updating=True)
    if all_at_once or (deployment.is_rolling and shift.failure is not None):
        return route
    num = deployment.guard.traffic.turned_on(shift.step, variant.desired_instance_count)
    hosts = state.hosts(deployment.generation, variant.variant.name)
    routed = {it.id for it in route.all_copies}
    places = {
        copy.spec.id: copy.instance_id
        for copy in state.list_copies_on(hosts, None)
        if copy.spec.id in routed
    }
    on = list(dict.fromkeys(places.values()))[:num]
    return _keep_copies(route, {it for it, instance_id in places.items() if instance_id in on})


def _keep_copies(route: VariantRoute, ids: Collection[str]) -> VariantRoute:
    """The route with only the copies that have these ids."""
    return replace(
        route,
        copies=tuple(it for it in route.copies if it.id in ids),
        containers=tuple(
            replace(container, copies=tuple(it for it in container.copies if it.id in ids))
            for container in route.containers
        ),
    )


def _get_shares(state: EndpointState, pending: Deployment, shift: Shift) -> Mapping[str, float]:
    """The share of each variant's new fleet. Once the update has failed, none or the rest."""
    assert pending.guard is not None, "only a deployment with steps shifts traffic"
    traffic = pending.guard.traffic
    if shift.failure is not None and traffic.is_rolling:
        return {it.variant.name: get_share_left(state, pending, it) for it in pending.production}
    if shift.failure is not None:
        return {it.variant.name: 0.0 for it in pending.production}
    return {
        variant.variant.name: traffic.share(shift.step, variant.desired_instance_count)
        for variant in pending.production
    }


def _merge_variants(
    old: Iterable[VariantRoute], new: Iterable[VariantRoute], shares: Mapping[str, float]
) -> tuple[VariantRoute, ...]:
    """The variants of both deployments, each once, with the copies of both fleets."""
    old_by_name, new_by_name = ({it.name: it for it in side} for side in (old, new))
    old_parts, new_parts = _get_weights(old_by_name), _get_weights(new_by_name)
    of_all = sum(shares[name] * part for name, part in new_parts.items())
    found = []
    for name, route in {**new_by_name, **old_by_name}.items():
        share = shares.get(name, of_all)
        weight = old_parts.get(name, 0.0) * (1.0 - share) + new_parts.get(name, 0.0) * share
        coming = new_by_name.get(name)
        if coming is None or coming is route:
            found.append(replace(route, weight=weight))
            continue
        shift = FleetShift(share=share, new_ids=tuple(it.id for it in coming.all_copies))
        copies = (*route.copies, *coming.copies)
        containers = _merge_containers(route.containers, coming.containers)
        both = replace(route, weight=weight, copies=copies, containers=containers, shift=shift)
        found.append(both)
    return tuple(sorted(found, key=lambda it: it.name))


def _merge_containers(
    old: Iterable[ContainerRoute], new: Iterable[ContainerRoute]
) -> tuple[ContainerRoute, ...]:
    """The containers of both fleets, each once, with the copies of both."""
    found: dict[str, tuple[CopyRoute, ...]] = {}
    for container in (*old, *new):
        found[container.hostname] = (*found.get(container.hostname, ()), *container.copies)
    return tuple(ContainerRoute(hostname=name, copies=it) for name, it in found.items())


def _get_weights(routes: Mapping[str, VariantRoute]) -> Mapping[str, float]:
    """The part of the weights that each variant has. Equal parts if all weights are 0."""
    weights = {name: max(it.weight, 0.0) for name, it in routes.items()}
    whole = sum(weights.values())
    return {name: it / whole if whole else 1.0 / len(weights) for name, it in weights.items()}


def explain_waiting(
    note: str | None, copies: Iterable[Copy], otherwise: str | None = None
) -> str | None:
    """Why no copy serves. None if nothing is wrong so far."""
    reasons = (it.status.reason for it in copies if it.status.reason)
    found = note or next(reasons, None) or otherwise
    return None if found is None else found[:MAX_WAITING_FOR_CHARS]


def build_copy_routes(copies: Iterable[Copy], config: str | None = None) -> tuple[CopyRoute, ...]:
    """The routes of those copies that requests may go to, in the order of their ids."""
    routes = [
        CopyRoute(
            id=copy.spec.id,
            address=copy.status.address,
            key=copy.status.key,
            models_address=copy.status.models_address,
            config=config,
            container=copy.spec.container.hostname,
            log_stream=get_copy_source(copy).stream if copy.spec.container.hostname else None,
        )
        for copy in copies
        if is_routable(copy) and copy.status.address is not None
    ]
    return tuple(sorted(routes, key=lambda it: it.id))
