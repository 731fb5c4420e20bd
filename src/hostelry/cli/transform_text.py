"""Transform jobs as text: a line each for status, and a bar. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.cli.status_text import duration, instance_lines, memory_text, reason_lines

RUNNING = ("InProgress", "Stopping")
BAR_CHARS = 30


def running_jobs(jobs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The jobs that are not over."""
    return [it for it in jobs if it["status"] in RUNNING]


def transform_lines(jobs: Sequence[Mapping[str, Any]], now: float, *, most_alike: int) -> list[str]:
    """Every job that is not over, with its instances."""
    lines: list[str] = []
    for job in running_jobs(jobs):
        lines.append(f"transform job {job['name']}  {job['status']}  {progress_text(job, now)}")
        endpoint = job.get("endpoint")
        if endpoint is not None:
            lines += reason_lines(endpoint.get("failure_reason"), "  ")
            lines += instance_lines(endpoint, now, most_alike)
        lines.append("")
    return lines


def progress_text(job: Mapping[str, Any], now: float) -> str:
    """How far the job is, how fast, and how long it still takes."""
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
    """Bytes done, of all where that is known."""
    total = progress["bytes_total"]
    done = memory_text(progress["bytes"])
    return done if total is None else f"{done} of {memory_text(total)}"


def share_done(progress: Mapping[str, Any]) -> float | None:
    """The part that is done, from 0 to 1: of the bytes, else of the objects; None while unknown."""
    for name in ("bytes", "objects"):
        total = progress[f"{name}_total"]
        if total:
            return float(min(1.0, progress[name] / total))
    return None


def seconds_left(job: Mapping[str, Any], now: float) -> float | None:
    """Seconds until the end, at the rate so far; None while that is unknown."""
    share = share_done(job["progress"])
    if job["status"] != "InProgress" or not share or job.get("started_at") is None:
        return None
    elapsed_s = max(0.0, now - job["started_at"])
    return float(elapsed_s * (1.0 - share) / share)


def bar_text(job: Mapping[str, Any], now: float) -> str:
    """One line with a bar, for a job that is watched."""
    return f"{job['status']} {bar(share_done(job['progress']))}  {progress_text(job, now)}"


def bar(share: float | None) -> str:
    """A bar that is filled to a share, and the share in per cent."""
    filled = round(BAR_CHARS * (share or 0.0))
    percent = "  ? %" if share is None else f"{100 * share:3.0f} %"
    return f"[{'#' * filled}{'.' * (BAR_CHARS - filled)}] {percent}"
