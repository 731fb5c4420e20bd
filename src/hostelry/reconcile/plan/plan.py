"""The whole plan of one endpoint: from what is recorded and observed to what should be recorded.

Pure and idempotent: a plan made again from its own result, with nothing new observed, changes
nothing. `desired_by_instance` is what the agents are to run then, `next_look_at` when time alone
matters next.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from hostelry.domain.copy import Copy, CopyPhase, CopySpec, InstanceState
from hostelry.reconcile.plan.adapter_status import FORGET_S, plan_adapter
from hostelry.reconcile.plan.adapters import adapter_leaves_at
from hostelry.reconcile.plan.component_copies import plan_component_copies
from hostelry.reconcile.plan.component_status import plan_component
from hostelry.reconcile.plan.deadlines import with_deadlines
from hostelry.reconcile.plan.drains import drain_instants, plan_drains
from hostelry.reconcile.plan.endpoint_state import LOST_S, EndpointState, PlanContext, drained
from hostelry.reconcile.plan.endpoint_status import plan_endpoint, reuse_instances
from hostelry.reconcile.plan.guards import bake_instants
from hostelry.reconcile.plan.instances import launch_instants, plan_instances
from hostelry.reconcile.plan.model_copies import (
    plan_adapters_on_copies,
    plan_model_copies,
    retry_at,
)
from hostelry.reconcile.plan.moves import move_instants, plan_moves
from hostelry.reconcile.plan.observed import with_observations
from hostelry.reconcile.plan.rollout import plan_rollouts, rollout_instants
from hostelry.reconcile.plan.scale_in import plan_scale_in, scale_in_instants

MAX_ROUNDS = 50
FORGET_UNTOLD_S = 10.0
FORGET_TOLD_S = 60.0

Stage = Callable[[EndpointState, PlanContext], EndpointState]


def plan(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state as it should be recorded now."""
    state = with_observations(state, context.now)
    for _ in range(MAX_ROUNDS):
        after = _round(state, context)
        if after == state:
            return state
        state = after
    raise AssertionError(f"the plan of {state.endpoint} does not settle")


def desired_by_instance(state: EndpointState, now: float) -> dict[str, tuple[CopySpec, ...] | None]:
    """What each instance's agent is to run, by instance id; None: the instance is to end.

    An instance on its way out goes on until its last copy has drained.
    """
    wanted = {
        instance_id: tuple(
            it.spec
            for it in sorted(state.copies_at(instance_id), key=lambda it: it.spec.id)
            if _is_kept(it, now)
        )
        for instance_id in state.instances
    }
    return {
        instance_id: None if _is_ending(state, instance_id) and not specs else specs
        for instance_id, specs in wanted.items()
    }


def next_look_at(state: EndpointState, context: PlanContext) -> float | None:
    """When this state should be planned again though nothing happened; None: never."""
    return min((at for at in _instants(state, context) if at > context.now), default=None)


def _round(state: EndpointState, context: PlanContext) -> EndpointState:
    for stage in STAGES:
        state = stage(state, context)
    return state


def _plan_components(state: EndpointState, context: PlanContext) -> EndpointState:
    for name, component in sorted(state.components.items()):
        step = plan_component if component.adapter is None else plan_adapter
        after = step(state, component, context)
        if after is None:
            left = {it: value for it, value in state.components.items() if it != name}
            state = replace(state, components=left)
        else:
            state = state.with_component(after)
    return state


def _without_gone(state: EndpointState, context: PlanContext) -> EndpointState:
    """Forgets instances that have ended with their copies, and copies that their agents stopped."""
    ended = {
        it.id
        for it in state.instances.values()
        if it.state is InstanceState.TERMINATING and state.facts_of(it.id).gone
    }
    if ended:
        left = {name: it for name, it in state.instances.items() if name not in ended}
        state = replace(state, instances=left)
    gone = {name for name, it in state.copies.items() if _is_gone(state, it, context.now)}
    if not gone:
        return state
    return replace(state, copies={it: one for it, one in state.copies.items() if it not in gone})


def _is_gone(state: EndpointState, copy: Copy, now: float) -> bool:
    if copy.instance_id not in state.instances:
        return True
    if copy.drain_deadline_at is None or _is_kept(copy, now):
        return False
    facts = state.facts_of(copy.instance_id)
    told = facts.observation is not None and copy.spec.id not in facts.applied
    # An agent out of reach will be told whenever it answers again: a delete need not wait for it.
    if now >= copy.drain_deadline_at + (FORGET_TOLD_S if told else FORGET_UNTOLD_S):
        return True
    if facts.observation is None or _is_ending(state, copy.instance_id):
        return False
    running = {it.id for it in facts.observation.copies}
    return told and copy.spec.id not in running


def _without_homeless(state: EndpointState, context: PlanContext) -> EndpointState:
    """Copies whose component is gone leave, should a write have been lost between the two."""
    homeless = [
        it
        for it in state.copies.values()
        if it.component_name is not None and it.component_name not in state.components
    ]
    return state.with_copies([drained(it, context) for it in homeless])


def _is_kept(copy: Copy, now: float) -> bool:
    return copy.drain_deadline_at is None or now < copy.drain_deadline_at


def _is_ending(state: EndpointState, instance_id: str) -> bool:
    return state.instances[instance_id].state is InstanceState.TERMINATING


def _instants(state: EndpointState, context: PlanContext) -> Iterator[float]:
    for record in (state.endpoint, *state.components.values()):
        if record is not None and record.deadline_at is not None:
            yield record.deadline_at
    yield from bake_instants(state, context)
    for component in state.components.values():
        yield from rollout_instants(component, context)
        if component.adapter is not None:
            yield adapter_leaves_at(component)
            yield adapter_leaves_at(component) + FORGET_S
    for copy in state.copies.values():
        yield from _copy_instants(copy)
    for facts in state.facts.values():
        if facts.unreachable_since is not None:
            yield facts.unreachable_since + LOST_S
    yield from launch_instants(state, context)
    yield from scale_in_instants(state, context)


def _copy_instants(copy: Copy) -> Iterator[float]:
    yield from drain_instants(copy)
    yield from move_instants(copy)
    if copy.drain_deadline_at is not None:
        yield copy.drain_deadline_at
        yield copy.drain_deadline_at + FORGET_UNTOLD_S
        yield copy.drain_deadline_at + FORGET_TOLD_S
    if copy.status.phase is CopyPhase.FAILED:
        yield retry_at(copy)


def _deadlines(state: EndpointState, context: PlanContext) -> EndpointState:
    return with_deadlines(state, context.now)


def _reuse(state: EndpointState, context: PlanContext) -> EndpointState:
    return reuse_instances(state)


STAGES: tuple[Stage, ...] = (
    _deadlines,
    _reuse,
    plan_instances,
    _without_homeless,
    plan_model_copies,
    plan_rollouts,
    plan_component_copies,
    plan_adapters_on_copies,
    _plan_components,
    plan_endpoint,
    plan_moves,
    plan_scale_in,
    plan_drains,
    _without_gone,
)
