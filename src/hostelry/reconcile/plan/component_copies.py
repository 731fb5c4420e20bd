"""Stage: the copies of base components, placed together for an endpoint, in a stable order.

a copy of the component, its component is    result
-----------------------------------------    ------------------------------------------------
not alive (Deleting, Failed)                 drains, at most DELETE_DRAIN_S
alive, the copy FAILED long enough ago       stopped, so that another one is tried
alive, the copy is surplus                   drains, or stopped at once if it FAILED
alive, a copy is missing, it fits            a new copy, if possible not on an instance on which
                                             one FAILED before
alive, a copy is missing, it fits nowhere    see the next table, and a note has the reason

a missing copy that fits nowhere             result
-----------------------------------------    ------------------------------------------------
fits once all draining copies are gone       waits
its component's exchange is under way        waits, so that the others serve
old copies on one instance hold its room,    the fewest such old copies drain
and `min_ready` copies serve without them
any other                                    needs another instance (`growth`)
"""

import itertools
import operator
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, CopyPhase, CopySpec, Instance
from hostelry.domain.endpoint import Deployment, EndpointVariant
from hostelry.placement.pack import place
from hostelry.placement.values import CopyRequest, Placed
from hostelry.reconcile.plan.adapters import list_desired_adapters
from hostelry.reconcile.plan.desired_copies import DesiredCopies, count_desired_copies
from hostelry.reconcile.plan.endpoint_state import (
    DELETE_DRAIN_S,
    LIVE_COMPONENT,
    EndpointState,
    PlanContext,
    drain_copy,
    is_routable,
    stop_copy,
)
from hostelry.reconcile.plan.growth import grow_fleet
from hostelry.reconcile.plan.model_copies import build_copy, stop_failed_copies
from hostelry.reconcile.plan.placement_request import (
    Unplaced,
    build_copy_request,
    explain_unable,
    get_held,
    get_instance_types,
    to_hosts,
)
from hostelry.reconcile.plan.status import build_placement_note

Missing = tuple[DesiredCopies, CopyRequest]  # one copy to place, and the component that lacks it


