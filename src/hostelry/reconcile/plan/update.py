"""An endpoint's update to another deployment: its progress, and the endpoint after the next step.

`update_step` decides the step; here its inputs are observed and the step is carried out.
"""

from dataclasses import replace

from hostelry.domain.endpoint import Bake, Deployment, Endpoint
from hostelry.domain.resize import deployment_deadline
from hostelry.reconcile.plan.deadlines import is_overdue
from hostelry.reconcile.plan.deployed import (
    can_serve_again,
    deployment_failure,
    is_up,
    still_missing,
    stopped_serving,
    stranded,
)
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext
from hostelry.reconcile.plan.guards import bake_ends_at, guard_failure
from hostelry.reconcile.plan.status_end import in_service
from hostelry.reconcile.plan.update_step import UpdatePhase, UpdateProgress, UpdateStep, next_step

BAKE_SLACK_S = 60.0  # for the pass that ends it


def updated(state: EndpointState, endpoint: Endpoint, context: PlanContext) -> Endpoint:
    """The endpoint, which has a deployment beside its active one, after the next step."""
    if endpoint.pending is not None:
        return _brought_up(state, endpoint, endpoint.pending, context)
    assert endpoint.bake is not None, "a deployment beside the active one is pending, or kept"
    return _tried(state, endpoint, endpoint.bake, context)


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
            is_guarded=pending.guard is not None and pending.guard.bake_s > 0,
        )
    )
    if step is UpdateStep.WAIT:
        return endpoint
    if step is UpdateStep.DROP:
        failure = failure or still_missing(state, pending)
        return in_service(replace(endpoint, pending=None), failure, context.now)
    serving = replace(endpoint, active=pending, pending=None)
    if step is UpdateStep.TAKE_OVER:
        return in_service(serving, None, context.now)
    bake_s = 0.0 if pending.guard is None else pending.guard.bake_s
    return replace(
        serving,
        bake=Bake(before=endpoint.active, since=context.now),
        deadline_at=context.end_of(context.now, bake_s) + BAKE_SLACK_S,
    )


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
    return (
        guard_failure(endpoint.active, context)
        or deployment_failure(state, endpoint.active)
        or stopped_serving(state, bake.before)
    )
