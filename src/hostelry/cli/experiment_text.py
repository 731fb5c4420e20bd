"""Inference experiments as text: a line each for status. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.cli.status_text import duration, reason_lines

OVER = ("Completed", "Cancelled")


def experiment_lines(
    experiments: Sequence[Mapping[str, Any]], now: float, endpoints: Sequence[str] | None = None
) -> list[str]:
    """Every experiment that is not over, or those of `endpoints`: status, mirrored share, step."""
    lines: list[str] = []
    for one in experiments:
        if one["status"] in OVER or (endpoints is not None and one["endpoint"] not in endpoints):
            continue
        lines.append(
            f"experiment {one['name']}  {one['status']}  endpoint {one['endpoint']}"
            f"  {one['percent']} % of {one['production']} to {one['shadow']}  {step_text(one, now)}"
        )
        lines += [*reason_lines(one["status_reason"], "  "), ""]
    return lines


def step_text(one: Mapping[str, Any], now: float) -> str:
    """What the experiment waits for, until when, and when it ends."""
    status, end = one["status"], f"ends in {time_left(one['end_at'], now)}"
    if status in ("Created", "Creating"):
        return f"starts in {time_left(one['start_at'], now)}, {end}"
    if status == "Running":
        return end
    if status == "Updating":
        step = "its endpoint takes the update"
    elif status == "Stopping":
        step = "the shadow is promoted" if one["promotes"] else "the shadow is removed"
    else:
        step = "the shadow comes up" if one["is_deployed"] else "its endpoint is changed"
    if one["deadline_at"] is not None:
        step += f", given up in {time_left(one['deadline_at'], now)}"
    return step if status == "Stopping" else f"{step}; {end}"


def time_left(at: float, now: float) -> str:
    """The time until an instant; none once it has passed."""
    return duration(max(0.0, at - now))
