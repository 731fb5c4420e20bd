"""Families of components that a plan need not look at: nothing on them changed since the last one.

A family is a base component with its adapters and their copies. Between two plans it is settled if

- the last one left it settled (see `_is_settled`): then no passage of time matters to it,
- its components and copies are the very same objects, and
- what else counts for it is the same: the endpoint, its instances, and what is known of their
  agents but for the copies that these report.

What is not settled is planned as always; so a plan's result is the same without the last one's.
"""

import itertools
import operator
from collections.abc import Iterator, Mapping
from typing import Any

from hostelry.base.parts import parts_with_changes
from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.reconcile.plan.desired_copies import desired_copies_of
from hostelry.reconcile.plan.endpoint_state import (
    EndpointState,
    InstanceFacts,
    PlanContext,
    instance_of,
    is_routable,
)

Parts = Mapping[Any, Mapping[str, Any]]
FINAL_ADAPTER = frozenset({ComponentStatus.IN_SERVICE, ComponentStatus.FAILED})


def following(state: EndpointState, last: EndpointState | None) -> EndpointState:
    """`state`, with the families that the plan after `last`, a plan's result, must look at."""
    if last is None or not _is_comparable(state, last):
        return state
    families: set[str | None] = set(_differing(last.families, state.families))
    copies: set[str | None] = set(_differing(last.copy_parts, state.copy_parts))
    changed: dict[str, Copy | None] = {}
    for name in copies:
        changed |= dict.fromkeys(last.copy_parts.get(name, {}))
        changed |= state.copy_parts.get(name, {})
    state.know(
        _unsettled=frozenset(last.unsettled | families | copies),
        with_news=frozenset(it for it in state.facts if state.facts[it] is not last.facts[it]),
        instance_parts=parts_with_changes(last.instance_parts, last.copies, changed, instance_of),
    )
    return state


def without_settled(state: EndpointState, context: PlanContext) -> EndpointState:
    """A plan's result, with the families that are settled in it left out of `unsettled`."""
    endpoint = state.endpoint
    if endpoint is not None and _is_calm(endpoint):
        left = (it for it in state.unsettled if not _is_settled(state, endpoint, it, context))
        state.know(_unsettled=frozenset(left))
    return state


def instances_since(state: EndpointState, last: EndpointState | None) -> Iterator[str]:
    """The instances whose desired copies may not be those that followed from `last`."""
    if last is None:
        yield from state.instances
        return
    busy = {it.instance_id for it in state.unsettled_copies()}
    for name in state.instances:
        same = state.instance_parts.get(name) is last.instance_parts.get(name)
        if name in busy or not same or state.instances[name] is not last.instances.get(name):
            yield name


def _is_comparable(state: EndpointState, last: EndpointState) -> bool:
    """Whether what counts for every family is as in `last`."""
    endpoint = state.endpoint
    return (
        endpoint is not None
        and _is_calm(endpoint)
        and endpoint == last.endpoint
        and state.instances == last.instances
        and state.facts.keys() == last.facts.keys()
        and all(_are_alike(facts, last.facts[it]) for it, facts in state.facts.items())
    )


def _is_calm(endpoint: Endpoint) -> bool:
    """Whether the endpoint serves, with no update, no trial and no restart of copies under way."""
    is_changing = endpoint.pending or endpoint.bake or endpoint.shift or endpoint.restarts
    return endpoint.status is EndpointStatus.IN_SERVICE and not is_changing


def _are_alike(facts: InstanceFacts, before: InstanceFacts) -> bool:
    """Whether an instance's agent is in reach, and all but its copies is as before."""
    if facts.lost or facts.unreachable_since is not None:
        return False
    return facts is before or _without_report(facts) == _without_report(before)


def _without_report(facts: InstanceFacts) -> tuple[Any, ...]:
    return (
        facts.observation is None,
        facts.address,
        facts.problem,
        facts.terminal,
        facts.no_capacity,
        facts.attempts,
        facts.gone,
        facts.unreachable_since,
        facts.lost,
    )


def _differing(before: Parts, after: Parts) -> Iterator[Any]:
    """The names of the parts that are not the same objects."""
    if before is not after:
        yield from before.keys() - after.keys()
        known = map(before.get, after)
        yield from itertools.compress(after, map(operator.is_not, after.values(), known))


def _is_settled(
    state: EndpointState, endpoint: Endpoint, name: str | None, context: PlanContext
) -> bool:
    """Whether neither time nor what becomes of other families can change the plan of a family.

    All its components are in service, or adapters that failed; it has exactly the desired copies,
    and they serve.
    """
    family, copies = state.families.get(name or "", {}), state.copies_of(name)
    base = family.get(name or "")
    if name is None or base is None:
        return not family and not copies
    if base.spec is None or not all(map(_is_final, family.values())):
        return False
    desired = desired_copies_of(state, base, endpoint.active, context)
    return len(copies) == len(desired.current) == desired.count and all(map(_stays, copies))


def _is_final(component: InferenceComponent) -> bool:
    is_adapter = component.adapter is not None
    return (
        component.status is ComponentStatus.IN_SERVICE
        or (is_adapter and component.status in FINAL_ADAPTER)
    ) and (
        component.deadline_at is None
        and component.rollout is None
        and component.previous_spec is None
        and component.previous_adapter is None
        and component.placement_note is None
    )


def _stays(copy: Copy) -> bool:
    return is_routable(copy) and copy.replaces is None and copy.unready_since is None
