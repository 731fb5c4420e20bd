"""A rolling update of a component: batch after batch, or back the same way.

A batch is proven once all its copies serve; then it bakes for the policy's wait, then the next
begins. What fails, or takes longer than the policy allows, goes back to the specification before.
"""

from collections.abc import Iterator
from dataclasses import replace

from hostelry.domain.component import ComponentStatus, InferenceComponent, Rollout
from hostelry.domain.copy import CopyPhase
from hostelry.domain.deadline import start_deadline
from hostelry.reconcile.aims import aim_of, batch_size
from hostelry.reconcile.guards import alarm_failure
from hostelry.reconcile.reasons import copy_failure, failure_reason
from hostelry.reconcile.room import cannot_ever_fit
from hostelry.reconcile.world import Givens, World, is_routable


def plan_rollouts(world: World, givens: Givens) -> World:
    """The world with each rolling update as far as its copies have come."""
    if not world.deployments():
        return world
    for component in sorted(world.components.values(), key=lambda it: it.name):
        if component.rollout is not None and component.spec is not None:
            world = world.with_component(_advanced(world, component, component.rollout, givens))
    return world


def rollout_instants(component: InferenceComponent, givens: Givens) -> Iterator[float]:
    """When time alone may move the component's rolling update."""
    rollout = component.rollout
    if rollout is None or rollout.failure is not None:
        return
    if rollout.batch_ready_at is not None:
        yield givens.end_of(rollout.batch_ready_at, rollout.policy.wait_s)
    if rollout.policy.max_execution_s is not None:
        yield rollout.started_at + rollout.policy.max_execution_s


def _advanced(
    world: World, component: InferenceComponent, rollout: Rollout, givens: Givens
) -> InferenceComponent:
    if component.status is not ComponentStatus.UPDATING or component.desired_copies == 0:
        return replace(component, rollout=None)
    if rollout.failure is not None:
        return _further_back(world, component, rollout, givens)
    failure = _failure(world, component, rollout, givens)
    if failure is not None:
        return going_back(component, rollout, failure, givens)
    if rollout.new_copies == 0:
        return _next_batch(component, rollout, givens)
    ready = _num_ready(world, component, givens)
    if ready < rollout.new_copies:
        return replace(component, rollout=replace(rollout, batch_ready_at=None))
    if rollout.batch_ready_at is None:
        return replace(component, rollout=replace(rollout, batch_ready_at=givens.now))
    if not givens.after(rollout.batch_ready_at, rollout.policy.wait_s):
        return component
    if rollout.new_copies < component.desired_copies:
        return _next_batch(component, rollout, givens)
    return replace(component, rollout=None)  # what is left to do is what any update ends with


def _next_batch(
    component: InferenceComponent, rollout: Rollout, givens: Givens
) -> InferenceComponent:
    """The component with another batch on its way, and a deadline for that batch."""
    size = batch_size(component, rollout)
    further = min(component.desired_copies, rollout.new_copies + size)
    return replace(
        component,
        rollout=replace(rollout, new_copies=further, batch_ready_at=None),
        deadline_at=_batch_deadline(component, rollout, givens),
    )


def _batch_deadline(component: InferenceComponent, rollout: Rollout, givens: Givens) -> float:
    spec = component.spec
    assert spec is not None, "only a base component is updated batch by batch"
    starting_at = givens.end_of(givens.now, rollout.policy.wait_s)
    return start_deadline(starting_at, spec.download_timeout_s, spec.startup_timeout_s)


def _failure(
    world: World, component: InferenceComponent, rollout: Rollout, givens: Givens
) -> str | None:
    """Why the update must go back; None while it may go on."""
    alarm = alarm_failure(rollout.policy.alarm_names, givens)
    if alarm is not None:
        return alarm
    limit_s = rollout.policy.max_execution_s
    if limit_s is not None and givens.now >= rollout.started_at + limit_s:
        return (
            f"The rolling update did not end within MaximumExecutionTimeoutInSeconds, {limit_s:g}; "
            f"{rollout.new_copies} of {component.desired_copies} copies had been exchanged."
        )
    assert world.endpoint is not None, "components are planned with their endpoint"
    for variant in world.endpoint.active.variants:
        if variant.variant.name == component.variant_name:
            never = cannot_ever_fit(component, variant.variant, givens)
            if never is not None:
                return f"CapacityError: {never}"
    aim = aim_of(world, component, world.endpoint.active, givens)
    failed = (it for it in aim.current if it.status.phase is CopyPhase.FAILED)
    return next((copy_failure(it) for it in failed), None)


def going_back(
    component: InferenceComponent, rollout: Rollout, failure: str, givens: Givens
) -> InferenceComponent:
    """The component on its way back: one batch at once, or all where no batch is given."""
    back = replace(rollout, failure=failure_reason(failure), batch_ready_at=None)
    left = max(0, rollout.new_copies - batch_size(component, back))
    return replace(
        component,
        rollout=replace(back, new_copies=left),
        deadline_at=_batch_deadline(component, back, givens),
    )


def _further_back(
    world: World, component: InferenceComponent, rollout: Rollout, givens: Givens
) -> InferenceComponent:
    """The next batch back, once the copies of this one serve."""
    wanted = component.desired_copies - rollout.new_copies
    if rollout.new_copies == 0 or _num_ready(world, component, givens) < wanted:
        return component
    left = max(0, rollout.new_copies - batch_size(component, rollout))
    return replace(
        component,
        rollout=replace(rollout, new_copies=left),
        deadline_at=_batch_deadline(component, rollout, givens),
    )


def _num_ready(world: World, component: InferenceComponent, givens: Givens) -> int:
    """How many copies serve of the generation that the update goes to, or back to."""
    assert world.endpoint is not None, "components are planned with their endpoint"
    aim = aim_of(world, component, world.endpoint.active, givens)
    return sum(1 for it in aim.current if is_routable(it))
