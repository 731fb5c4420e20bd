"""Plans one endpoint: from recorded and observed state to the state to record next.

Pure and idempotent: planning its own result again, with nothing new observed, changes nothing.
From the result follow the copies that each agent should run (`desired_by_instance`), and the next
instant at which time alone matters (`next_plan_at`).
"""

from collections.abc import Callable, Iterator

from hostelry.domain.copy import Copy, CopyPhase, CopySpec, InstanceState
from hostelry.reconcile.plan.adapters import (
    FORGET_S,
    get_adapter_end,
    is_leaving,
    list_changing_adapters,
    plan_adapter,
)
from hostelry.reconcile.plan.component_copies import plan_component_copies
from hostelry.reconcile.plan.component_status import plan_component
from hostelry.reconcile.plan.dirty import instances_to_update
from hostelry.reconcile.plan.drains import list_drain_instants, plan_drains, set_drain_limit
from hostelry.reconcile.plan.endpoint_state import (
    LOST_AFTER_S,
    EndpointState,
    PlanContext,
    drain_copy,
)
from hostelry.reconcile.plan.endpoint_status import plan_endpoint, reuse_instances
from hostelry.reconcile.plan.guards import list_bake_instants
from hostelry.reconcile.plan.instances import list_launch_instants, plan_instances
from hostelry.reconcile.plan.model_copies import (
    get_retry_time,
    plan_adapters_on_copies,
    plan_environments,
    plan_model_copies,
)
from hostelry.reconcile.plan.moves import list_move_instants, plan_moves
from hostelry.reconcile.plan.observed import take_observations
from hostelry.reconcile.plan.restarts import list_restart_instants, plan_restarts
from hostelry.reconcile.plan.rollout import list_rollout_instants, plan_rollouts
from hostelry.reconcile.plan.scale_in import list_scale_in_instants, plan_scale_in
from hostelry.reconcile.plan.status import set_deadlines

MAX_ROUNDS = 50
FORGET_UNAPPLIED_S = 10.0
FORGET_APPLIED_S = 60.0

Stage = Callable[[EndpointState, PlanContext], EndpointState]
DesiredByInstance = dict[str, tuple[CopySpec, ...] | None]


