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
    """What the experiment waits for, and until when."""
    status = one["status"]
    if status in ("Created", "Creating"):
        return f"starts in {duration(max(0.0, one['start_at'] - now))}"
    if status == "Running":
        return f"ends in {duration(max(0.0, one['end_at'] - now))}"
    if status == "Updating":
        step = "its endpoint takes the update"
    elif status == "Stopping":
        step = "the shadow is promoted" if one["promotes"] else "the shadow is removed"
    else:
        step = "the shadow comes up" if one["is_deployed"] else "its endpoint is changed"
    left_s = None if one["deadline_at"] is None else one["deadline_at"] - now
    return step if left_s is None else f"{step}; given up in {duration(max(0.0, left_s))}"
