"""A target's load, capacity and activities over time as a chart of characters. Pure.

On terminals each line has a style.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec

EIGHTHS = " ▁▂▃▄▅▆▇█"
SERVING, COMING, NONE = "█", "░", " "
LOAD_ROWS, MOST_CAPACITY_ROWS = 6, 6
LEAST_WIDTH, MARGIN = 20, 9
HOLDS_S = 15.0  # a load value holds for this time, then it counts as zero
NAMES_OF_ACTS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
MARKS = (
    ("t0", "t0", "load rose"),
    ("t1", "t1", "decided"),
    ("t2", "t2", "new capacity answered"),
)


class ChartLine(msgspec.Struct, frozen=True):
    """One line of the chart."""

    text: str
    style: str = ""


def chart(timeline: Mapping[str, Any], since: float, now: float, width: int) -> list[ChartLine]:
    """The rows of one target's chart, at most `width` characters wide if possible."""
    columns = max(LEAST_WIDTH, width - MARGIN)
    edges = [since + (now - since) * it / columns for it in range(columns + 1)]
    series = timeline["series"]
    rows = [ChartLine(heading(timeline), "bold")]
    rows += load_rows(spread(series.get("in_flight", ()), edges, holds_s=HOLDS_S))
    desired, serving = (spread(series.get(it, ()), edges) for it in ("desired", "serving"))
    rows += capacity_rows(desired, serving, get_unit(timeline))
    rows += mark_rows(timeline["acts"], edges)
    rows.append(ChartLine(axis(since, now, columns), "dim"))
    rows += act_rows(timeline["acts"])
    if timeline.get("update"):
        rows.append(ChartLine(f"update of {timeline['endpoint']}: {timeline['update']}"))
    return rows


def heading(timeline: Mapping[str, Any]) -> str:
    """The title line: the target and its bounds."""
    return f"{timeline['resource_id']}  {timeline['min']} to {timeline['max']} {get_unit(timeline)}"


def get_unit(timeline: Mapping[str, Any]) -> str:
    """The unit of capacity."""
    return "copies" if timeline.get("component") else "instances"


def spread(
    points: Iterable[Sequence[float]], edges: Sequence[float], holds_s: float | None = None
) -> list[float]:
    """The maximum of each column. A column without a point repeats the value before it.

    A value is repeated for `holds_s` seconds, or without limit for None.
    """
    found: list[float] = []
    ordered = sorted((float(at), float(value)) for at, value in points)
    place, last_at, last = 0, float("-inf"), 0.0
    for start, end in pairwise(edges):
        inside: list[float] = []
        while place < len(ordered) and ordered[place][0] < end:
            last_at, last = ordered[place]
            if last_at >= start:
                inside.append(last)
            place += 1
        held = holds_s is None or start - last_at <= holds_s
        found.append(max(inside) if inside else last if held else 0.0)
    return found


def load_rows(values: Sequence[float]) -> list[ChartLine]:
    """The rows of requests in flight, as bars in eighths of a row."""
    top = max([1.0, *values])
    rows = [ChartLine("requests in flight", "dim")]
    for level in range(LOAD_ROWS, 0, -1):
        label = f"{top:8.4g}" if level == LOAD_ROWS else " " * 8
        cells = (eighth(value / top * LOAD_ROWS - (level - 1)) for value in values)
        rows.append(ChartLine(f"{label}┤" + "".join(cells), "cyan"))
    return rows


def eighth(share: float) -> str:
    """The character that fills a share of one row."""
    return EIGHTHS[round(max(0.0, min(1.0, share)) * 8)]


def capacity_rows(desired: Sequence[float], serving: Sequence[float], unit: str) -> list[ChartLine]:
    """Rows of the serving capacity, with the desired capacity above it."""
    top = max(1, *(round(it) for it in (*desired, *serving)))
    num_rows = min(top, MOST_CAPACITY_ROWS)
    rows = [ChartLine(f"{unit} ({SERVING} serving, {COMING} wanted)", "dim")]
    for level in range(num_rows, 0, -1):
        least = top * (level - 1) / num_rows
        cells = (
            SERVING if has > least else COMING if wants > least else NONE
            for wants, has in zip(desired, serving, strict=True)
        )
        rows.append(ChartLine(f"{round(top * level / num_rows):8d}┤" + "".join(cells), "green"))
    return rows


