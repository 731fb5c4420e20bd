"""The ledger of the drill `rollout` as text, with a picture of each update over time. Pure."""

import math
from collections.abc import Sequence

from hostelry.cli.status_text import columns
from hostelry.cli.timeline import EIGHTHS
from hostelry_lab.rollout.rollout_ledger import BUCKET_S, RolloutLedger, RolloutPart

MOST_COLUMNS = 100
TICK = 10  # columns from one time on the axis to the next
NOTHING = "·"
MARKS = {"control": "c", "gateway": "g", "agent": "a"}
MANY = 9


def rollout_lines(ledger: RolloutLedger) -> list[str]:
    """Every update of the drill."""
    return [line for it in ledger.parts for line in part_lines(it)]


def part_lines(part: RolloutPart) -> list[str]:
    """One update: its end, its requests, its steps and kills, its picture."""
    answers = ", ".join(f"{count} {version}" for version, count in part.answers.items())
    failures = ", ".join(f"{count} {cause}" for cause, count in part.failures.items())
    lines = [
        f"{part.name}: {part.outcome} after {part.took_s:.1f} s",
        f"  requests  {part.requests}; answered by: {answers or 'none'}",
        f"  failed    {failures or '0'}; {part.failed_afterwards} after its end",
    ]
    if part.rollback_s is not None:
        lines.append(f"  rollback  {part.rollback_s:.1f} s after the version's first request")
    if part.cause is not None:
        cause = part.cause.partition("\n")[0]
        lines.append(f"  cause     {cause}")
    lines += [f"  {line}" for line in columns(step_table(part))]
    return [*lines, *(f"  {line}" for line in picture_lines(part))]


def step_table(part: RolloutPart) -> list[tuple[str, ...]]:
    """A row for each step, with the processes killed in it and the seconds until they were back."""
    rows: list[tuple[str, ...]] = [("step", "began", "seconds", "share", "killed, back after s")]
    for step in part.steps:
        kills = (
            f"{kill.kind} {'never' if kill.back_s is None else f'{kill.back_s:.1f}'}"
            for kill in part.kills
            if kill.step == step.name
        )
        rows.append(
            (
                step.name,
                f"{step.began_s:.1f} s",
                f"{step.ended_s - step.began_s:.1f}",
                f"{100 * step.share:.0f} %",
                ", ".join(kills) or "-",
            )
        )
    return rows


def picture_lines(part: RolloutPart) -> list[str]:
    """The share of the new version, failures, kills and steps, in columns of equal time."""
    per_column = max(1, math.ceil(len(part.shares) / MOST_COLUMNS))
    width = math.ceil(len(part.shares) / per_column)
    if not width:
        return []
    column_s = per_column * BUCKET_S
    kills, steps = [" "] * width, [" "] * width
    for kill in part.kills:
        place_letter(kills, int(kill.at_s / column_s), MARKS.get(kill.kind, "?"))
    for number, step in enumerate(part.steps):
        for place in range(int(step.began_s / column_s), math.ceil(step.ended_s / column_s)):
            if 0 <= place < width:
                steps[place] = "." if step.name == "coming up" else str(number)[-1]
    return [
        f"new version {''.join(shares_row(part.shares, per_column))}",
        f"failed      {''.join(failed_row(part.failed, per_column))}",
        f"killed      {''.join(kills)}",
        f"step        {''.join(steps)}",
        f"            {axis_row(width, column_s)}",
    ]


def place_letter(row: list[str], place: int, letter: str) -> None:
    """Put a letter into the row at its place, or at the next free one."""
    free = (it for it in range(max(0, place), len(row)) if row[it] == " ")
    found = next(free, None)
    if found is not None:
        row[found] = letter


def shares_row(shares: Sequence[float | None], per_column: int) -> list[str]:
    """The share of each column in eighths, or a dot if no model got a request."""
    row = []
    for first in range(0, len(shares), per_column):
        known = [it for it in shares[first : first + per_column] if it is not None]
        if not known:
            row.append(NOTHING)
            continue
        share = sum(known) / len(known)
        # Every share above 0 is visible, and only a share of 1 is full.
        row.append(EIGHTHS[0 if share == 0 else max(1, min(7 + int(share == 1), round(8 * share)))])
    return row


def failed_row(failed: Sequence[int], per_column: int) -> list[str]:
    """The failures of each column, `+` for more than nine."""
    counts = [sum(failed[it : it + per_column]) for it in range(0, len(failed), per_column)]
    return [NOTHING if it == 0 else "+" if it > MANY else str(it) for it in counts]


def axis_row(width: int, column_s: float) -> str:
    """The seconds below every tenth column."""
    ticks = (f"{place * column_s:.0f} s" for place in range(0, width, TICK))
    return "".join(f"{it:<{TICK}}" for it in ticks).rstrip()
