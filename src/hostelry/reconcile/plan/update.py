"""An endpoint's update to another deployment: its progress, and the endpoint after the next step.

`update_step` decides the step; here its inputs are observed and the step is carried out.
"""

from dataclasses import replace

from hostelry.domain.endpoint import Bake, Deployment, Endpoint, Shift, UpdateGuard
from hostelry.domain.resize import deployment_deadline
from hostelry.reconcile.plan.deadlines import is_overdue
from hostelry.reconcile.plan.deployed import (
    can_serve_again,
    ceased,
    deployment_failure,
    is_up,
    still_missing,
    stopped_serving,
    stranded,
)
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext
from hostelry.reconcile.plan.guards import bake_ends_at, guard_failure, shift_ends_at
from hostelry.reconcile.plan.status_end import in_service
from hostelry.reconcile.plan.update_step import UpdatePhase, UpdateProgress, UpdateStep, next_step

BAKE_SLACK_S = 60.0  # for the pass that ends it


def updated(state: EndpointState, endpoint: Endpoint, context: PlanContext) -> Endpoint:
    """The endpoint, which has a deployment beside its active one, after the next step."""
    endpoint = _begun_by(endpoint, context.now)
    if endpoint.pending is None:
        assert endpoint.bake is not None, "a deployment beside the active one is pending, or kept"
        return _tried(state, endpoint, endpoint.bake, context)
    if endpoint.shift is None:
        return _brought_up(state, endpoint, endpoint.pending, context)
    return _shifted(state, endpoint, endpoint.pending, endpoint.shift, context)


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
    failure = guard_failure(pending, context)
    failure = failure or deployment_failure(state, pending) or stranded(state, pending, context)
    step = next_step(
        UpdateProgress(
            phase=UpdatePhase.COMING,
            has_failed=failure is not None,
            is_ready=failure is None and is_up(state, pending),
            is_late=is_overdue(endpoint, context.now),
            has_steps=pending.num_steps > 1,
            is_guarded=_has_bake(pending),
        )
    )
    if step is UpdateStep.WAIT:
        return endpoint
    if step is UpdateStep.DROP:
        failure = failure or still_missing(state, pending)
        return in_service(replace(endpoint, pending=None), failure, context.now)
    return _with_more_traffic(endpoint, pending, step, context)


def _shifted(
    state: EndpointState,
    endpoint: Endpoint,
    pending: Deployment,
    shift: Shift,
    context: PlanContext,
) -> Endpoint:
    """The endpoint after the next step of its traffic's shift, or of the return from it."""
    guard = pending.guard
    failure = shift.failure or _gradual_failure(state, pending, shift.since, context)
    step = next_step(
        UpdateProgress(
            phase=UpdatePhase.SHIFTING if shift.failure is None else UpdatePhase.RETURNING,
            has_failed=failure is not None,
            is_ready=failure is not None and can_serve_again(state, endpoint.active),
            is_late=is_overdue(endpoint, context.now),
            has_steps=shift.step + 1 < pending.num_steps,
            is_guarded=_has_bake(pending),
            is_baked=guard is None or context.now >= shift_ends_at(guard, shift, context),
        )
    )
    if step is UpdateStep.WAIT:
        return endpoint
    if step is UpdateStep.GO_BACK:
        return in_service(replace(endpoint, pending=None, shift=None), failure, context.now)
    if step is UpdateStep.RETURN:
        return replace(
            endpoint,
            shift=replace(shift, failure=failure),
            deadline_at=deployment_deadline(endpoint.active, context.now),
        )
    return _with_more_traffic(endpoint, pending, step, context)


def _with_more_traffic(
    endpoint: Endpoint, pending: Deployment, step: UpdateStep, context: PlanContext
) -> Endpoint:
    """The endpoint whose pending deployment has the next part of the traffic, or all."""
    guard, now = pending.guard or UpdateGuard(), context.now
    if step is UpdateStep.SHIFT:
        number = 1 if endpoint.shift is None else endpoint.shift.step + 1
        return replace(
            endpoint,
            shift=Shift(step=number, since=now),
            deadline_at=context.end_of(now, guard.traffic.wait_s) + BAKE_SLACK_S,
        )
    serving = replace(endpoint, active=pending, pending=None, shift=None)
    if step is UpdateStep.TAKE_OVER:
        return in_service(serving, None, now)
    return replace(
        serving,
        bake=Bake(before=endpoint.active, since=now),
        deadline_at=context.end_of(now, guard.bake_s) + BAKE_SLACK_S,
    )


def _has_bake(pending: Deployment) -> bool:
    return pending.guard is not None and pending.guard.bake_s > 0


def _tried(state: EndpointState, endpoint: Endpoint, bake: Bake, context: PlanContext) -> Endpoint:
    """The endpoint after the next step of its trial, or of the return from a failed trial."""
    guard = endpoint.active.guard
    failure = bake.failure or _trial_failure(state, endpoint, bake, context)
    step = next_step(
        UpdateProgress(
            phase=UpdatePhase.BAKING if bake.failure is None else UpdatePhase.RETURNING,
            has_failed=failure is not None,
            is_ready=failure is not None and can_serve_again(state, bake.before),
            is_late=is_overdue(endpoint, context.now),
            is_baked=guard is None or context.now >= bake_ends_at(guard, bake, context),
        )
    )
    if step is UpdateStep.WAIT:
        return endpoint
    if step is UpdateStep.FINISH:
        return in_service(replace(endpoint, bake=None), None, context.now)
    if step is UpdateStep.GO_BACK:
        return in_service(replace(endpoint, active=bake.before, bake=None), failure, context.now)
    return replace(
        endpoint,
        bake=replace(bake, failure=failure),
        deadline_at=deployment_deadline(bake.before, context.now),
    )


def _trial_failure(
    state: EndpointState, endpoint: Endpoint, bake: Bake, context: PlanContext
) -> str | None:
    """Why the deployment on trial is rolled back; None while it may stay."""
    active = endpoint.active
    if active.guard is not None and active.guard.traffic.is_gradual:
        return _gradual_failure(state, active, bake.since, context)
    return (
        guard_failure(active, context)
        or deployment_failure(state, active.without_shadow)
        or stopped_serving(state, bake.before)
    )


def _gradual_failure(
    state: EndpointState, deployment: Deployment, since: float, context: PlanContext
) -> str | None:
    """Why a deployment that takes traffic over in steps is rolled back; None while it may stay.

    Its present step began at `since`. One copy that does not serve any more is reason enough.
    """
    return (
        guard_failure(deployment, context)
        or deployment_failure(state, deployment.without_shadow)
        or ceased(state, deployment, since)
    )
