"""A look as tables for the terminal. Pure: a document in, lines of text out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hostelry.cli.status_text import columns, memory_text

KEYS = "q quit   s next order   / filter   j k more or fewer rows"
SERVED = ("NAME", "COPIES", "REQ/S", "ERR/S", "P50", "P99", "FLIGHT", "QUEUE", "TOK/S", "STATUS")
MAX_NAME = 36
CONTROL_SILENT = (
    "Control does not answer: what is served is not known, only processes are shown "
    "(`hostelry logs control`)."
)


def look_lines(document: Mapping[str, Any], part: str = "") -> list[str]:
    """The whole look: totals, processes, instances, what is served."""
    totals = document["totals"]
    lines = [CONTROL_SILENT if totals is None else totals_line(totals), ""]
    lines += process_table(document["processes"])
    if document["instances"]:
        lines += ["", *instance_table(document["instances"])]
        lines += more_line(document["instances_not_shown"], "instances")
    if document["served"]:
        lines += ["", *served_table(document["served"])]
        lines += more_line(document["served_not_shown"], f"rows (by {document['sort']})")
    elif document["control_answers"]:
        lines += ["", f"Nothing has {part!r} in its name." if part else "No endpoints."]
    return lines


def totals_line(totals: Mapping[str, Any]) -> str:
    """The sums in one line."""
    tokens = totals["tokens_per_s"]
    return (
        f"{totals['endpoints']} endpoints, {totals['served']} served, {totals['copies']} of "
        f"{totals['desired_copies']} copies   {rate(totals['requests_per_s'])} req/s, "
        f"{rate(totals['errors_per_s'])} err/s, {rate(totals['in_flight'])} in flight, "
        f"{amount(totals['held'])} queued" + ("" if tokens is None else f", {rate(tokens)} tok/s")
    )


def process_table(processes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Processes beside each other, two in a line."""
    cells = [
        [
            process["name"],
            "not running" if process["pid"] is None else percent(process["cpu_percent"]),
            "-" if process["memory_bytes"] is None else memory_text(process["memory_bytes"]),
        ]
        for process in processes
    ]
    half = (len(cells) + 1) // 2
    empty = ["", "", ""]
    pairs = [
        [*cells[at], *(cells[half + at] if half + at < len(cells) else empty)] for at in range(half)
    ]
    return columns([["PROCESS", "CPU", "MEMORY"] * 2, *pairs])


def instance_table(instances: Sequence[Mapping[str, Any]]) -> list[str]:
    """Declared, reserved and used of each instance."""
    rows = [
        ["INSTANCE", "TYPE", "ENDPOINT", "COPIES", "CPUS", "CPU USED", "MEMORY", "USED", "GPUS"]
    ]
    rows += [
        [
            instance["id"],
            instance["type"],
            instance["endpoint"][:MAX_NAME],
            str(instance["copies"]),
            f"{instance['cpus_reserved']:g}/{instance['cpus']:g}",
            percent(instance["cpu_percent_used"]),
            f"{memory_text(instance['memory_bytes_reserved'])}/{memory_text(instance['memory_bytes'])}",
            memory_text(instance["memory_bytes_used"]),
            f"{instance['accelerators_reserved']}/{instance['accelerators']}"
            if instance["accelerators"]
            else "-",
        ]
        for instance in instances
    ]
    return columns(rows)


def served_table(served: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is served, with its load of the last ten seconds; percentiles of the last minute."""
    rows = [list(SERVED)]
    rows += [
        [
            row["name"][:MAX_NAME],
            f"{row['copies']}/{row['desired_copies']}",
            rate(row["requests_per_s"]),
            rate(row["errors_per_s"]),
            milliseconds(row["p50_ms"]),
            milliseconds(row["p99_ms"]),
            rate(row["in_flight"]),
            amount(row["held"]),
            rate(row["tokens_per_s"]),
            row["status"] + (", serves nothing" if row["serves_nothing"] else ""),
        ]
        for row in served
    ]
    return columns(rows)


def more_line(count: int, what: str) -> list[str]:
    """How much is left out."""
    return [f"... and {count} more {what}"] if count else []


def amount(value: int | None) -> str:
    """A number; "-" if it is not known."""
    return "-" if value is None else str(value)


def rate(value: float | None) -> str:
    """A rate with as many digits as matter; "-" if it is not known."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 or value == 0 else f"{value:.1f}"


def percent(value: float | None) -> str:
    """A share of one CPU."""
    return "-" if value is None else f"{value:.0f} %"


def milliseconds(value: float | None) -> str:
    """A time, in seconds from ten on."""
    if value is None:
        return "-"
    return f"{value / 1000:.1f} s" if value >= 10_000 else f"{value:.3g} ms"


def fitting(lines: Iterable[str], width: int, height: int) -> list[str]:
    """The lines that fit a screen, cut at its edge."""
    return [it[:width] for it in list(lines)[:height]]
