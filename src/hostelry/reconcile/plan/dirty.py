"""Choice of the families that a plan must look at: changed since the last plan, or not settled.

A family is a base component with its adapters and their copies. It is dirty unless

- the last plan left it settled (see `_is_settled`): then no passage of time matters to it,
- its components and copies are the same objects as in the result of the last plan, and
- the inputs of every family are the same: the endpoint, its instances, and the facts about their
  agents except for their reports of copies.

A plan of the dirty families has the same result as a plan of all families.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.reconcile.plan.endpoint_state import (
    EndpointState,
    InstanceFacts,
    PlanContext,
    find_changed_families,
    is_routable,
)

FINAL_ADAPTER = frozenset({ComponentStatus.IN_SERVICE, ComponentStatus.FAILED})


def mark_dirty(state: EndpointState, last: EndpointState | None) -> EndpointState:
    """Return `state` with the families and reports that a plan must look at.

    `last` is the state that the last pass left, None before the first pass.
    """
    if last is None or last.dirty is None or not _is_comparable(state, last):
        return state
    news = frozenset(it for it in state.facts if _is_news(state.facts[it], last.facts[it]))
    return replace(state, dirty=last.dirty | find_changed_families(last, state), news=news)


def clear_settled(state: EndpointState, context: PlanContext) -> EndpointState:
    """Return the result of a plan with only those families dirty that are not settled."""
    endpoint, names = state.endpoint, state.dirty_names()
    if endpoint is None or not _is_calm(endpoint):
        return replace(state, dirty=frozenset(names))
    able = {it.id for it in state.able(state.instances.values(), context.now)}
    dirty = frozenset(it for it in names if not _is_settled(state, endpoint, it, able))
    return replace(state, dirty=dirty)


def instances_to_update(state: EndpointState, last: EndpointState | None) -> Iterator[str]:
    """The ids of the instances whose desired copies may have changed since `last`."""
    if last is None or last.dirty is None:
        yield from state.instances
        return
    names = find_changed_families(last, state) | last.dirty | set(state.dirty_names())
    touched = {
        copy.instance_id
        for name in names
        for side in (last, state)
        for copy in side.copy_set.by_component.get(name, {}).values()
    }
    for name, instance in state.instances.items():
        if name in touched or instance is not last.instances.get(name):
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


def _is_news(facts: InstanceFacts, before: InstanceFacts) -> bool:
    """Whether an instance's report must be read. Reports of use alone are equal."""
    return facts is not before and facts != before


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


def _is_settled(
    state: EndpointState, endpoint: Endpoint, name: str | None, able: Collection[str]
) -> bool:
    """Whether neither time nor what becomes of other families can change the plan of a family.

    All its components are in service, or adapters that failed. It has exactly the desired copies,
    and they serve on instances of the endpoint that are `able` to take copies.
    """
    family = state.families.get(name or "", {})
    base, num_copies = family.get(name or ""), len(state.copy_set.by_component.get(name, ()))
    if base is None:
        return not family and not num_copies
    if base.spec is None or not all(map(_is_final, family.values())):
        return False
    copies = state.list_variant_copies(endpoint.active.generation, base.variant_name, name)
    generation = base.spec.generation
    return len(copies) == num_copies == base.desired_copies and all(
        copy.generation == generation and copy.instance_id in able and _stays(copy)
        for copy in copies
    )


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
