"""Transform jobs, batches and asynchronous requests as text for the terminal. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.cli.status_text import columns, duration, instance_lines, memory_text, reason_lines
from hostelry.cli.timeline import clock_text

RUNNING_JOB = ("InProgress", "Stopping")
BAR_CHARS = 30
BATCH_HEAD = ["BATCH", "STATUS", "ANSWERED", "FAILED", "RATE", "LEFT", "CREATED", "REASON"]
MAX_REASON_CHARS = 60
Row = Mapping[str, Any]
NOTHING = "There is no asynchronous request."
HEAD = ["INFERENCE ID", "ENDPOINT", "STATE", "ATTEMPT", "ACCEPTED", "REASON"]


def running_jobs(jobs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The jobs that have not ended."""
    return [it for it in jobs if it["status"] in RUNNING_JOB]


def transform_lines(jobs: Sequence[Mapping[str, Any]], now: float, *, most_alike: int) -> list[str]:
    """The lines of every unfinished job, with its instances."""
    lines: list[str] = []
    for job in running_jobs(jobs):
        lines.append(
            f"transform job {job['name']}  {job['status']}  {transform_progress(job, now)}"
        )
        endpoint = job.get("endpoint")
        if endpoint is not None:
            lines += reason_lines(endpoint.get("failure_reason"), "  ")
            lines += instance_lines(endpoint, now, most_alike)
        lines.append("")
    return lines


def transform_progress(job: Mapping[str, Any], now: float) -> str:
    """The job's progress, its rate, and the remaining time."""
    started_at, progress = job.get("started_at"), job["progress"]
    if started_at is None:
        return f"its instances come up; age {duration(now - job['created_at'])}"
    total = progress["objects_total"]
    parts = [
        f"{progress['objects']:,}{'' if total is None else f' of {total:,}'} objects",
        f"{progress['records']:,} records",
        bytes_text(progress),
    ]
    if progress["failed_objects"]:
        parts.append(f"{progress['failed_objects']:,} failed")
    end_at = job.get("ended_at") or now
    elapsed_s = max(end_at - started_at, 0.001)
    parts.append(f"{progress['records'] / elapsed_s:,.1f} records/s")
    left_s = seconds_left(job, now)
    if left_s is not None:
        parts.append(f"{duration(left_s)} left")
    trouble = progress.get("trouble")
    return "; ".join([", ".join(parts), *([f"waits: {trouble}"] if trouble else [])])


def bytes_text(progress: Mapping[str, Any]) -> str:
    """Finished bytes, and the total if it is known."""
    total = progress["bytes_total"]
    done = memory_text(progress["bytes"])
    return done if total is None else f"{done} of {memory_text(total)}"


def share_done(progress: Mapping[str, Any]) -> float | None:
    """The finished share, 0 to 1, of the bytes or else of the objects. None if it is unknown."""
    for name in ("bytes", "objects"):
        total = progress[f"{name}_total"]
        if total:
            return float(min(1.0, progress[name] / total))
    return None


def seconds_left(job: Mapping[str, Any], now: float) -> float | None:
    """Seconds until the end, at the rate so far. None if the time is unknown."""
    share = share_done(job["progress"])
    if job["status"] != "InProgress" or not share or job.get("started_at") is None:
        return None
    elapsed_s = max(0.0, now - job["started_at"])
    return float(elapsed_s * (1.0 - share) / share)


def transform_bar(job: Mapping[str, Any], now: float) -> str:
    """One line with a bar, for `hostelry jobs watch`."""
    return f"{job['status']} {bar(share_done(job['progress']))}  {transform_progress(job, now)}"


def bar(share: float | None) -> str:
    """A bar filled to `share`, and the share in per cent."""
    filled = round(BAR_CHARS * (share or 0.0))
    percent = "  ? %" if share is None else f"{100 * share:3.0f} %"
    return f"[{'#' * filled}{'.' * (BAR_CHARS - filled)}] {percent}"


def batch_lines(batches: Sequence[Row], now: float) -> list[str]:
    """A line for each batch."""
    return columns([BATCH_HEAD, *(batch_cells(it, now) for it in batches)]) if batches else []


def batch_cells(batch: Row, now: float) -> list[str]:
    """The cells of one batch."""
    reason = " ".join(batch_reasons(batch)[:1]) or "-"
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


def batch_line(batch: Row, now: float) -> str:
    """The line of an unfinished batch, for `hostelry status`."""
    return f"batch {batch['id']}  {batch['status']}  {batch_progress(batch, now)}"


