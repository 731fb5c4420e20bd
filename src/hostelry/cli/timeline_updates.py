"""An endpoint's updates as text: each step with its begin, length and share of traffic. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.cli.timeline_chart import ChartLine, clock_text


def update_rows(endpoint: str, updates: Sequence[Mapping[str, Any]]) -> list[ChartLine]:
    """The rows of all updates, oldest first; none where there is none."""
    if not updates:
        return []
    rows = [ChartLine(f"updates of {endpoint}", "bold")]
    for update in updates:
        rows += [ChartLine(it) for it in update_lines(update)]
    return rows


def update_lines(update: Mapping[str, Any]) -> list[str]:
    """One update: its configurations and outcome, its steps, its cause and alarms."""
    change = f"{update['from_config']} -> {update['to_config']}"
    head = f"  {clock_text(update['began_at'])}  {change}  {update['outcome']}"
    lines = [head + length_text(update, " after")]
    if update["steps_left_out"]:
        lines.append(f"    {update['steps_left_out']} older steps are not kept")
    width = max((len(it["name"]) for it in update["steps"]), default=0)
    for step in update["steps"]:
        length = length_text(step) or "  now"
        share = f"{share_text(step)} of traffic"
        share += f", {step['verdict']}" if step.get("verdict") else ""
        lines.append(f"    {clock_text(step['began_at'])}  {step['name']:{width}}{length}  {share}")
    if update["cause"]:
        lines.append(f"    {update['cause'].partition(chr(10))[0]}")
    if update["alarm_names"]:
        lines.append(f"    alarms: {', '.join(update['alarm_names'])}")
    return lines


def length_text(it: Mapping[str, Any], word: str = "") -> str:
    """How long an update or a step took; nothing while it is under way."""
    if it["ended_at"] is None:
        return ""
    return f"{word} {max(0.0, it['ended_at'] - it['began_at']):.1f} s"


def share_text(step: Mapping[str, Any]) -> str:
    """The new fleet's share of the traffic, of the variants from the least to the most."""
    least, most = (f"{100 * step[it]:.0f}" for it in ("least_share", "most_share"))
    return f"{most} %" if least == most else f"{least} to {most} %"
