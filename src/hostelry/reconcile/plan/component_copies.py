"""The copies of base components: all of an endpoint's are placed together, in a stable order.

What fits serves; what does not waits, adds instances where ManagedInstanceScaling allows, and says
why in the component's note.
"""

from collections.abc import Sequence
from dataclasses import replace

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, CopyPhase, CopySpec, Instance
from hostelry.domain.endpoint import Deployment, EndpointVariant
from hostelry.placement.pack import place
from hostelry.placement.values import Placed, Wanted
from hostelry.reconcile.plan.adapters import wanted_adapters
from hostelry.reconcile.plan.desired_copies import DesiredCopies, aim_of
from hostelry.reconcile.plan.endpoint_state import (
    DELETE_DRAIN_S,
    LIVE_COMPONENT,
    EndpointState,
    PlanContext,
    drained,
    stopped,
)
from hostelry.reconcile.plan.exchange import without_what_will_fit
from hostelry.reconcile.plan.growth import grown
from hostelry.reconcile.plan.model_copies import new_copy, without_failed
from hostelry.reconcile.plan.placement_request import (
    Unplaced,
    held_on,
    hosts_of,
    instance_types,
    wanted_copy,
)
from hostelry.reconcile.plan.reasons import placement_note


def plan_component_copies(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with the copies that the base components want, as far as they fit."""
    bases = [it for it in state.components.values() if it.spec is not None]
    for base in bases:
        if base.status not in LIVE_COMPONENT:
            leaving = [drained(it, context, DELETE_DRAIN_S) for it in state.copies_of(base.name)]
            state = state.with_copies(leaving).with_component(replace(base, placement_note=None))
    for deployment in state.deployments():
        for variant in deployment.variants:
            state = _on_variant(state, deployment, variant, context)
    return state


def _on_variant(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    components = _living(state, variant)
    if not components:
        return state
    hosts = state.hosts(deployment.generation, variant.variant.name)
    failed = [it for one in components for it in state.copies_on(hosts, one.name)]
    state = state.with_copies(without_failed(failed, context.now))
    aims = [aim_of(state, it, deployment, context) for it in components]
    state = state.with_copies(it for aim in aims for it in _leaving(aim, context))
    aims = [aim_of(state, it, deployment, context) for it in components]
    state, unplaced = _placed(state, hosts, variant, aims, context)
    now = {it.name: aim_of(state, it, deployment, context) for it in components if unplaced}
    unplaced = [replace(it, aim=now[it.aim.component.name]) for it in unplaced]
    state, waiting = without_what_will_fit(state, hosts, unplaced, context)
    state, refused = grown(state, deployment, variant, waiting, context)
    if state.endpoint is None or deployment.generation != state.endpoint.active.generation:
        return state
    said = {it.aim.component.name: it.why.text for it in (*unplaced, *refused)}
    return _with_notes(state, components, hosts, said)


def _living(state: EndpointState, variant: EndpointVariant) -> list[InferenceComponent]:
    """The base components on a variant that want copies, the oldest first."""
    mine = [
        it
        for it in state.components.values()
        if it.spec is not None
        and it.status in LIVE_COMPONENT
        and it.variant_name == variant.variant.name
    ]
    return sorted(mine, key=lambda it: (it.created_at, it.name))


def _leaving(aim: DesiredCopies, context: PlanContext) -> list[Copy]:
    """The copies that are not wanted any more, on their way out; what failed has none to drain."""
    failed = [it for it in aim.others if it.status.phase is CopyPhase.FAILED]
    return [drained(it, context) for it in aim.surplus] + [
        stopped(it, context.now) for it in failed
    ]


def _placed(
    state: EndpointState,
    hosts: Sequence[Instance],
    variant: EndpointVariant,
    aims: Sequence[DesiredCopies],
    context: PlanContext,
) -> tuple[EndpointState, list[Unplaced]]:
    """The state with the missing copies that have a place, and those that have none."""
    able = state.able(hosts, context.now)
    types = instance_types(variant.variant, hosts)
    claims = [
        (aim, wanted_copy(aim.component, aim.spec, types))
        for aim in aims
        for _ in range(aim.missing)
    ]
    state, claims = _placed_elsewhere(state, able, claims, context)
    if not claims:
        return state, []
    packing = place([it for _, it in claims], hosts_of(able), held_on(state, able))
    found, unplaced = [], []
    for (aim, wanted), outcome in zip(claims, packing.outcomes, strict=True):
        if isinstance(outcome, Placed):
            found.append(_new_component_copy(state, aim, outcome, context))
        else:
            unplaced.append(Unplaced(aim=aim, wanted=wanted, why=outcome))
    return state.with_copies(found), unplaced


def _placed_elsewhere(
    state: EndpointState,
    hosts: Sequence[Instance],
    claims: Sequence[tuple[DesiredCopies, Wanted]],
    context: PlanContext,
) -> tuple[EndpointState, list[tuple[DesiredCopies, Wanted]]]:
    """Places what follows a failed copy on another instance, where one holds it."""
    left = []
    failed_on = {aim.component.name: _failed_on(state, aim) for aim, _ in claims}
    for aim, wanted in claims:
        elsewhere = [it for it in hosts if it.id not in failed_on[aim.component.name]]
        if len(elsewhere) == len(hosts):
            left.append((aim, wanted))
            continue
        packing = place([wanted], hosts_of(elsewhere), held_on(state, elsewhere))
        found = [_new_component_copy(state, aim, it, context) for it in packing.placed]
        state = state.with_copies(found)
        if not found:
            left.append((aim, wanted))
    return state, left


def _failed_on(state: EndpointState, aim: DesiredCopies) -> set[str]:
    copies = state.copies_of(aim.component.name)
    return {it.instance_id for it in copies if it.status.phase is CopyPhase.FAILED}


def _new_component_copy(
    state: EndpointState, aim: DesiredCopies, placed: Placed, context: PlanContext
) -> Copy:
    instance = state.instances[placed.instance_id]
    return component_copy(state, aim, instance, placed.device_ids, context)


def component_copy(
    state: EndpointState,
    aim: DesiredCopies,
    instance: Instance,
    device_ids: tuple[int, ...],
    context: PlanContext,
) -> Copy:
    """A new copy of what the aim is for, on an instance of a type that may hold it."""
    name, typed = aim.component.name, aim.spec.on(instance.instance_type)
    assert typed is not None, "placement gives no copy to an instance of a type without a spec"
    wanted = CopySpec(
        id="",
        owner=f"component/{name}",
        container=typed.container,
        requirements=typed.requirements,
        download_timeout_s=typed.download_timeout_s,
        startup_timeout_s=typed.startup_timeout_s,
        adapters=wanted_adapters(state, name, context.now),
        device_ids=device_ids,
    )
    return new_copy(instance, name, aim.spec.generation, wanted, context)


def _with_notes(
    state: EndpointState,
    components: Sequence[InferenceComponent],
    hosts: Sequence[Instance],
    said: dict[str, str],
) -> EndpointState:
    """The state in which each component says why some of its copies do not serve."""
    for component in components:
        now = state.components[component.name]
        note = placement_note(said.get(now.name), state.copies_on(hosts, now.name))
        if now.status is not ComponentStatus.DELETING:
            state = state.with_component(replace(now, placement_note=note))
    return state