def plan(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state to record now: the stages, repeated until they change nothing."""
    state, context = take_observations(state, context.now), set_drain_limit(state, context)
    for _ in range(MAX_ROUNDS):
        after = _run_stages(state, context)
        if after is state or after == state:
            return state
        state = after
    raise AssertionError(f"the plan of {state.endpoint} does not settle")


def desired_by_instance(
    state: EndpointState, now: float, last: EndpointState | None = None
) -> DesiredByInstance:
    """The copies that each instance's agent should run. None: the instance should end.

    A terminating instance runs until its last copy has drained. The result leaves out instances
    without a change since `last`, the state of the last call.
    """
    found: dict[str, tuple[CopySpec, ...] | None] = {}
    for instance_id in instances_to_update(state, last):
        specs = [it.spec for it in state.list_copies_at(instance_id) if _is_kept(it, now)]
        desired = tuple(sorted(specs, key=lambda it: it.id))
        found[instance_id] = desired or (None if _is_ending(state, instance_id) else ())
    return found


def next_plan_at(state: EndpointState, context: PlanContext) -> float | None:
    """The next instant at which time alone may change the plan. None: never."""
    return min((at for at in _list_instants(state, context) if at > context.now), default=None)


def _run_stages(state: EndpointState, context: PlanContext) -> EndpointState:
    for stage in STAGES:
        state = stage(state, context)
    return state


def _plan_components(state: EndpointState, context: PlanContext) -> EndpointState:
    for name in sorted(it for it in state.dirty_names() if it is not None):
        base = state.components.get(name)
        if base is not None and base.adapter is None:
            state = state.change_components({name: plan_component(state, base, context)})
        adapters = list_changing_adapters(state, name)
        after = {it.name: plan_adapter(state, it, context) for it in adapters}
        state = state.change_components(after)
    return state


def _remove_gone(state: EndpointState, context: PlanContext) -> EndpointState:
    """Remove the instances that ended, and the copies that are gone."""
    ended = [it for it in state.instances if _is_ending(state, it) and state.get_facts(it).gone]
    state = state.remove_instances(ended)
    copies, now = state.dirty_copies(), context.now
    return state.remove_copies(it.spec.id for it in copies if _is_gone(state, it, now))


def _is_gone(state: EndpointState, copy: Copy, now: float) -> bool:
    """Whether a copy's record may be removed.

    its instance                                        result
    -------------------------------------------------   ---------------------------------------
    has no record                                       gone
    applied the stop, the agent reports it no more      gone
    applied the stop, the agent still reports it        gone FORGET_APPLIED_S after its deadline
    did not apply it yet, or is out of reach            gone FORGET_UNAPPLIED_S after it: a delete
                                                        need not wait for an agent out of reach,
                                                        which stops the copy once it answers
    """
    if copy.instance_id not in state.instances:
        return True
    if copy.drain_deadline_at is None or _is_kept(copy, now):
        return False
    facts = state.get_facts(copy.instance_id)
    has_applied = facts.observation is not None and copy.spec.id not in facts.applied
    if now >= copy.drain_deadline_at + (FORGET_APPLIED_S if has_applied else FORGET_UNAPPLIED_S):
        return True
    if facts.observation is None or _is_ending(state, copy.instance_id):
        return False
    return has_applied and all(it.id != copy.spec.id for it in facts.observation.copies)


def _drain_homeless(state: EndpointState, context: PlanContext) -> EndpointState:
    """Drain the copies whose component is gone, as after an incomplete write."""
    copies = (it for it in state.dirty_copies() if it.component_name is not None)
    homeless = [it for it in copies if it.component_name not in state.components]
    return state.add_copies(drain_copy(it, context) for it in homeless)


def _is_kept(copy: Copy, now: float) -> bool:
    return copy.drain_deadline_at is None or now < copy.drain_deadline_at


def _is_ending(state: EndpointState, instance_id: str) -> bool:
    return state.instances[instance_id].state is InstanceState.TERMINATING


def _list_instants(state: EndpointState, context: PlanContext) -> Iterator[float]:
    for record in (state.endpoint, *state.dirty_components()):
        if record is not None and record.deadline_at is not None:
            yield record.deadline_at
    yield from list_bake_instants(state, context)
    for component in state.dirty_components():
        if component.rollout is not None:
            yield from list_rollout_instants(component, context)
        if component.adapter is not None and is_leaving(component):
            yield get_adapter_end(component)
            yield get_adapter_end(component) + FORGET_S
    for copy in state.dirty_copies():
        yield from _list_copy_instants(copy)
    for facts in state.facts.values():
        if facts.unreachable_since is not None:
            yield facts.unreachable_since + LOST_AFTER_S
    yield from list_launch_instants(state, context)
    yield from list_scale_in_instants(state, context)
    yield from list_restart_instants(state, context)


def _list_copy_instants(copy: Copy) -> Iterator[float]:
    yield from list_drain_instants(copy)
    yield from list_move_instants(copy)
    if copy.drain_deadline_at is not None:
        yield copy.drain_deadline_at
        yield copy.drain_deadline_at + FORGET_UNAPPLIED_S
        yield copy.drain_deadline_at + FORGET_APPLIED_S
    if copy.status.phase is CopyPhase.FAILED:
        yield get_retry_time(copy)


def _set_deadlines(state: EndpointState, context: PlanContext) -> EndpointState:
    return set_deadlines(state, context.now)


def _reuse_instances(state: EndpointState, context: PlanContext) -> EndpointState:
    return reuse_instances(state)


STAGES: tuple[Stage, ...] = (
    _set_deadlines,
    _reuse_instances,
    plan_restarts,
    plan_instances,
    _drain_homeless,
    plan_model_copies,
    plan_environments,
    plan_rollouts,
    plan_component_copies,
    plan_adapters_on_copies,
    _plan_components,
    plan_endpoint,
    plan_moves,
    plan_scale_in,
    plan_drains,
    _remove_gone,
)
