"""Restart of a copy, or of all copies of a component or an endpoint, one after the other.

the copy                                    its replacement
-----------------------------------------   ----------------------------------------------------
of a component, or an environment, whose    comes up on the same instance. The old copy leaves the
instance has room for a second one          routes once the replacement serves
... no room                                 comes up once the old copy has ended
of a model that has its instance to itself  comes up on another instance, with its other containers
restarting already, or new since a restart  as it is: a repeat asks for nothing more
that is not over
"""

import math

from msgspec.structs import replace

from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import Copy
from hostelry.domain.endpoint import CopyRestart, Endpoint, EndpointVariant
from hostelry.placement.pack import place
from hostelry.reconcile.acts.act import (
    ActStep,
    PlannedAct,
    Way,
    get_serving_endpoint,
    refuse_act,
    report_unknown,
)
from hostelry.reconcile.plan.desired_copies import get_next_spec
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext
from hostelry.reconcile.plan.placement_request import (
    build_copy_request,
    get_held,
    get_instance_types,
    to_hosts,
)

ONE_BY_ONE = "One copy of each component or variant is replaced at a time."
THEN_ENDS = "then this one leaves the routes and ends with its last request"


def plan_restart(
    state: EndpointState,
    context: PlanContext,
    *,
    component: str | None = None,
    copy_id: str | None = None,
) -> PlannedAct:
    """Plan the restart of a copy, of a component's copies, or of all copies of the endpoint.

    Raises ServiceError, 404 or 409, with the reason if there is nothing to restart.
    """
    endpoint = get_serving_endpoint(state)
    target, copies = _target(state, endpoint, component, copy_id)
    restarts = [_find_asked(endpoint, it, context.now) for it in copies]
    known = {it.copy_id: it for it in endpoint.restarts if it.failure is None}
    groups = {it.group for it in restarts}
    # A restart that failed before must not stop the new one of its group.
    kept = [it for it in endpoint.restarts if it.failure is None or it.group not in groups]
    since = {it.group: it.asked_at for it in reversed(endpoint.restarts) if it.failure is None}
    new = [
        asked
        for asked, copy in zip(restarts, copies, strict=True)
        if asked.copy_id not in known
        and (copy_id is not None or copy.created_at < since.get(asked.group, math.inf))
    ]
    record = replace(endpoint, restarts=(*kept, *new))
    # Copies of one group have the same room: it is looked for once.
    one_of_each = {(it.component_name, it.variant_name): it for it in copies}
    ways = {key: _way(state, endpoint, it, context) for key, it in one_of_each.items()}
    steps = tuple(_step(it, *ways[it.component_name, it.variant_name]) for it in copies)
    summary = f"{len(steps)} cop{'y is' if len(steps) == 1 else 'ies are'} replaced."
    return PlannedAct(
        act="restart",
        target=target,
        endpoint=endpoint.name,
        summary=summary if len(steps) == 1 else f"{summary} {ONE_BY_ONE}",
        steps=steps,
        record=record if new else None,
    )


def _target(
    state: EndpointState, endpoint: Endpoint, component: str | None, copy_id: str | None
) -> tuple[str, list[Copy]]:
    """The name of the restarted copy, component or endpoint, and its copies."""
    hosts = [
        host
        for variant in endpoint.active.variants
        for host in state.hosts(endpoint.active.generation, variant.variant.name)
    ]
    names = [None, *state.components]
    present = [copy for name in names for copy in state.list_copies_on(hosts, name)]
    if copy_id is not None:
        chosen = [it for it in present if it.spec.id == copy_id]
        if not chosen:
            raise refuse_act(f"Copy {copy_id} is ending already.")
        _check_component(state, chosen[0].component_name)
        return f"copy {copy_id}", chosen
    if component is not None:
        _check_component(state, component)
        chosen = [it for it in present if it.component_name == component]
        if not chosen:
            raise refuse_act(f"Inference component {component} has no copy now.")
        return f"component {component}", chosen
    for name in {it.component_name for it in present}:
        _check_component(state, name)
    if not present:
        raise refuse_act(f"Endpoint {endpoint.name} has no copy now.")
    return f"endpoint {endpoint.name}", present