def plan_component_copies(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with the desired copies of all base components, as far as they fit."""
    bases = [it for it in state.dirty_components() if it.spec is not None]
    for base in bases:
        if base.status not in LIVE_COMPONENT:
            leaving = state.list_copies(base.name)
            state = state.add_copies(drain_copy(it, context, DELETE_DRAIN_S) for it in leaving)
            state = state.replace_components([replace(base, placement_note=None)])
    for deployment, variant in state.variants():
        state = _plan_variant(state, deployment, variant, context)
    return state


def _plan_variant(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    components = _list_living(state, variant)
    if not components:
        return state
    hosts = state.hosts(deployment.generation, variant.variant.name)
    generation, name = deployment.generation, variant.variant.name
    of_components = [state.list_variant_copies(generation, name, it.name) for it in components]
    copies = itertools.chain.from_iterable(of_components)
    state = state.add_copies(stop_failed_copies(copies, context.now))
    types = get_instance_types(variant.variant, hosts)
    missing: list[Missing] = []
    for component in components:
        desired = count_desired_copies(state, component, deployment, context)
        after = state.add_copies(_list_leaving(desired, context))
        if after is not state:
            state = after
            desired = count_desired_copies(state, component, deployment, context)
        if desired.missing:
            request = build_copy_request(component, desired.spec, types)
            missing += [(desired, request)] * desired.missing
    state, unplaced = _place_missing(state, state.able(hosts, context.now), missing, context)
    # The copies placed above count from here on, as the number of exchanges depends on them.
    unplaced = [_recount(state, it, deployment, context) for it in unplaced]
    unplaced = [explain_unable(it, state, hosts, context.now) for it in unplaced]
    state, waiting = make_way(state, hosts, unplaced, context)
    state, refused = grow_fleet(state, deployment, variant, waiting, context)
    if state.endpoint is None or deployment.generation != state.endpoint.active.generation:
        return state
    reasons = {it.desired.component.name: it.why.text for it in (*unplaced, *refused)}
    return _set_notes(state, components, deployment, reasons)


def _recount(
    state: EndpointState, unplaced: Unplaced, deployment: Deployment, context: PlanContext
) -> Unplaced:
    component = unplaced.desired.component
    return replace(unplaced, desired=count_desired_copies(state, component, deployment, context))


def _list_living(state: EndpointState, variant: EndpointVariant) -> list[InferenceComponent]:
    """The base components on a variant that may need other copies, the oldest first."""
    bases = [it for it in state.dirty_components() if it.spec is not None]
    living = [it for it in bases if it.status in LIVE_COMPONENT]
    mine = [it for it in living if it.variant_name == variant.variant.name]
    return sorted(mine, key=operator.attrgetter("created_at", "name"))


def _list_leaving(desired: DesiredCopies, context: PlanContext) -> list[Copy]:
    """The surplus copies draining. A FAILED copy is stopped, as it has no requests to drain."""
    failed = [it for it in desired.others if it.status.phase is CopyPhase.FAILED]
    surplus = [drain_copy(it, context) for it in desired.surplus]
    return surplus + [stop_copy(it, context.now) for it in failed]


def _place_missing(
    state: EndpointState, hosts: Sequence[Instance], missing: list[Missing], context: PlanContext
) -> tuple[EndpointState, list[Unplaced]]:
    """The state with the missing copies that fit on `hosts`, and those that do not."""
    state, missing = _place_elsewhere(state, hosts, missing, context)
    if not missing:
        return state, []
    packing = place([it for _, it in missing], to_hosts(hosts), get_held(state, hosts))
    found, unplaced = [], []
    for (desired, request), outcome in zip(missing, packing.outcomes, strict=True):
        if isinstance(outcome, Placed):
            found.append(build_component_copy(state, desired, outcome, context))
        else:
            unplaced.append(Unplaced(desired=desired, request=request, why=outcome))
    return state.add_copies(found), unplaced


def _place_elsewhere(
    state: EndpointState,
    hosts: Sequence[Instance],
    missing: Sequence[Missing],
    context: PlanContext,
) -> tuple[EndpointState, list[Missing]]:
    """Place successors of FAILED copies on other instances, if one holds them.

    The instance may be why the copy failed. If no other one holds it, it is tried there again.
    """
    left = []
    for desired, request in missing:
        copies = state.list_copies(desired.component.name)
        failed_on = {it.instance_id for it in copies if it.status.phase is CopyPhase.FAILED}
        elsewhere = [it for it in hosts if it.id not in failed_on]
        found: list[Copy] = []
        if len(elsewhere) < len(hosts):
            packing = place([request], to_hosts(elsewhere), get_held(state, elsewhere))
            found = [build_component_copy(state, desired, it, context) for it in packing.placed]
            state = state.add_copies(found)
        if not found:
            left.append((desired, request))
    return state, left


def build_component_copy(
    state: EndpointState, desired: DesiredCopies, placed: Placed, context: PlanContext
) -> Copy:
    """A new copy of the desired specification, where placement put it."""
    instance, name = state.instances[placed.instance_id], desired.component.name
    typed = desired.spec.on(instance.instance_type)
    assert typed is not None, "placement gives no copy to an instance of a type without a spec"
    spec = CopySpec(
        id="",
        owner=f"component/{name}",
        container=typed.container,
        requirements=typed.requirements,
        download_timeout_s=typed.download_timeout_s,
        startup_timeout_s=typed.startup_timeout_s,
        adapters=list_desired_adapters(state, name, context.now),
        device_ids=placed.device_ids,
    )
    return build_copy(instance, name, desired.spec.generation, spec, context)


def _set_notes(
    state: EndpointState,
    components: Sequence[InferenceComponent],
    deployment: Deployment,
    reasons: Mapping[str, str],
) -> EndpointState:
    """The state with a note on each component: why some of its copies do not serve."""
    noted: list[InferenceComponent] = []
    for component in components:
        now = state.components[component.name]
        copies = state.list_variant_copies(deployment.generation, now.variant_name, now.name)
        note = build_placement_note(reasons.get(now.name), copies)
        if now.status is not ComponentStatus.DELETING and now.placement_note != note:
            noted.append(replace(now, placement_note=note))
    return state.replace_components(noted)


def make_way(
    state: EndpointState,
    hosts: Sequence[Instance],
    unplaced: Sequence[Unplaced],
    context: PlanContext,
) -> tuple[EndpointState, list[Unplaced]]:
    """The state in which old copies make way, and the copies that need another instance."""
    able = state.able(hosts, context.now)
    short = _find_short(state, able, unplaced)
    left: list[Unplaced] = []
    busy: set[str] = set()
    for missing in short:
        name = missing.desired.component.name
        if name in busy or _is_exchanging(state, able, missing.desired):
            continue
        in_the_way = _find_in_the_way(state, able, missing)
        if in_the_way and _may_stop(missing.desired, in_the_way):
            state = state.add_copies(drain_copy(copy, context) for copy in in_the_way)
            busy.add(name)
        else:
            left.append(missing)
    return state, left


def _find_short(
    state: EndpointState, hosts: Sequence[Instance], unplaced: Sequence[Unplaced]
) -> list[Unplaced]:
    """The copies that do not fit even once all draining copies are gone."""
    if not unplaced:
        return []
    held = get_held(state, hosts)
    staying = [it for it in held if not it.leaving]
    if len(staying) == len(held):
        return list(unplaced)
    packing = place([it.request for it in unplaced], to_hosts(hosts), staying)
    pairs = zip(unplaced, packing.outcomes, strict=True)
    return [it for it, outcome in pairs if not isinstance(outcome, Placed)]


def _is_exchanging(state: EndpointState, hosts: Sequence[Instance], desired: DesiredCopies) -> bool:
    """Whether as many old copies are being exchanged for new ones as may be at once."""
    ids = {it.id for it in hosts}
    if not any(it.instance_id in ids for it in desired.others):
        return False
    if desired.min_ready is not None and desired.num_ready > desired.min_ready:
        return False
    copies = state.list_copies(desired.component.name)
    draining = any(it.draining and it.instance_id in ids for it in copies)
    return draining or not all(is_routable(it) for it in desired.current)


def _may_stop(desired: DesiredCopies, copies: Sequence[Copy]) -> bool:
    """Whether enough copies serve without these."""
    serving = sum(1 for it in copies if is_routable(it))
    return desired.min_ready is None or desired.num_ready - serving >= desired.min_ready


def _find_in_the_way(
    state: EndpointState, hosts: Sequence[Instance], short: Unplaced
) -> list[Copy]:
    """The fewest old copies, all on one instance, whose end makes room for one new copy."""
    choices: list[list[Copy]] = []
    for host in hosts:
        worst_first = [it for it in short.desired.others if it.instance_id == host.id][::-1]
        for count in range(1, len(worst_first) + 1):
            stopping = {it.spec.id for it in worst_first[:count]}
            held = [it for it in get_held(state, [host]) if it.copy_id not in stopping]
            if place([short.request], to_hosts([host]), held).placed:
                choices.append(worst_first[:count])
                break
    return min(choices, key=len, default=[])
