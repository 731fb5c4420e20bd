"""`hostelry top`."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import UsageError
from hostelry.base.printable import printable, short_number, whole_stream
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.status_text import columns, memory_text
from hostelry.cli.top.document import SORTS, TopChoice, top_document

MOST_ROWS = 1000
# The pause between looks is at least this many times the duration of the last look.
PATIENCE = 4
SETTLE_S = 2.2  # between the two looks of --once, which CPU and token rates need
KEYS = "q quit   s next order   / filter   j k more or fewer rows"
SERVED = ("NAME", "COPIES", "REQ/S", "ERR/S", "P50", "P99", "FLIGHT", "QUEUE", "TOK/S", "STATUS")
MAX_NAME = 36
CONTROL_SILENT = (
    "Control does not answer: what is served is not known, only processes are shown "
    "(`hostelry logs control`)."
)


def top(
    home: HomeOption = None,
    sort: Annotated[
        str, typer.Option(help=f"Order of what is served: {', '.join(SORTS)}.")
    ] = "requests",
    rows: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, help="Maximum number of rows per table.")
    ] = 20,
    part: Annotated[
        str, typer.Option("--filter", help="Show only names that contain this text.")
    ] = "",
    every_s: Annotated[
        float, typer.Option("--every", min=0.2, max=3600.0, help="Seconds between updates.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show processes, instances, and the load of models, live.

    Rates cover the last ten seconds, percentiles the last minute. Keys: q quits, s sorts by the
    next column, / filters by name, j and k change the number of rows. --json prints once, as --once
    does.

    Exit code 1 with --once or --json if control does not answer.

    Example: hostelry top --sort latency

    Example: hostelry top --once --filter chat
    """
    from hostelry.cli.top.sources import TopSources  # imported here: completion does not need it

    if sort not in SORTS:
        raise UsageError(f"--sort is {sort!r}; it must be one of {', '.join(SORTS)}")
    at = home_at(home)
    config, credentials = load_home(at)
    choice = TopChoice(sort=sort, rows=rows, part=part)
    with TopSources(at, config, credentials) as sources:
        if once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
            sources.look()
            time.sleep(SETTLE_S)
            document = top_document(sources.look(), choice)
            if as_json:
                print_json(document)
            else:
                typer.echo("\n".join(look_lines(document, part)))
            if not document["control_answers"]:
                raise typer.Exit(1)
            return
        live(sources, choice, every_s)


def live(sources: Any, choice: TopChoice, every_s: float) -> None:
    """Show the state again and again until q or Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=whole_stream(sys.stdout))
    typed: str | None = None  # a filter that is being typed
    with keys(), Live(console=console, screen=True, auto_refresh=False) as screen:
        look, next_at = sources.look(), 0.0
        while True:
            shown = top_document(look, choice)
            head = f"filter: {typed}_" if typed is not None else KEYS
            lines = [head, "", *look_lines(shown, choice.part)]
            text = "\n".join(fitting(lines, console.width, console.height))
            screen.update(Text(printable(text), no_wrap=True), refresh=True)
            if next_at == 0.0:
                next_at = monotonic_s() + every_s
            key = read_key(max(0.0, next_at - monotonic_s()))
            if typed is None and key in ("q", "\x03"):
                return
            if key is not None:
                typed, choice = after_key(key, typed, choice)
                continue
            began = monotonic_s()
            look = sources.look()
            next_at = began + max(every_s, PATIENCE * (monotonic_s() - began))


def after_key(key: str, typed: str | None, choice: TopChoice) -> tuple[str | None, TopChoice]:
    """The filter being typed, if any, and the choice of rows, after a key. Pure."""
    if typed is not None:
        if key in "\r\n":
            return None, replace(choice, part=typed)
        if key == "\x1b":
            return None, choice
        return (typed[:-1] if key in "\x7f\b" else typed + key), choice
    if key == "/":
        return "", choice
    if key == "s":
        names = list(SORTS)
        return None, replace(choice, sort=names[(names.index(choice.sort) + 1) % len(names)])
    if key in "jk":
        rows = choice.rows + (5 if key == "j" else -5)
        return None, replace(choice, rows=min(MOST_ROWS, max(5, rows)))
    return None, choice


def read_key(within_s: float) -> str | None:
    """The next key. None if no key is pressed in time."""
    terminal = sys.stdin.fileno()  # select does not see bytes that the text stream has buffered
    ready, _, _ = select.select([terminal], [], [], within_s)
    return (os.read(terminal, 1).decode(errors="replace") or "q") if ready else None


@contextmanager
def keys() -> Iterator[None]:
    """Have the terminal pass on each key at once, without showing it."""
    kept = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, kept)


def look_lines(document: Mapping[str, Any], part: str = "") -> list[str]:
    """The whole screen: totals, processes, instances, endpoints and components."""
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
    """The totals on one line."""
    tokens = totals["tokens_per_s"]
    return (
        f"{totals['endpoints']} endpoints, {totals['served']} served, {totals['copies']} of "
        f"{totals['desired_copies']} copies   {rate(totals['requests_per_s'])} req/s, "
        f"{rate(totals['errors_per_s'])} err/s, {rate(totals['in_flight'])} in flight, "
        f"{amount(totals['held'])} queued" + ("" if tokens is None else f", {rate(tokens)} tok/s")
    )


def process_table(processes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Processes, two per line."""
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
    """Declared, reserved and used resources of each instance."""
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
    """Endpoints and components, with their load in ten seconds and percentiles in a minute."""
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
    """A line with the number of hidden rows."""
    return [f"... and {count} more {what}"] if count else []


def amount(value: int | None) -> str:
    """A number as text, or "-" if it is unknown."""
    return "-" if value is None else str(value)


def rate(value: float | None) -> str:
    """A rate with its significant digits, or "-" if it is unknown."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 or value == 0 else f"{value:.1f}"


def percent(value: float | None) -> str:
    """A share of one CPU."""
    return "-" if value is None else f"{value:.0f} %"


def milliseconds(value: float | None) -> str:
    """A time in milliseconds, or in seconds from ten seconds on."""
    if value is None:
        return "-"
    return f"{value / 1000:.1f} s" if value >= 10_000 else f"{short_number(value)} ms"


def fitting(lines: Iterable[str], width: int, height: int) -> list[str]:
    """The lines that fit a screen, cut at its edge."""
    return [it[:width] for it in list(lines)[:height]]
