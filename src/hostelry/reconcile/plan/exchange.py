"""Missing copies that fit nowhere: which of them wait, and which old copies make way for them.

a missing copy                                          result
-----------------------------------------------------   ------------------------------------
fits once all draining copies are gone                  waits
its component's exchange is under way already           waits, so that the others serve
old copies on one instance hold its room, and enough    the fewest such old copies drain
copies (`min_ready`) serve without them
any other                                               needs another instance (`growth`)
"""

from collections.abc import Sequence

from hostelry.domain.copy import Copy, Instance
from hostelry.placement.pack import place
from hostelry.placement.values import Placed
from hostelry.reconcile.plan.desired_copies import DesiredCopies
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext, drained, is_routable
from hostelry.reconcile.plan.placement_request import Unplaced, held_on, hosts_of


def without_what_will_fit(
    state: EndpointState,
    hosts: Sequence[Instance],
    unplaced: Sequence[Unplaced],
    context: PlanContext,
) -> tuple[EndpointState, list[Unplaced]]:
    """The state in which old copies make way, and the copies that need another instance."""
    able = state.able(hosts, context.now)
    short = _after_leaving(state, able, unplaced)
    left: list[Unplaced] = []
    busy: set[str] = set()
    for missing in short:
        name = missing.desired.component.name
        if name in busy or _is_exchanging(state, able, missing.desired):
            continue
        in_the_way = _fewest_in_the_way(state, able, missing)
        if in_the_way and _may_stop(missing.desired, in_the_way):
            state = state.add_copies(drained(copy, context) for copy in in_the_way)
            busy.add(name)
        else:
            left.append(missing)
    return state, left


def _after_leaving(
    state: EndpointState, hosts: Sequence[Instance], unplaced: Sequence[Unplaced]
) -> list[Unplaced]:
    """Those of `unplaced` that do not fit even once all draining copies are gone."""
    if not unplaced:
        return []
    held = held_on(state, hosts)
    staying = [it for it in held if not it.leaving]
    if len(staying) == len(held):
        return list(unplaced)
    packing = place([it.request for it in unplaced], hosts_of(hosts), staying)
    pairs = zip(unplaced, packing.outcomes, strict=True)
    return [it for it, outcome in pairs if not isinstance(outcome, Placed)]


def _is_exchanging(state: EndpointState, hosts: Sequence[Instance], desired: DesiredCopies) -> bool:
    """Whether as many old copies are being exchanged for new ones as may be at once."""
    ids = {it.id for it in hosts}
    if not any(it.instance_id in ids for it in desired.others):
        return False
    if desired.min_ready is not None and desired.num_ready > desired.min_ready:
        return False
    copies = state.copies_of(desired.component.name)
    draining = any(it.draining and it.instance_id in ids for it in copies)
    return draining or not all(is_routable(it) for it in desired.current)


def _may_stop(desired: DesiredCopies, copies: Sequence[Copy]) -> bool:
    """Whether enough copies serve without these."""
    serving = sum(1 for it in copies if is_routable(it))
    return desired.min_ready is None or desired.num_ready - serving >= desired.min_ready


def _fewest_in_the_way(
    state: EndpointState, hosts: Sequence[Instance], short: Unplaced
) -> list[Copy]:
    """The fewest old copies, all on one instance, whose end makes room for one new copy."""
    choices: list[list[Copy]] = []
    for host in hosts:
        worst_first = [it for it in short.desired.others if it.instance_id == host.id][::-1]
        for count in range(1, len(worst_first) + 1):
            stopping = {it.spec.id for it in worst_first[:count]}
            held = [it for it in held_on(state, [host]) if it.copy_id not in stopping]
            if place([short.request], hosts_of([host]), held).placed:
                choices.append(worst_first[:count])
                break
    return min(choices, key=len, default=[])
