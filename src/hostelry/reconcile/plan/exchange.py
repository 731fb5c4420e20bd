"""Copies without a place: those that need only wait, and the old copies that make way for new."""

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
    """The state with old copies making way, and the copies that still need another instance."""
    able = state.able(hosts, context.now)
    short = _after_leaving(state, able, unplaced)
    left: list[Unplaced] = []
    busy: set[str] = set()
    for it in short:
        name = it.aim.component.name
        if name in busy or _is_exchanging(state, able, it.aim):
            continue  # what is under way comes first, so that the others serve
        in_the_way = _fewest_in_the_way(state, able, it)
        if in_the_way and _may_stop(it.aim, in_the_way):
            state = state.with_copies(drained(copy, context) for copy in in_the_way)
            busy.add(name)
        else:
            left.append(it)
    return state, left


def _after_leaving(
    state: EndpointState, hosts: Sequence[Instance], unplaced: Sequence[Unplaced]
) -> list[Unplaced]:
    """Those of `unplaced` that would have no place either if all that is leaving were gone."""
    held = held_on(state, hosts)
    staying = [it for it in held if not it.leaving]
    if not unplaced or len(staying) == len(held):
        return list(unplaced)
    packing = place([it.wanted for it in unplaced], hosts_of(hosts), staying)
    pairs = zip(unplaced, packing.outcomes, strict=True)
    return [it for it, outcome in pairs if not isinstance(outcome, Placed)]


def _is_exchanging(state: EndpointState, hosts: Sequence[Instance], aim: DesiredCopies) -> bool:
    """Whether the exchange of old copies for new ones has as many under way as it may."""
    ids = {it.id for it in hosts}
    if not any(it.instance_id in ids for it in aim.others):
        return False
    if aim.floor is not None and aim.num_ready > aim.floor:
        return False
    draining = any(
        it.draining and it.instance_id in ids for it in state.copies_of(aim.component.name)
    )
    return draining or not all(is_routable(it) for it in aim.current)


def _may_stop(aim: DesiredCopies, copies: Sequence[Copy]) -> bool:
    """Whether enough copies serve without these."""
    serving = sum(1 for it in copies if is_routable(it))
    return aim.floor is None or aim.num_ready - serving >= aim.floor


def _fewest_in_the_way(
    state: EndpointState, hosts: Sequence[Instance], short: Unplaced
) -> list[Copy]:
    """Old copies, on one instance, whose end makes room for one new copy; the fewest there are."""
    choices: list[list[Copy]] = []
    for host in hosts:
        worst_first = [it for it in short.aim.others if it.instance_id == host.id][::-1]
        for count in range(1, len(worst_first) + 1):
            stopping = {it.spec.id for it in worst_first[:count]}
            held = [it for it in held_on(state, [host]) if it.copy_id not in stopping]
            if place([short.wanted], hosts_of([host]), held).placed:
                choices.append(worst_first[:count])
                break
    return min(choices, key=len, default=[])
