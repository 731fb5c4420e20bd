"""Progress of an endpoint's update as a text: its step, its traffic, its time, its alarms."""

from collections.abc import Collection

from hostelry.domain.endpoint import (
    Deployment,
    Endpoint,
    EndpointStatus,
    EndpointVariant,
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


def share_of(endpoint: Endpoint, deployment: Deployment, variant: EndpointVariant) -> float:
    """The share of a variant's traffic that its new fleet, of `deployment`, has."""
    if endpoint.shift is None or deployment.guard is None:
        return 1.0
    traffic = deployment.guard.traffic
    return traffic.share(endpoint.shift.step, variant.desired_instance_count)


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
    number, since = step
    guard = deployment.guard or UpdateGuard()
    wait_s = (guard.bake_s if endpoint.shift is None else guard.traffic.wait_s) / pace
    least, most = (f"{100 * of(shares):.0f}" for of in (min, max))
    percent = most if least == most else f"{least} to {most}"
    alarms = ", ".join(guard.alarm_names)
    return (
        f"step {number} of {deployment.num_steps}: {percent} % of traffic;"
        f" baking {max(0.0, now - since):.0f} s of {wait_s:g} s; "
        + (f"alarms watched: {alarms}" if alarms else "no alarm is watched")
    )
