"""An act as text: what it does to each copy; and the acts of the audit log. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.cli.printable import one_line, printable
from hostelry.cli.timeline_chart import ChartLine, clock_text

VERBS = {"restart": "Restart", "drain": "Drain", "undrain": "Cancel the drain of"}
MAX_STEPS = 20
COST = (
    "There is no room beside {copies}: {they} before the new one is there. "
    "Clients wait, or get errors, where no other copy serves."
)


def act_lines(act: Mapping[str, Any]) -> list[str]:
    """What an act does, or would: in general, to each copy, and what it costs."""
    steps: Sequence[Mapping[str, Any]] = act["steps"]
    head = f"{VERBS[act['act']]} {act['target']} of endpoint {act['endpoint']}"
    lines = [head, f"  {printable(act['summary'])}"]
    for step in steps[:MAX_STEPS]:
        lines.append(f"  {step['copy']}  {step['owner']} on {step['instance']}")
        lines.append(f"    {one_line(step['text'])}")
    if len(steps) > MAX_STEPS:
        lines.append(f"  ... and {len(steps) - MAX_STEPS} more copies")
    first = [it["copy"] for it in steps if it["way"] == "ended_first"]
    if first:
        some = ", ".join(first[:3]) + (" ..." if len(first) > 3 else "")
        they = "it ends" if len(first) == 1 else "each ends"
        lines.append(COST.format(copies=some, they=they))
    return lines


def done_line(act: Mapping[str, Any]) -> str:
    """What was recorded, and where its progress is shown."""
    done = "It was asked for before" if act["already"] else "Recorded"
    return f"{done}: `hostelry status --endpoint {act['endpoint']}` shows how far it is."


def act_rows(endpoint: str, acts: Sequence[Mapping[str, Any]]) -> list[ChartLine]:
    """Rows of the acts on an endpoint, oldest first; none where there is none."""
    if not acts:
        return []
    rows = [ChartLine(f"acts on {endpoint}", "bold")]
    for act in acts:
        text = f"{act['act']} {act['target']} by {act['who']}: {act['outcome']}"
        rows.append(ChartLine(f"  {clock_text(act['at'])}  {one_line(text)}"))
    return rows