def _check_component(state: EndpointState, name: str | None) -> None:
    """Raise ServiceError where the component's copies cannot be restarted now."""
    component = None if name is None else state.components.get(name)
    if name is None:
        return
    if component is None:
        raise report_unknown(f"Inference component {name} does not exist.")
    if component.adapter is not None:
        base = component.adapter.base_name
        raise refuse_act(
            f"Inference component {name} is an adapter on the copies of {base}: restart {base}, "
            "whose new copies have all its adapters before they serve."
        )
    if component.status is not ComponentStatus.IN_SERVICE:
        raise refuse_act(
            f"Inference component {name} is {component.status.value}: "
            "try again once it is InService."
        )


def _find_asked(endpoint: Endpoint, copy: Copy, now: float) -> CopyRestart:
    variant = _variant(endpoint, copy)
    return CopyRestart(
        copy_id=copy.spec.id,
        component_name=copy.component_name,
        variant_name=copy.variant_name,
        instance_id=copy.instance_id,
        asked_at=now,
        with_instance=copy.component_name is None and variant.serverless is None,
    )


def _step(copy: Copy, way: Way, text: str) -> ActStep:
    return ActStep(
        copy=copy.spec.id, owner=copy.spec.owner, instance=copy.instance_id, way=way, text=text
    )


def _way(
    state: EndpointState, endpoint: Endpoint, copy: Copy, context: PlanContext
) -> tuple[Way, str]:
    """The way in which the copy, and others of its group, are replaced."""
    variant = _variant(endpoint, copy)
    if copy.component_name is not None:
        return _plan_component_copy(state, variant, copy, context)
    if variant.serverless is not None:
        most = variant.serverless.max_concurrency
        if len(state.list_copies_at(copy.instance_id)) < most:
            return _beside(copy.instance_id)
        return _ended_first(f"all {most} environments are there", variant.environments - 1)
    instance_type = state.instances[copy.instance_id].instance_type
    containers = "" if copy.spec.container.hostname is None else " with all its containers"
    text = f"another {instance_type} instance comes up{containers}, {THEN_ENDS}"
    return Way.NEW_INSTANCE, text


def _plan_component_copy(
    state: EndpointState, variant: EndpointVariant, copy: Copy, context: PlanContext
) -> tuple[Way, str]:
    assert copy.component_name is not None, "the caller has others"
    component = state.components[copy.component_name]
    hosts = state.hosts(state.instances[copy.instance_id].generation, copy.variant_name)
    able = state.able(hosts, context.now)
    request = build_copy_request(
        component, get_next_spec(component), get_instance_types(variant.variant, hosts)
    )
    packing = place([request], to_hosts(able), get_held(state, able))
    if packing.placed:
        return _beside(packing.placed[0].instance_id)
    why = packing.first_obstacle
    return _ended_first("" if why is None else why.text, component.desired_copies - 1)


def _beside(instance_id: str) -> tuple[Way, str]:
    return Way.BESIDE, f"a new copy comes up on {instance_id}, {THEN_ENDS}"


def _ended_first(why: str, num_others: int) -> tuple[Way, str]:
    meanwhile = (
        f"{num_others} serve{'s' if num_others == 1 else ''}" if num_others else "requests wait"
    )
    return Way.ENDED_FIRST, (
        f"no room for another copy beside it ({why}): it ends first, with its last request, and "
        f"{meanwhile} until the new one is ready"
    )


def _variant(endpoint: Endpoint, copy: Copy) -> EndpointVariant:
    named = (it for it in endpoint.active.variants if it.variant.name == copy.variant_name)
    return next(named)
