"""An endpoint's update to another deployment: its progress, and the endpoint after the next step.

`update_step` decides the step. This module observes its inputs and carries it out.
"""

from msgspec.structs import replace

from hostelry.domain.endpoint import Bake, Deployment, Endpoint, Shift, ShiftStage, UpdateGuard
from hostelry.domain.resize import deployment_deadline
from hostelry.reconcile.plan.batches import (
    are_back,
    build_rolling_fleets,
    get_present_fleet,
    get_serving_fleet,
    is_mostly_new,
    old_batch_is_gone,
)
from hostelry.reconcile.plan.deployed import (
    can_serve_again,
    describe_missing_parts,
    find_ceased,
    find_deployment_failure,
    find_stranded,
    is_up,
    stopped_serving,
)
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext
from hostelry.reconcile.plan.guards import find_guard_failure, get_bake_end, get_shift_end
from hostelry.reconcile.plan.status import end_in_service, is_overdue
from hostelry.reconcile.plan.update_step import UpdatePhase, UpdateProgress, UpdateStep, next_step

BAKE_SLACK_S = 60.0  # for the pass that ends it
PHASES = {
    ShiftStage.BAKING: UpdatePhase.SHIFTING,
    ShiftStage.LEAVING: UpdatePhase.REPLACING,
    ShiftStage.COMING: UpdatePhase.JOINING,
}


def plan_update(state: EndpointState, endpoint: Endpoint, context: PlanContext) -> Endpoint:
    """The endpoint, which has a pending deployment, after the next step."""
    endpoint = _begun_by(endpoint, context.now)
    if endpoint.pending is None:
        assert endpoint.bake is not None, "a deployment beside the active one is pending, or kept"
        return _begin_trial(state, endpoint, endpoint.bake, context)
    if endpoint.shift is None:
        return _brought_up(state, endpoint, endpoint.pending, context)
    return _shift_traffic(state, endpoint, endpoint.pending, endpoint.shift, context)


def _begun_by(endpoint: Endpoint, now: float) -> Endpoint:
    """The endpoint whose step or trial began by `now`, as it must have after a clock was set back.

    Otherwise it would last longer by as much as the clock was ahead.
    """
    shift, bake = endpoint.shift, endpoint.bake
    if shift is not None and shift.since > now:
        return replace(endpoint, shift=replace(shift, since=now))
    if bake is not None and bake.since > now:
        return replace(endpoint, bake=replace(bake, since=now))
    return endpoint


def _brought_up(
    state: EndpointState, endpoint: Endpoint, pending: Deployment, context: PlanContext
) -> Endpoint:
    """The endpoint after the next step of bringing up its pending deployment."""
    failure = find_guard_failure(pending, context)
    failure = (
        failure or find_deployment_failure(state, pending) or find_stranded(state, pending, context)
    )
    present = get_present_fleet(state, pending)
    step = next_step(
        UpdateProgress(
            phase=UpdatePhase.COMING,
            has_failed=failure is not None,
            is_ready=failure is None and is_up(state, present),
            is_late=is_overdue(endpoint, context.now),
            has_steps=pending.is_rolling or pending.num_steps > 1,
            is_guarded=_has_bake(pending),
        )
    )
    if step is UpdateStep.WAIT:
        return endpoint
    if step is UpdateStep.DROP:
        failure = failure or describe_missing_parts(state, present)
        return end_in_service(replace(endpoint, pending=None), failure, context.now)
    return _give_more_traffic(endpoint, pending, step, context)