def batch_progress(batch: Row, now: float) -> str:
    """A batch's progress, its rate, the remaining time, and the cause of a delay."""
    parts = [f"{batch['completed']:,} of {batch['total']:,} answered"]
    parts += [f"{batch['failed']:,} failed"] if batch["failed"] else []
    rate, left = rate_text(batch, now), left_text(batch, now)
    parts += [] if rate == "-" else [rate]
    parts += [] if left == "-" else [f"{left} left"]
    return "; ".join([", ".join(parts), *batch_reasons(batch)[:1]])


def batch_bar(batch: Row, now: float) -> str:
    """One line with a bar, for `hostelry jobs watch`."""
    ended, total = batch["completed"] + batch["failed"], batch["total"]
    share = ended / total if total else None
    return f"{batch['status']} {bar(share)}  {batch_progress(batch, now)}"


def batch_facts(batch: Row, now: float) -> list[str]:
    """All known facts about one batch."""
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
    return columns([*rows, *(["reason", it] for it in batch_reasons(batch) or ["-"])])


def batch_reasons(batch: Row) -> list[str]:
    """Why a batch waits, or the faults of its input file."""
    if batch["trouble"]:
        return [" ".join(batch["trouble"].split())]
    return [fault_text(it) for it in batch["faults"]]


def fault_text(fault: Row) -> str:
    """One fault of an input file."""
    place = "" if fault["line"] is None else f"line {fault['line']}: "
    return f"{place}{fault['message']}"


def rate_text(batch: Row, now: float) -> str:
    """Requests per second since the batch began."""
    rate = get_rate(batch, now)
    return "-" if rate is None else f"{rate:,.1f}/s"


def tokens_text(batch: Row, now: float) -> str:
    """Tokens of prompts and answers, and answer tokens per second."""
    elapsed_s = get_elapsed_s(batch, now)
    per_s = "" if elapsed_s is None else f" ({batch['output_tokens'] / elapsed_s:,.1f}/s)"
    return f"{batch['input_tokens']:,} in, {batch['output_tokens']:,} out{per_s}"


def left_text(batch: Row, now: float) -> str:
    """The remaining time at the rate so far."""
    rate = get_rate(batch, now)
    if not rate or batch["status"] != "in_progress":
        return "-"
    return duration((batch["total"] - batch["completed"] - batch["failed"]) / rate)


def get_rate(batch: Row, now: float) -> float | None:
    """Finished requests per second since the batch began. None before it begins."""
    elapsed_s = get_elapsed_s(batch, now)
    return None if elapsed_s is None else float((batch["completed"] + batch["failed"]) / elapsed_s)


def get_elapsed_s(batch: Row, now: float) -> float | None:
    """Seconds from the begin of the batch to its end, or to now. None before it begins."""
    if batch["begun_at"] is None:
        return None
    return float(max(0.001, (batch["ended_at"] or now) - batch["begun_at"]))


def list_lines(
    rows: Sequence[Row],
    backlog: Sequence[Row],
    finished: Sequence[Row],
    trouble: str | None = None,
) -> list[str]:
    """A line for each request, and a line for each endpoint with unfinished requests.

    `finished` has the requests of each endpoint that ended in the last minute. `trouble` says why
    all requests wait.
    """
    lines = columns([HEAD, *map(row_cells, rows)]) if rows else [NOTHING]
    rates = {get_place(count): count["number"] for count in finished}
    lines += [backlog_line(queue, rates.get(get_place(queue), 0)) for queue in backlog]
    return [*lines, *trouble_lines(trouble)]


def trouble_lines(trouble: str | None) -> list[str]:
    """Why asynchronous requests and transform jobs wait. Empty if nothing is wrong."""
    return [] if trouble is None else [f"Asynchronous requests and transform jobs wait: {trouble}"]


def row_cells(row: Row) -> list[str]:
    """The cells of one request."""
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
    """An endpoint's queue, and when it will be empty at the last minute's rate."""
    unfinished = queue["waiting"] + queue["running"]
    if finished_a_minute:
        left_s = unfinished / finished_a_minute * 60
        ending = f"{finished_a_minute} ended in the last minute, so {left_s:.0f} s are left"
    else:
        ending = "none ended in the last minute"
    waiting, running = queue["waiting"], queue["running"]
    return f"{queue['endpoint_name']}: {waiting} waiting, {running} running; {ending}"


def show_lines(row: Row) -> list[str]:
    """All known facts about one request."""
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


def get_place(row: Row) -> tuple[str, str, str]:
    """Account, region and endpoint of a row."""
    return row["scope"]["account"], row["scope"]["region"], row["endpoint_name"]