def mark_rows(acts: Sequence[Mapping[str, Any]], edges: Sequence[float]) -> list[ChartLine]:
    """A row each for t0, t1 and t2, with each act's letter at its time."""
    rows: list[ChartLine] = []
    for key, short, _ in MARKS:
        cells = [" "] * (len(edges) - 1)
        for name, act in zip(NAMES_OF_ACTS, acts, strict=False):
            at = (act.get("receipt") or {}).get(key)
            if at is not None and edges[0] <= at <= edges[-1]:
                share = (at - edges[0]) / max(1e-9, edges[-1] - edges[0])
                cells[min(len(cells) - 1, int(share * len(cells)))] = name
        rows.append(ChartLine(f"{short:>8}│" + "".join(cells), "yellow"))
    return rows


def axis(since: float, now: float, columns: int) -> str:
    """The axis line, with the times of both ends."""
    start, end = clock_text(since), clock_text(now)
    return " " * MARGIN + start + " " * max(1, columns - len(start) - len(end)) + end


def act_rows(acts: Sequence[Mapping[str, Any]]) -> list[ChartLine]:
    """The acts with their receipts, below a line that explains t0, t1 and t2."""
    if not acts:
        return [ChartLine("no acts in this time", "dim")]
    meaning = ", ".join(f"{short}: {words}" for _, short, words in MARKS)
    rows = [ChartLine(meaning, "dim")]
    for name, act in zip(NAMES_OF_ACTS, acts, strict=False):
        rows += [ChartLine(it) for it in act_lines(name, act)]
    left = len(acts) - len(NAMES_OF_ACTS)
    return [*rows, ChartLine(f"and {left} more")] if left > 0 else rows


def act_lines(name: str, act: Mapping[str, Any]) -> list[str]:
    """The lines of an act: time, change, status and receipt."""
    head = f"{name}  {clock_text(act['started_at'])}  {act['from']} -> {act['to']}  {act['status']}"
    lines = [f"{head}  {receipt_text(act.get('receipt'))}".rstrip(), f"     {act['cause']}"]
    if act["status"] not in ("Successful", "InProgress"):
        lines.append(f"     {act['status_message']}")
    return lines


def receipt_text(receipt: Mapping[str, Any] | None) -> str:
    """The durations and the cost of an activity."""
    if receipt is None:
        return ""
    parts = []
    if receipt.get("detection_s") is not None:
        parts.append(f"t0->t1 {receipt['detection_s']:.1f} s")
    if receipt.get("start_s") is not None:
        parts.append(f"t1->t2 {receipt['start_s']:.1f} s")
    for key, word in (("requests_delayed", "delayed"), ("requests_failed", "failed")):
        if receipt.get("t0") is not None or receipt.get(key):
            parts.append(f"{receipt.get(key, 0)} {word}")
    signal = receipt.get("signal") or {}
    parts += [f"{key} {value:.4g}" for key, value in signal.items() if value is not None]
    return "  ".join(parts)


def clock_text(at: float) -> str:
    """The local time of day."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%H:%M:%S")


def update_rows(endpoint: str, updates: Sequence[Mapping[str, Any]]) -> list[ChartLine]:
    """The rows of all updates, oldest first."""
    if not updates:
        return []
    rows = [ChartLine(f"updates of {endpoint}", "bold")]
    for update in updates:
        rows += [ChartLine(it) for it in update_lines(update)]
    return rows


def update_lines(update: Mapping[str, Any]) -> list[str]:
    """The lines of an update: its configurations, outcome, steps, cause and alarms."""
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
    """The duration of an update or a step. Empty while it is in progress."""
    if it["ended_at"] is None:
        return ""
    return f"{word} {max(0.0, it['ended_at'] - it['began_at']):.1f} s"


def share_text(step: Mapping[str, Any]) -> str:
    """The new fleet's share of the traffic, from the smallest to the largest of the variants."""
    least, most = (f"{100 * step[it]:.0f}" for it in ("least_share", "most_share"))
    return f"{most} %" if least == most else f"{least} to {most} %"