def _shift_traffic(
    state: EndpointState,
    endpoint: Endpoint,
    pending: Deployment,
    shift: Shift,
    context: PlanContext,
) -> Endpoint:
    """The endpoint after the next step of its traffic's shift, or of the return from it."""
    if shift.failure is not None:
        return _return_to_old(state, endpoint, pending, shift, context)
    guard, is_late = pending.guard, is_overdue(endpoint, context.now)
    failure = _gradual_failure(state, get_serving_fleet(pending, shift), shift.since, context)
    if failure is None and is_late and shift.stage is ShiftStage.COMING:
        failure = _late(state, pending)
    step = next_step(
        UpdateProgress(
            phase=PHASES[shift.stage],
            has_failed=failure is not None,
            is_ready=_is_there(state, endpoint, pending, shift)
            if failure is None
            else _can_go_back(state, endpoint, pending),
            is_late=is_late,
            has_steps=shift.step + (0 if pending.is_rolling else 1) < pending.num_steps,
            in_batches=pending.is_rolling,
            is_guarded=_has_bake(pending),
            is_baked=guard is None or context.now >= get_shift_end(guard, shift, context),
        )
    )
    if step is UpdateStep.WAIT:
        return endpoint
    if step is UpdateStep.GO_BACK:
        return end_in_service(replace(endpoint, pending=None, shift=None), failure, context.now)
    if step is UpdateStep.RETURN:
        return _begin_return(endpoint, replace(shift, failure=failure), context)
    if step in (UpdateStep.REPLACE, UpdateStep.PROVISION):
        return _begin_next_batch(endpoint, pending, shift, step, context)
    return _give_more_traffic(endpoint, pending, step, context)


def _is_there(state: EndpointState, endpoint: Endpoint, pending: Deployment, shift: Shift) -> bool:
    """Whether the stage of a step can end: the old instances are gone, or the new ones are up."""
    if shift.stage is ShiftStage.LEAVING:
        return old_batch_is_gone(state, endpoint)
    return shift.stage is ShiftStage.COMING and is_up(state, get_present_fleet(state, pending))


def _late(state: EndpointState, pending: Deployment) -> str | None:
    """The missing parts of a batch that did not come up in time. None if it is up."""
    present = get_present_fleet(state, pending)
    return None if is_up(state, present) else describe_missing_parts(state, present)


def _can_go_back(state: EndpointState, endpoint: Endpoint, pending: Deployment) -> bool:
    """Whether the old deployment can take all requests, in a rolling update with all instances."""
    if not can_serve_again(state, endpoint.active):
        return False
    return not pending.is_rolling or are_back(build_rolling_fleets(state, endpoint))


def _begin_next_batch(
    endpoint: Endpoint, pending: Deployment, shift: Shift, step: UpdateStep, context: PlanContext
) -> Endpoint:
    """The endpoint whose old instances of this batch leave, or whose next batch comes up."""
    now = context.now
    if step is UpdateStep.REPLACE:
        stage, deadline_at = ShiftStage.LEAVING, now + context.max_drain_s + BAKE_SLACK_S
    else:
        stage, deadline_at = ShiftStage.COMING, deployment_deadline(pending, now)
    return replace(
        endpoint, shift=replace(shift, stage=stage, stage_since=now), deadline_at=deadline_at
    )


def _return_to_old(
    state: EndpointState,
    endpoint: Endpoint,
    pending: Deployment,
    shift: Shift,
    context: PlanContext,
) -> Endpoint:
    """The endpoint after the next step of the return from a shift that failed.

    Each time that new instances leave a rolling update, the deadline begins again.
    """
    fleets = build_rolling_fleets(state, endpoint) if pending.is_rolling else []
    step = next_step(
        UpdateProgress(
            phase=UpdatePhase.RETURNING,
            is_ready=_can_go_back(state, endpoint, pending),
            is_late=is_overdue(endpoint, context.now),
            is_mostly_new=is_mostly_new(fleets),
        )
    )
    if step is UpdateStep.GO_BACK:
        return end_in_service(
            replace(endpoint, pending=None, shift=None), shift.failure, context.now
        )
    if step is UpdateStep.KEEP:
        lacks = describe_missing_parts(state, endpoint.active)
        failure = (
            f"{shift.failure} But the old instances did not come up again in time, so that"
            f" {pending.config.name} serves: {lacks}"
        )
        kept = replace(endpoint, active=pending, pending=None, shift=None)
        return end_in_service(kept, failure, context.now)
    left = sum(len(it.new_hosts) for it in fleets)
    if fleets and (shift.left is None or left < shift.left):
        return _begin_return(endpoint, replace(shift, left=left), context)
    return endpoint


