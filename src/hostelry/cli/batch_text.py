"""Batches of OpenAI's API as text, for `hostelry jobs list` and `show`. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.cli.status_text import columns, duration
from hostelry.cli.timeline_chart import clock_text
from hostelry.cli.transform_text import bar

HEAD = ["BATCH", "STATUS", "ANSWERED", "FAILED", "RATE", "LEFT", "CREATED", "REASON"]
MAX_REASON_CHARS = 60
Row = Mapping[str, Any]


def batch_lines(batches: Sequence[Row], now: float) -> list[str]:
    """A line for each batch; none without batches."""
    return columns([HEAD, *(batch_cells(it, now) for it in batches)]) if batches else []


def batch_cells(batch: Row, now: float) -> list[str]:
    """One batch's cells."""
    reason = " ".join(reasons(batch)[:1]) or "-"
    short = reason if len(reason) <= MAX_REASON_CHARS else f"{reason[: MAX_REASON_CHARS - 3]}..."
    return [
        batch["id"],
        batch["status"],
        f"{batch['completed']:,} of {batch['total']:,}",
        f"{batch['failed']:,}",
        rate_text(batch, now),
        left_text(batch, now),
        clock_text(batch["created_at"]),
        short,
    ]


def status_line(batch: Row, now: float) -> str:
    """One batch that has not ended, for `hostelry status`."""
    return f"batch {batch['id']}  {batch['status']}  {progress_text(batch, now)}"


def progress_text(batch: Row, now: float) -> str:
    """How far a batch is, how fast, how long it still takes, and what holds it up."""
    parts = [f"{batch['completed']:,} of {batch['total']:,} answered"]
    parts += [f"{batch['failed']:,} failed"] if batch["failed"] else []
    rate, left = rate_text(batch, now), left_text(batch, now)
    parts += [] if rate == "-" else [rate]
    parts += [] if left == "-" else [f"{left} left"]
    return "; ".join([", ".join(parts), *reasons(batch)[:1]])


def bar_text(batch: Row, now: float) -> str:
    """One line with a bar, for a batch that is watched."""
    ended, total = batch["completed"] + batch["failed"], batch["total"]
    share = ended / total if total else None
    return f"{batch['status']} {bar(share)}  {progress_text(batch, now)}"


def batch_facts(batch: Row, now: float) -> list[str]:
    """Everything known of one batch."""
    ended_at = batch["ended_at"]
    facts = {
        "batch": batch["id"],
        "status": batch["status"],
        "requests to": batch["url"],
        "answered": f"{batch['completed']:,} of {batch['total']:,}",
        "failed": f"{batch['failed']:,}",
        "rate": rate_text(batch, now),
        "left": left_text(batch, now),
        "tokens": tokens_text(batch, now),
        "created": clock_text(batch["created_at"]),
        "ended": "-" if ended_at is None else clock_text(ended_at),
        "input file": batch["input_file_id"],
        "output file": batch["output_file_id"] or "-",
        "error file": batch["error_file_id"] or "-",
    }
    rows = [[name, value] for name, value in facts.items()]
    return columns([*rows, *(["reason", it] for it in reasons(batch) or ["-"])])


def reasons(batch: Row) -> list[str]:
    """What holds a batch up, or what is wrong with its file."""
    if batch["trouble"]:
        return [" ".join(batch["trouble"].split())]
    return [fault_text(it) for it in batch["faults"]]


def fault_text(fault: Row) -> str:
    """One fault of an input file."""
    place = "" if fault["line"] is None else f"line {fault['line']}: "
    return f"{place}{fault['message']}"


def rate_text(batch: Row, now: float) -> str:
    """Requests a second since the batch began."""
    rate = rate_of(batch, now)
    return "-" if rate is None else f"{rate:,.1f}/s"


def tokens_text(batch: Row, now: float) -> str:
    """Tokens of prompts and answers, and those of answers a second."""
    elapsed_s = elapsed(batch, now)
    per_s = "" if elapsed_s is None else f" ({batch['output_tokens'] / elapsed_s:,.1f}/s)"
    return f"{batch['input_tokens']:,} in, {batch['output_tokens']:,} out{per_s}"


def left_text(batch: Row, now: float) -> str:
    """The time that the rest takes at the rate so far."""
    rate = rate_of(batch, now)
    if not rate or batch["status"] != "in_progress":
        return "-"
    return duration((batch["total"] - batch["completed"] - batch["failed"]) / rate)


def rate_of(batch: Row, now: float) -> float | None:
    """Requests that ended, a second, since the batch began; None before that."""
    elapsed_s = elapsed(batch, now)
    return None if elapsed_s is None else float((batch["completed"] + batch["failed"]) / elapsed_s)


def elapsed(batch: Row, now: float) -> float | None:
    """Seconds since the batch began, to its end if it has ended; None before that."""
    if batch["begun_at"] is None:
        return None
    return float(max(0.001, (batch["ended_at"] or now) - batch["begun_at"]))
