"""Stage: rolling updates of components, batch by batch, forward or back.

a rolling update                                     result
--------------------------------------------------   ------------------------------------------
an alarm, the time limit, a copy that FAILED, or     goes back: a first batch of old copies
a copy that fits on no type of instance
no batch has begun, or the last has baked            the next batch
copies of the batch do not serve (any more)          the bake has not begun
all copies of the batch serve                        bakes for WaitIntervalInSeconds
the last batch has baked                             no rollout: ends as any update does
goes back, and the old copies of the batch serve     the next batch back
the component is not Updating, or desires no copy    no rollout
"""

from collections.abc import Iterator

from msgspec.structs import replace

from hostelry.domain.component import ComponentStatus, InferenceComponent, Rollout
from hostelry.domain.copy import CopyPhase
from hostelry.domain.status import start_deadline
from hostelry.reconcile.plan.desired_copies import count_desired_copies, get_batch_size
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext, is_routable
from hostelry.reconcile.plan.guards import find_alarm_failure
from hostelry.reconcile.plan.placement_request import find_never_fits
from hostelry.reconcile.plan.status import build_failure_reason, describe_copy_failure


def plan_rollouts(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with each rolling update advanced by at most one step."""
    if not state.deployments():
        return state
    rolling = [it for it in state.dirty_components() if it.rollout is not None]
    for component in sorted(rolling, key=lambda it: it.name):
        if component.rollout is not None and component.spec is not None:
            state = state.replace_components(
                [_advance(state, component, component.rollout, context)]
            )
    return state


def list_rollout_instants(component: InferenceComponent, context: PlanContext) -> Iterator[float]:
    """Instants at which time alone may advance the component's rolling update."""
    rollout = component.rollout
    if rollout is None or rollout.failure is not None:
        return
    if rollout.batch_ready_at is not None:
        yield context.get_wait_end(rollout.batch_ready_at, rollout.policy.wait_s)
    if rollout.policy.max_execution_s is not None:
        yield rollout.started_at + rollout.policy.max_execution_s


def _advance(
    state: EndpointState, component: InferenceComponent, rollout: Rollout, context: PlanContext
) -> InferenceComponent:
    if component.status is not ComponentStatus.UPDATING or component.desired_copies == 0:
        return replace(component, rollout=None)
    if rollout.failure is not None:
        return _go_further_back(state, component, rollout, context)
    failure = _find_failure(state, component, rollout, context)
    if failure is not None:
        return roll_back(component, rollout, failure, context)
    if rollout.new_copies == 0:
        return _begin_next_batch(component, rollout, context)
    ready = _count_ready(state, component, context)
    if ready < rollout.new_copies:
        return replace(component, rollout=replace(rollout, batch_ready_at=None))
    if rollout.batch_ready_at is None:
        return replace(component, rollout=replace(rollout, batch_ready_at=context.now))
    if not context.after(rollout.batch_ready_at, rollout.policy.wait_s):
        return component
    if rollout.new_copies < component.desired_copies:
        return _begin_next_batch(component, rollout, context)
    return replace(component, rollout=None)


def _begin_next_batch(
    component: InferenceComponent, rollout: Rollout, context: PlanContext
) -> InferenceComponent:
    """The component with another batch under way, and a deadline for that batch."""
    size = get_batch_size(component, rollout)
    further = min(component.desired_copies, rollout.new_copies + size)
    return replace(
        component,
        rollout=replace(rollout, new_copies=further, batch_ready_at=None),
        deadline_at=_get_batch_deadline(component, rollout, context),
    )


def _get_batch_deadline(
    component: InferenceComponent, rollout: Rollout, context: PlanContext
) -> float:
    spec = component.spec
    assert spec is not None, "only a base component is updated batch by batch"
    starting_at = context.get_wait_end(context.now, rollout.policy.wait_s)
    return start_deadline(starting_at, spec.download_timeout_s, spec.startup_timeout_s)


def _find_failure(
    state: EndpointState, component: InferenceComponent, rollout: Rollout, context: PlanContext
) -> str | None:
    """Why the update is rolled back. None while it may proceed."""
    alarm = find_alarm_failure(rollout.policy.alarm_names, context)
    if alarm is not None:
        return alarm
    limit_s = rollout.policy.max_execution_s
    if limit_s is not None and context.now >= rollout.started_at + limit_s:
        return (
            f"The rolling update did not end within MaximumExecutionTimeoutInSeconds, {limit_s:g}; "
            f"{rollout.new_copies} of {component.desired_copies} copies had been exchanged."
        )
    assert state.endpoint is not None, "components are planned with their endpoint"
    for variant in state.endpoint.active.variants:
        if variant.variant.name == component.variant_name:
            never = find_never_fits(component, variant.variant, context)
            if never is not None:
                return f"CapacityError: {never}"
    desired = count_desired_copies(state, component, state.endpoint.active, context)
    failed = (it for it in desired.current if it.status.phase is CopyPhase.FAILED)
    return next((describe_copy_failure(it) for it in failed), None)


def roll_back(
    component: InferenceComponent, rollout: Rollout, failure: str, context: PlanContext
) -> InferenceComponent:
    """The component rolling back: one batch at once, or all where the policy has none."""
    back = replace(rollout, failure=build_failure_reason(failure), batch_ready_at=None)
    left = max(0, rollout.new_copies - get_batch_size(component, back))
    return replace(
        component,
        rollout=replace(back, new_copies=left),
        deadline_at=_get_batch_deadline(component, back, context),
    )


def _go_further_back(
    state: EndpointState, component: InferenceComponent, rollout: Rollout, context: PlanContext
) -> InferenceComponent:
    """The next batch back, once the copies of this one serve."""
    needed = component.desired_copies - rollout.new_copies
    if rollout.new_copies == 0 or _count_ready(state, component, context) < needed:
        return component
    left = max(0, rollout.new_copies - get_batch_size(component, rollout))
    return replace(
        component,
        rollout=replace(rollout, new_copies=left),
        deadline_at=_get_batch_deadline(component, rollout, context),
    )


def _count_ready(state: EndpointState, component: InferenceComponent, context: PlanContext) -> int:
    """The copies that serve of the generation that the update goes to, or back to."""
    assert state.endpoint is not None, "components are planned with their endpoint"
    desired = count_desired_copies(state, component, state.endpoint.active, context)
    return sum(1 for it in desired.current if is_routable(it))
