"""The progress of an endpoint's update as a text, and the history of its updates."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from hostelry.domain.endpoint import (
    Deployment,
    Endpoint,
    EndpointStatus,
    EndpointVariant,
    PastStep,
    PastUpdate,
    ShiftStage,
    UpdateGuard,
    UpdateOutcome,
)

ACTIVATING_S = 2.0  # until every gateway has the routes of a new step


def get_step(endpoint: Endpoint) -> tuple[int, float] | None:
    """The current step of an update and its start, or None if no new fleet serves."""
    if endpoint.shift is not None:
        return endpoint.shift.step, endpoint.shift.since
    if endpoint.bake is not None:
        return endpoint.active.num_steps, endpoint.bake.since
    return None


def step_title(deployment: Deployment, number: int) -> str:
    """The name of a step of the update to `deployment`, for texts."""
    word = "batch" if deployment.is_rolling else "step"
    return f"{word} {number} of {deployment.num_steps}"


def get_share(endpoint: Endpoint, deployment: Deployment, variant: EndpointVariant) -> float:
    """The share of a variant's traffic on its new fleet, which belongs to `deployment`.

    After a failure the share is 1. In a rolling update it is the share of the baked batches, and it
    shrinks as they go back.
    """
    shift = endpoint.shift
    if shift is None or deployment.guard is None:
        return 1.0
    step = shift.step
    if shift.failure is not None and not deployment.is_rolling:
        return 1.0
    if shift.failure is not None and shift.stage is ShiftStage.BAKING:
        step -= 1
    return deployment.guard.traffic.share(step, variant.desired_instance_count)


def update_progress(
    endpoint: Endpoint, now: float, pace: float, verdict: str | None = None
) -> str | None:
    """The progress of the whole update. None if no new fleet serves, or the update goes back.

    `verdict` is the verdict on the new fleet, if it is compared with the old fleet.
    """
    under_way = endpoint.shift or endpoint.bake
    is_updating = endpoint.status is EndpointStatus.UPDATING
    if under_way is None or under_way.failure is not None or not is_updating:
        return None
    deployment = endpoint.pending or endpoint.active
    shares = [get_share(endpoint, deployment, it) for it in deployment.production]
    text = progress_text(endpoint, deployment, shares, now, pace)
    return set_verdict(text, verdict)


def set_verdict(progress: str | None, verdict: str | None) -> str | None:
    """Add the verdict to the progress."""
    return progress if progress is None or verdict is None else f"{progress}; verdict: {verdict}"


def progress_text(
    endpoint: Endpoint, deployment: Deployment, shares: Collection[float], now: float, pace: float
) -> str | None:
    """Describe the current step of the update to `deployment`, which has `shares` of the traffic.

    None if its fleet does not serve yet. Waits are divided by `pace`.
    """
    step = get_step(endpoint)
    if step is None:
        return None
    number, _ = step
    guard = deployment.guard or UpdateGuard()
    least, most = (f"{100 * of(shares):.0f}" for of in (min, max))
    percent = most if least == most else f"{least} to {most}"
    alarms = ", ".join(guard.alarm_names)
    return (
        f"{step_title(deployment, number)}: {percent} % of traffic;"
        f" {_stage_text(endpoint, step, guard, now, pace)}; "
        + (f"alarms watched: {alarms}" if alarms else "no alarm is watched")
    )


def _stage_text(
    endpoint: Endpoint, step: tuple[int, float], guard: UpdateGuard, now: float, pace: float
) -> str:
    """The present activity of the step."""
    (number, since), shift = step, endpoint.shift
    if shift is not None and shift.stage is ShiftStage.LEAVING:
        return "the old instances that it replaces are being terminated"
    if shift is not None and shift.stage is ShiftStage.COMING:
        return f"batch {number + 1} comes up"
    wait_s = (guard.bake_s if shift is None else guard.traffic.wait_s) / pace
    return f"baking {max(0.0, now - since):.0f} s of {wait_s:g} s"


# The update is rolled back. Until the old fleet is ready, the rest of the new fleet serves.
RETURNING = "returning"
MAX_UPDATES = 5
MAX_STEPS = 24  # kept steps of one update, enough for the smallest batches and their rollback


def append_history(
    old: Endpoint | None, new: Endpoint | None, now: float, verdict: str | None = None
) -> Endpoint | None:
    """Return `new` with the history of `old`, and with the changes between them at `now`.

    `verdict` is the verdict on the step of `old`, if any. The newest `MAX_UPDATES` are kept. A step
    that did not change is not written again.

    the update before   the update after      the record
    -----------------   -------------------   --------------------------------------------------
    in a step           in the same step      nothing
    in a step           in another step       the end of the one, the begin of the other
    in a step           over                  the end of the step and of the update, its outcome

    A step of a rolling update is one batch: it bakes, old instances leave, and the next one comes
    up.
    """
    if old is None or new is None or (before := present_step(old)) is None:
        return new
    after = present_step(new)
    if after is not None and after.name == before.name:
        return new
    *earlier, update = known_updates(old)
    steps = [*update.steps[:-1], replace(update.steps[-1], ended_at=now, verdict=verdict)]
    if after is not None:
        steps.append(replace(after, began_at=now) if after.name == RETURNING else after)
    update = replace(
        update,
        steps=tuple(steps[-MAX_STEPS:]),
        steps_left_out=update.steps_left_out + max(0, len(steps) - MAX_STEPS),
        cause=get_cause(new),
    )
    if after is None:
        update = replace(update, ended_at=now, outcome=get_outcome(old, new))
    return replace(new, updates=(*earlier, update)[-MAX_UPDATES:])


def known_updates(endpoint: Endpoint) -> Sequence[PastUpdate]:
    """Every kept update, oldest first. The last update may be under way."""
    step, deployment = present_step(endpoint), update_to(endpoint)
    if step is None or deployment is None:
        return endpoint.updates
    last = endpoint.updates[-1] if endpoint.updates else None
    if last is not None and last.outcome is UpdateOutcome.UNDER_WAY:
        return endpoint.updates
    before = endpoint.active if endpoint.bake is None else endpoint.bake.before
    begun = PastUpdate(
        from_config=before.config.name,
        to_config=deployment.config.name,
        began_at=deployment.started_at,
        alarm_names=() if deployment.guard is None else deployment.guard.alarm_names,
        steps=(step,),
    )
    return (*endpoint.updates, begun)


def update_to(endpoint: Endpoint) -> Deployment | None:
    """The deployment of an update under way, if any."""
    if endpoint.status is not EndpointStatus.UPDATING:
        return None
    return endpoint.pending if endpoint.bake is None else endpoint.active


def present_step(endpoint: Endpoint) -> PastStep | None:
    """The current step of an update under way, if any."""
    deployment = update_to(endpoint)
    if deployment is None:
        return None
    found = get_step(endpoint)
    if found is None:
        return PastStep(name="coming up", began_at=deployment.started_at)
    number, since = found
    shares = [get_share(endpoint, deployment, it) for it in deployment.production]
    is_returning = get_cause(endpoint) is not None
    return PastStep(
        name=RETURNING if is_returning else step_title(deployment, number),
        began_at=since,
        least_share=min(shares, default=1.0),
        most_share=max(shares, default=1.0),
    )


def get_cause(endpoint: Endpoint) -> str | None:
    """Say why the endpoint's update was rolled back, or None if it was not."""
    under_way = endpoint.shift or endpoint.bake
    return endpoint.failure_reason if under_way is None else under_way.failure


def get_outcome(old: Endpoint, new: Endpoint) -> UpdateOutcome:
    """Return the outcome of the update of `old`, which ended in `new`."""
    wanted = update_to(old)
    is_there = wanted is not None and new.active.config == wanted.config
    return UpdateOutcome.COMPLETE if is_there else UpdateOutcome.ROLLED_BACK
