"""Progress of an endpoint's update as a text: its step, its traffic, its time, its alarms."""

from collections.abc import Collection

from hostelry.domain.endpoint import (
    Deployment,
    Endpoint,
    EndpointStatus,
    EndpointVariant,
    ShiftStage,
    UpdateGuard,
)

ACTIVATING_S = 2.0  # within which every gateway has the routes of a new step


def step_of(endpoint: Endpoint) -> tuple[int, float] | None:
    """The present step of an update whose new fleet serves, and since when; None of any other."""
    if endpoint.shift is not None:
        return endpoint.shift.step, endpoint.shift.since
    if endpoint.bake is not None:
        return endpoint.active.num_steps, endpoint.bake.since
    return None


def step_title(deployment: Deployment, number: int) -> str:
    """A step of the update to `deployment`, as texts name it."""
    word = "batch" if deployment.is_rolling else "step"
    return f"{word} {number} of {deployment.num_steps}"


def share_of(endpoint: Endpoint, deployment: Deployment, variant: EndpointVariant) -> float:
    """The share of a variant's traffic that its new fleet, of `deployment`, has.

    After a failure it has all of it; the batches of a rolling update that had baked have theirs,
    less and less.
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
    """The progress of the whole update; None where no new fleet serves, or it goes back.

    `verdict` is that on the new fleet, where it is compared with the old one.
    """
    under_way = endpoint.shift or endpoint.bake
    is_updating = endpoint.status is EndpointStatus.UPDATING
    if under_way is None or under_way.failure is not None or not is_updating:
        return None
    deployment = endpoint.pending or endpoint.active
    shares = [share_of(endpoint, deployment, it) for it in deployment.production]
    text = progress_text(endpoint, deployment, shares, now, pace)
    return with_verdict(text, verdict)


def with_verdict(progress: str | None, verdict: str | None) -> str | None:
    """The progress and the verdict as one text."""
    return progress if progress is None or verdict is None else f"{progress}; verdict: {verdict}"


def progress_text(
    endpoint: Endpoint, deployment: Deployment, shares: Collection[float], now: float, pace: float
) -> str | None:
    """The present step of the update to `deployment`, which has those shares of the traffic.

    None where its fleet does not serve yet. `pace` divides the waits.
    """
    step = step_of(endpoint)
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
    """What the step does now."""
    (number, since), shift = step, endpoint.shift
    if shift is not None and shift.stage is ShiftStage.LEAVING:
        return "the old instances that it replaces are being terminated"
    if shift is not None and shift.stage is ShiftStage.COMING:
        return f"batch {number + 1} comes up"
    wait_s = (guard.bake_s if shift is None else guard.traffic.wait_s) / pace
    return f"baking {max(0.0, now - since):.0f} s of {wait_s:g} s"
