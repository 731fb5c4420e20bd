"""Explanation of each endpoint's placement, as JSON values for `hostelry explain`. Pure.

Placement decides again over the present state. If the reconciler has recorded why a copy has no
place, the report has its words.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Instance, InstanceState
from hostelry.domain.scope import Scope
from hostelry.placement.explain import (
    HostUse,
    free_text,
    list_uses,
    reservation_text,
    what_would_help,
    why_here,
)
from hostelry.placement.pack import place
from hostelry.placement.values import CopyRequest, Held, WhyNot, format_shape
from hostelry.reconcile.overview import overview
from hostelry.reconcile.plan.endpoint_state import EndpointState, InstanceFacts
from hostelry.reconcile.plan.growth import get_managed_scaling
from hostelry.reconcile.plan.placement_request import build_copy_request, get_held, to_hosts

ABOUT_TO_BE_PLACED = "it is about to be placed"
WHOLE_INSTANCE = "a model endpoint's copy has its instance to itself"


def explained_endpoints(
    states: Iterable[EndpointState],
    facts: Mapping[str, InstanceFacts],
    reports: Mapping[tuple[Scope, str], dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """The `overview` of each endpoint with its `placement_report` as the member `placement`.

    `reports` has reports made before, by scope and name. Missing reports are made.
    """
    known = reports or {}
    return [
        {
            **shown,
            "placement": known.get((state.endpoint.scope, state.endpoint.name))
            or placement_report(replace(state, facts=facts)),
        }
        for state in states
        if state.endpoint is not None
        for shown in overview([state], facts)
    ]


def placement_report(state: EndpointState) -> dict[str, Any]:
    """Each instance's use, the reason of each copy's place by its id, and copies without a place.

    | a copy | its reason |
    | --- | --- |
    | of a model endpoint, which reserves nothing | WHOLE_INSTANCE |
    | of a component | the preference of its placement strategy over the present state |
    """
    instances = list(state.instances.values())
    hosts, held = to_hosts(instances), get_held(state, instances)
    requests = _requests_by_component(state, instances)
    whole = [it.spec.id for it in state.copies.values() if it.spec.requirements is None]
    why = {it.copy_id: why_here(it, hosts, held, requests) for it in held}
    unplaced = (
        _report_unplaced(state, state.components[name], requests[name], held) for name in requests
    )
    return {
        "instances": [_instance(it) for it in list_uses(hosts, held)],
        "why": {**why, **dict.fromkeys(whole, WHOLE_INSTANCE)},
        "unplaced": [it for it in unplaced if it is not None],
    }


def _requests_by_component(
    state: EndpointState, instances: Sequence[Instance]
) -> dict[str, CopyRequest]:
    """A copy of each base component as placement is asked for it, by the component's name."""
    types = {it.instance_type for it in instances}
    if state.endpoint is not None:
        variants = state.endpoint.active.variants
        types |= {name for it in variants for name in it.variant.instance_types}
    bases = (state.components[it] for it in sorted(state.components))
    return {it.name: build_copy_request(it, it.spec, types) for it in bases if it.spec is not None}


def _report_unplaced(
    state: EndpointState, component: InferenceComponent, request: CopyRequest, held: Sequence[Held]
) -> dict[str, Any] | None:
    """A component's copies without a place: how many, why, and what would help. None if none."""
    copies = [it for it in state.list_copies(component.name) if not it.draining]
    count = component.desired_copies - len(copies)
    if count <= 0 or component.status is ComponentStatus.DELETING:
        return None
    staying = [it for it in state.instances.values() if it.state is not InstanceState.TERMINATING]
    why = place([request], to_hosts(staying), held).first_obstacle
    if why is None and component.status is ComponentStatus.FAILED:
        return None  # it failed for another reason than a lack of room
    text = ABOUT_TO_BE_PLACED if why is None else component.placement_note or why.text
    return {
        "component": component.name,
        "count": count,
        "wanted": component.desired_copies,
        "why_not": text,
        "would_help": None if why is None else _help(state, component, why, len(staying)),
        "obstacle": None if why is None else why.obstacle.value,
        "short_of": [] if why is None else list(why.binding),
    }


def _help(
    state: EndpointState, component: InferenceComponent, why: WhyNot, num_instances: int
) -> str:
    assert state.endpoint is not None, "only endpoints that have a record are explained"
    variants = {it.variant.name: it.variant for it in state.endpoint.active.variants}
    variant = variants.get(component.variant_name)
    scaling = None if variant is None else get_managed_scaling(variant)
    return what_would_help(why, None if scaling is None else scaling.max_instances - num_instances)


def _instance(use: HostUse) -> dict[str, Any]:
    host = use.host
    return {
        "id": host.instance_id,
        "type": host.instance_type,
        "zone": host.zone,
        "declared": msgspec.to_builtins(host.shape),
        "free": msgspec.to_builtins(use.free),
        "free_device_ids": list(use.free_device_ids),
        "free_text": free_text(use),
        "declared_text": format_shape(host.shape, zeros=False),
        "copies": [
            {
                "id": copy.held.copy_id,
                "component": copy.held.owner,
                "device_ids": list(copy.device_ids),
                "reserved_text": reservation_text(copy),
            }
            for copy in use.copies
        ],
    }
