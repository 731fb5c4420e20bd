"""`hostelry jobs list` and `show` as text. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.cli.status_text import columns
from hostelry.cli.timeline_chart import clock_text

NOTHING = "There is no asynchronous request."
MAX_REASON_CHARS = 60
Row = Mapping[str, Any]


def list_lines(
    rows: Sequence[Row],
    backlog: Sequence[Row],
    finished: Sequence[Row],
    trouble: str | None = None,
) -> list[str]:
    """A line for each request, then one for each endpoint with unfinished ones.

    `finished` has the requests of each endpoint that ended in the last minute, `trouble` why all
    wait.
    """
    lines = columns([HEAD, *map(row_cells, rows)]) if rows else [NOTHING]
    rates = {place_of(count): count["number"] for count in finished}
    lines += [backlog_line(queue, rates.get(place_of(queue), 0)) for queue in backlog]
    return [*lines, *trouble_lines(trouble)]


def trouble_lines(trouble: str | None) -> list[str]:
    """Why asynchronous requests and transform jobs wait; no line where nothing is wrong."""
    return [] if trouble is None else [f"Asynchronous requests and transform jobs wait: {trouble}"]


HEAD = ["INFERENCE ID", "ENDPOINT", "STATE", "ATTEMPT", "ACCEPTED", "REASON"]


def row_cells(row: Row) -> list[str]:
    """One request's cells."""
    reason = " ".join((row["reason"] or "-").split())
    short = reason if len(reason) <= MAX_REASON_CHARS else f"{reason[: MAX_REASON_CHARS - 3]}..."
    return [
        row["inference_id"],
        row["endpoint_name"],
        row["state"],
        str(row["attempt"]),
        clock_text(row["accepted_at"]),
        short,
    ]


def backlog_line(queue: Row, finished_a_minute: int) -> str:
    """An endpoint's queue, and when it will be empty at the rate of the last minute."""
    unfinished = queue["waiting"] + queue["running"]
    if finished_a_minute:
        left_s = unfinished / finished_a_minute * 60
        ending = f"{finished_a_minute} ended in the last minute, so {left_s:.0f} s are left"
    else:
        ending = "none ended in the last minute"
    waiting, running = queue["waiting"], queue["running"]
    return f"{queue['endpoint_name']}: {waiting} waiting, {running} running; {ending}"


def show_lines(row: Row) -> list[str]:
    """Everything known of one request."""
    given = row["input_uri"] or f"{row['body_bytes']} bytes with the request"
    facts = {
        "id": row["id"],
        "inference id": row["inference_id"],
        "endpoint": row["endpoint_name"],
        "state": row["state"],
        "attempt": str(row["attempt"]),
        "input": given,
        "output": row["output_uri"],
        "failure": row["failure_uri"],
        "accepted": clock_text(row["accepted_at"]),
        "expires": clock_text(row["expires_at"]),
        "finished": "-" if row["finished_at"] is None else clock_text(row["finished_at"]),
        "reason": row["reason"] or "-",
    }
    if row.get("trouble") is not None:
        facts["waits, as"] = row["trouble"]
    return columns([[name, value] for name, value in facts.items()])


def place_of(row: Row) -> tuple[str, str, str]:
    """The endpoint that a row is about."""
    return row["scope"]["account"], row["scope"]["region"], row["endpoint_name"]