def _begin_return(endpoint: Endpoint, shift: Shift, context: PlanContext) -> Endpoint:
    """The endpoint on the way back, with the deadline of the old instances that come up."""
    deadline_at = deployment_deadline(endpoint.active, context.now)
    if shift.left is not None:
        deadline_at += context.max_drain_s
    return replace(endpoint, shift=shift, deadline_at=deadline_at)


def _give_more_traffic(
    endpoint: Endpoint, pending: Deployment, step: UpdateStep, context: PlanContext
) -> Endpoint:
    """The endpoint whose pending deployment has the next part of the traffic, or all."""
    guard, now = pending.guard or UpdateGuard(), context.now
    if step is UpdateStep.SHIFT:
        number = 1 if endpoint.shift is None else endpoint.shift.step + 1
        return replace(
            endpoint,
            shift=Shift(step=number, since=now),
            deadline_at=context.get_wait_end(now, guard.traffic.wait_s) + BAKE_SLACK_S,
        )
    serving = replace(endpoint, active=pending, pending=None, shift=None)
    if step is UpdateStep.TAKE_OVER:
        return end_in_service(serving, None, now)
    return replace(
        serving,
        bake=Bake(before=endpoint.active, since=now),
        deadline_at=context.get_wait_end(now, guard.bake_s) + BAKE_SLACK_S,
    )


def _has_bake(pending: Deployment) -> bool:
    return pending.guard is not None and pending.guard.bake_s > 0


def _begin_trial(
    state: EndpointState, endpoint: Endpoint, bake: Bake, context: PlanContext
) -> Endpoint:
    """The endpoint after the next step of its trial, or of the return from a failed trial."""
    guard = endpoint.active.guard
    failure = bake.failure or _trial_failure(state, endpoint, bake, context)
    step = next_step(
        UpdateProgress(
            phase=UpdatePhase.BAKING if bake.failure is None else UpdatePhase.RETURNING,
            has_failed=failure is not None,
            is_ready=failure is not None and can_serve_again(state, bake.before),
            is_late=is_overdue(endpoint, context.now),
            is_baked=guard is None or context.now >= get_bake_end(guard, bake, context),
        )
    )
    if step is UpdateStep.WAIT:
        return endpoint
    if step is UpdateStep.FINISH:
        return end_in_service(replace(endpoint, bake=None), None, context.now)
    if step is UpdateStep.GO_BACK:
        return end_in_service(
            replace(endpoint, active=bake.before, bake=None), failure, context.now
        )
    return replace(
        endpoint,
        bake=replace(bake, failure=failure),
        deadline_at=deployment_deadline(bake.before, context.now),
    )


def _trial_failure(
    state: EndpointState, endpoint: Endpoint, bake: Bake, context: PlanContext
) -> str | None:
    """Why the deployment on trial is rolled back. None while it may stay."""
    active = endpoint.active
    if active.guard is not None and active.guard.traffic.is_gradual:
        return _gradual_failure(state, active, bake.since, context)
    return (
        find_guard_failure(active, context)
        or find_deployment_failure(state, active.without_shadow)
        or stopped_serving(state, bake.before)
    )


def _gradual_failure(
    state: EndpointState, deployment: Deployment, since: float, context: PlanContext
) -> str | None:
    """Why a deployment that takes traffic over in steps is rolled back. None while it may stay.

    Its present step began at `since`. One copy that does not serve any more is reason enough.
    """
    return (
        find_guard_failure(deployment, context)
        or find_deployment_failure(state, deployment.without_shadow)
        or find_ceased(state, deployment, since)
    )
