"""An endpoint's update to another deployment: how far it has come, and the endpoint after a step.

What to do next is decided in `update_step`, from the values that are found here.
"""

from dataclasses import replace

from hostelry.domain.endpoint import Bake, Deployment, Endpoint
from hostelry.domain.resize import deployment_deadline
from hostelry.domain.status import Event, next_status
from hostelry.reconcile.deadlines import is_overdue
from hostelry.reconcile.deployed import (
    can_serve_again,
    deployment_failure,
    is_up,
    still_missing,
    stopped_serving,
    stranded,
)
from hostelry.reconcile.guards import bake_ends_at, guard_failure
from hostelry.reconcile.reasons import failure_reason
from hostelry.reconcile.update_step import Phase, Progress, Step, next_step
from hostelry.reconcile.world import Givens, World

BAKE_SLACK_S = 60.0  # for the pass that ends it


def updated(world: World, endpoint: Endpoint, givens: Givens) -> Endpoint:
    """The endpoint, which has a deployment beside its active one, after the next step."""
    if endpoint.pending is not None:
        return _brought_up(world, endpoint, endpoint.pending, givens)
    assert endpoint.bake is not None, "a deployment beside the active one comes up, or is kept"
    return _tried(world, endpoint, endpoint.bake, givens)


def in_service(endpoint: Endpoint, failure: str | None, now: float) -> Endpoint:
    """The endpoint InService; `failure` tells why an update was rolled back."""
    event = Event.READY if failure is None else Event.ROLLED_BACK
    return replace(
        endpoint,
        status=next_status(endpoint.status, event),
        deadline_at=None,
        failure_reason=None if failure is None else failure_reason(failure),
        modified_at=now,
    )


def _brought_up(world: World, endpoint: Endpoint, pending: Deployment, givens: Givens) -> Endpoint:
    """The endpoint whose new deployment comes up beside the one that serves."""
    failure = guard_failure(pending, givens)
    failure = failure or deployment_failure(world, pending) or stranded(world, pending, givens)
    step = next_step(
        Progress(
            phase=Phase.COMING,
            has_failed=failure is not None,
            is_ready=failure is None and is_up(world, pending),
            is_late=is_overdue(endpoint, givens.now),
            is_guarded=pending.guard is not None and pending.guard.bake_s > 0,
        )
    )
    if step is Step.WAIT:
        return endpoint
    if step is Step.DROP:
        failure = failure or still_missing(world, pending)
        return in_service(replace(endpoint, pending=None), failure, givens.now)
    serving = replace(endpoint, active=pending, pending=None)
    if step is Step.TAKE_OVER:
        return in_service(serving, None, givens.now)
    bake_s = 0.0 if pending.guard is None else pending.guard.bake_s
    return replace(
        serving,
        bake=Bake(before=endpoint.active, since=givens.now),
        deadline_at=givens.end_of(givens.now, bake_s) + BAKE_SLACK_S,
    )


def _tried(world: World, endpoint: Endpoint, bake: Bake, givens: Givens) -> Endpoint:
    """The endpoint whose new deployment serves on trial, or until the one before can again."""
    guard = endpoint.active.guard
    failure = bake.failure or _trial_failure(world, endpoint, bake, givens)
    step = next_step(
        Progress(
            phase=Phase.BAKING if bake.failure is None else Phase.RETURNING,
            has_failed=failure is not None,
            is_ready=failure is not None and can_serve_again(world, bake.before),
            is_late=is_overdue(endpoint, givens.now),
            is_baked=guard is None or givens.now >= bake_ends_at(guard, bake, givens),
        )
    )
    if step is Step.WAIT:
        return endpoint
    if step is Step.FINISH:
        return in_service(replace(endpoint, bake=None), None, givens.now)
    if step is Step.GO_BACK:
        return in_service(replace(endpoint, active=bake.before, bake=None), failure, givens.now)
    return replace(
        endpoint,
        bake=replace(bake, failure=failure),
        deadline_at=deployment_deadline(bake.before, givens.now),
    )


def _trial_failure(world: World, endpoint: Endpoint, bake: Bake, givens: Givens) -> str | None:
    """Why the deployment on trial must go; None while it may stay."""
    return (
        guard_failure(endpoint.active, givens)
        or deployment_failure(world, endpoint.active)
        or stopped_serving(world, bake.before)
    )
