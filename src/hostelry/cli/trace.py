"""`hostelry trace`: one call by its request id, or the slowest and failed calls."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.printable import short_number
from hostelry.cli import completion as names
from hostelry.cli.control_requests import document, require_endpoint, send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.logs import logs_between
from hostelry.cli.status_text import columns
from hostelry.home.home import Credentials, Home, UpConfig

LOG_BEFORE_S, LOG_AFTER_S = 0.5, 2.5  # lines are collected every second, with the file's time
MAX_LOG_LINES = 20  # of a copy
MAX_LOG_COPIES = 12
WIDTH = 120  # without a terminal
JsonObject = Mapping[str, Any]
LEAST_BAR, LEAST_WIDTH = 12, 60
MAX_LABEL = 44
MAX_CHOICES = 6  # copies that a choice shows
MAX_ERROR = 80  # characters in a row of a list
GOOD = frozenset({None, "ok", "answered", "streams"})
NOTHING = "No such call is kept."


def trace(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Id of the request. With --slowest or --failed: an endpoint.",
            show_default=False,
            autocompletion=names.traced,
        ),
    ] = None,
    slowest: Annotated[bool, typer.Option("--slowest", help="List the slowest calls.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="List the calls that failed.")] = False,
    minutes: Annotated[
        float,
        typer.Option(min=0.1, max=1440.0, help="Length in minutes of the period that is listed."),
    ] = 5.0,
    limit: Annotated[
        int, typer.Option(min=1, max=100, help="Maximum number of calls that are listed.")
    ] = 20,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one call: wait, time and bytes of each hop, the choice of the copy, and its log.

    The id is ResponseMetadata.RequestId in boto3's answer, or the header x-request-id of the OpenAI
    routes. For a pipeline each container is shown, for a graph each step with its calls.

    Gateway workers keep the latest calls, and the failed and slowest calls of the last 15 minutes,
    in memory. A call is lost when newer calls replace it, or its worker restarts.

    Exit code 1 if the gateway does not answer, or the call is not kept.

    Example: hostelry trace 6f0f3b1e-6f5c-4a4e-9a53-0f9d1c2b7a10

    Example: hostelry trace --slowest wine --minutes 15

    Example: hostelry trace --failed --json
    """
    if slowest and failed:
        raise UsageError("--slowest and --failed are two lists: ask for one of them")
    at = home_at(home)
    config, credentials = load_home(at)
    width = shutil.get_terminal_size((WIDTH, 24)).columns
    if slowest or failed:
        query = {"order": "failed" if failed else "slowest", "since_s": f"{minutes * 60:g}"}
        query |= {"limit": str(limit)} | ({} if name is None else {"endpoint": name})
        found = ask_gateway(config, credentials, "/traces", query)
        if name is not None and not found["calls"]:
            require_endpoint(config, credentials, name, "call")
        lines = list_lines(found["calls"])
    elif name is None:
        raise UsageError("give a request id, or one of --slowest and --failed")
    else:
        found = ask_gateway(config, credentials, f"/traces/{quote(name, safe='')}", {})
        found["logs"] = find_logs(at, found["call"])
        lines = [*call_lines(found["call"], width), *log_lines(found["logs"])]
    if as_json:
        print_json(found)
        return
    if found["silent"]:
        lines += ["", f"{', '.join(found['silent'])} did not answer: its calls are not shown."]
    typer.echo("\n".join(lines))


def ask_gateway(
    config: UpConfig, credentials: Credentials, path: str, query: Mapping[str, str]
) -> dict[str, Any]:
    """The gateway's answer. Raises TerminalError if it refuses or does not know the call."""
    response = send(
        config,
        credentials,
        "GET",
        path,
        process="gateway",
        knows="the calls of the last minutes",
        params=dict(query),
    )
    if response.status_code == 200:
        return document(response)
    reason = document(response).get("message") or response.text
    raise TerminalError(str(reason))


def find_logs(home: Home, call: Mapping[str, Any]) -> dict[str, list[str]]:
    """Log lines by stream, around the call's time, of the copies of a call and of its calls."""
    found: dict[str, list[str]] = {}
    windows = dict(_windows(call))
    for copy_id, (since, until) in list(windows.items())[:MAX_LOG_COPIES]:
        found |= logs_between(home, copy_id, since, until, MAX_LOG_LINES)
    return found


def _windows(call: Mapping[str, Any]) -> Iterator[tuple[str, tuple[float, float]]]:
    """Each copy that the call, or a call that it made, used, with the time range to look at."""
    since, until = call["at"] - LOG_BEFORE_S, call["at"] + call["ms"] / 1000 + LOG_AFTER_S
    for copy_id in call["copies"]:
        yield copy_id, (since, until)
    for made in list_calls(call):
        yield from _windows(made)


def list_calls(call: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The calls that this call made."""
    yield from call.get("calls", ())
    waiting = list(call["spans"])
    while waiting:
        span = waiting.pop()
        waiting += span.get("spans", ())
        if "call" in span:
            yield span["call"]


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the tree. `at_ms` counts from the arrival of the topmost call."""

    label: str
    at_ms: float
    span: JsonObject


def call_lines(call: JsonObject, width: int) -> list[str]:
    """A call as text: its facts, a tree of its spans with bars, choices of copies, and its error.

    Lines are at most `width` wide, except names, reasons and errors.
    """
    rows = list(_rows(call["spans"], 0.0, "", call["at"]))
    rows += _call_rows(call, "", call["at"])
    lines = [_title(call), _names(call)]
    if rows:
        lines += ["", *_table(rows, max(call["ms"], 0.001), max(width, LEAST_WIDTH))]
    chosen = [line for row in rows for line in _choice_lines(row.span)]
    lines += ["", *dict.fromkeys(chosen)] if chosen else []
    failed = [f"failed: {printable(failure_text(call))}"] if call["error"] else []
    failed += [
        f"call {printable(made['request_id'])} of {_target(made)} failed: "
        f"{printable(failure_text(made))}"
        for made in (row.span for row in rows)
        if made.get("error")
    ]
    return [*lines, "", *failed] if failed else lines


def failure_text(call: JsonObject) -> str:
    """Why the call failed."""
    return f"{call['status']} {call['code']}: {call['error']}"


def list_lines(calls: Sequence[JsonObject]) -> list[str]:
    """A line for each call of a list."""
    if not calls:
        return [NOTHING]
    head = ["REQUEST ID", "STARTED", "MS", "STATUS", "ENDPOINT", "TARGET", "ERROR"]
    return columns([head, *(_cells(it) for it in calls)])


def log_lines(logs: Mapping[str, Sequence[str]]) -> list[str]:
    """The lines of each log stream under its title."""
    lines: list[str] = []
    for title, messages in logs.items():
        lines += ["", f"==> {title} <==", *(printable(it) for it in messages)]
    return lines


def printable(text: str) -> str:
    """The text on one line, without control characters."""
    return " ".join("".join(it if it.isprintable() else " " for it in text).split())


def bytes_text(num: int) -> str:
    """A number of bytes in short form."""
    value, units = float(num), ["B", "kB", "MB", "GB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{num} B" if units[0] == "B" else f"{short_number(value)} {units[0]}"


def ms_text(time_ms: float) -> str:
    """A time with three significant digits."""
    return f"{short_number(time_ms / 1000)} s" if time_ms >= 1000 else f"{time_ms:.3g} ms"


def bar(at_ms: float, took_ms: float, whole_ms: float, width: int) -> str:
    """A bar of `width` characters for the whole time, filled during the part `took_ms`."""
    begin = min(width - 1, max(0, int(at_ms / whole_ms * width)))
    end = min(width, max(begin + 1, round((at_ms + took_ms) / whole_ms * width)))
    return (" " * begin + "█" * (end - begin)).ljust(width)


def _title(call: JsonObject) -> str:
    at = datetime.fromtimestamp(call["at"], UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    return (
        f"{call['request_id']}  {printable(call['operation'])}  {call['status']}  "
        f"{ms_text(call['ms'])}  {at}Z"
    )


def _names(call: JsonObject) -> str:
    named = [
        (name, call[name.replace(" ", "_")])
        for name in ("endpoint", "variant", "component", "base component", "target model")
    ]
    parts = [f"{name} {printable(value)}" for name, value in named if value]
    parts += [f"in {bytes_text(call['bytes_in'])}, out {bytes_text(call['bytes_out'])}"]
    if call["first_byte_ms"] is not None:
        parts.append(f"first byte after {ms_text(call['first_byte_ms'])}")
    parts += [
        f"{number} {name.replace('_', ' ')}" for name, number in (call["tokens"] or {}).items()
    ]
    parts += [f"made by {printable(call['parent_id'])}"] if call["parent_id"] else []
    parts += [f"traceparent {call['traceparent']}"] if call["traceparent"] else []
    return f"{', '.join(parts)}; {call['worker']}"


def _rows(
    spans: Sequence[JsonObject], since_ms: float, indent: str, top_at: float
) -> Iterator[_Row]:
    """The rows of the spans, parents first. `since_ms` is the arrival of the call."""
    for span in spans:
        yield _Row(indent + _label(span), since_ms + span["at_ms"], span)
        yield from _rows(span.get("spans", ()), since_ms, indent + "  ", top_at)
        if "call" in span:
            yield from _one_call(span["call"], indent + "  ", top_at)


def _call_rows(call: JsonObject, indent: str, top_at: float) -> Iterator[_Row]:
    """The rows of the calls that no step of this call names."""
    for made in call.get("calls", ()):
        yield from _one_call(made, indent, top_at)


def _one_call(call: JsonObject, indent: str, top_at: float) -> Iterator[_Row]:
    since_ms = (call["at"] - top_at) * 1000
    outcome = f"{call['status']} {call['code']}" if call["error"] else None
    yield _Row(f"{indent}call of {_target(call)}", since_ms, {**call, "outcome": outcome})
    yield from _rows(call["spans"], since_ms, indent + "  ", top_at)
    yield from _call_rows(call, indent + "  ", top_at)


def _target(call: JsonObject) -> str:
    target = call["component"] or call["variant"]
    return printable(f"{call['endpoint']}/{target}" if target else call["endpoint"])


def _label(span: JsonObject) -> str:
    kind = span.get("kind")
    name = printable(span["name"])
    if span["name"] == "attempt":
        return f"copy {printable(span['copy'])}"
    return name if kind is None else f"{name} ({printable(kind)})"


def _table(rows: Sequence[_Row], whole_ms: float, width: int) -> list[str]:
    """Name, time, wait and bytes of each row, then its bar. Errors come last."""
    head = ["", "TIME", "WAIT", "IN", "OUT"]
    cells = columns([head, *(_numbers(row) for row in rows)])
    taken = max(len(it) for it in cells)
    bar_width = max(LEAST_BAR, width - taken - 4)
    lines = [cells[0]]
    for row, text in zip(rows, cells[1:], strict=True):
        drawn = bar(row.at_ms, row.span["ms"], whole_ms, bar_width)
        outcome = row.span.get("outcome")
        notes = [] if outcome in GOOD else [printable(str(outcome))]
        notes += [printable(row.span["detail"])] if row.span.get("detail") else []
        lines.append(f"{text.ljust(taken)}  │{drawn}│ {'; '.join(notes)}".rstrip())
    return lines


def _numbers(row: _Row) -> list[str]:
    span = row.span
    label = row.label if len(row.label) <= MAX_LABEL else f"{row.label[: MAX_LABEL - 1]}…"
    return [
        label,
        ms_text(span["ms"]),
        ms_text(span["wait_ms"]) if "wait_ms" in span else "",
        bytes_text(span["bytes_in"]) if "bytes_in" in span else "",
        bytes_text(span["bytes_out"]) if "bytes_out" in span else "",
    ]


def _choice_lines(span: JsonObject) -> Iterator[str]:
    """How the copy of an attempt was chosen, with the costs of all copies."""
    choice = span.get("choice")
    if not choice or not choice["costs"]:
        return
    ordered = sorted(choice["costs"].items(), key=lambda it: it[1])
    shown = [f"{printable(copy)} {cost:g}" for copy, cost in ordered[:MAX_CHOICES]]
    left = choice["of"] - len(shown)
    shown += [f"and {left} more"] if left > 0 else []
    unit = "ms expected" if choice["unit"] == "ms" else "requests in flight"
    yield (
        f"{printable(span['copy'])} was chosen of {choice['of']} copies by {choice['policy']}; "
        f"{unit}: {', '.join(shown)}"
    )


def _cells(call: JsonObject) -> list[str]:
    error = printable(call["error"] or "-")
    return [
        call["request_id"],
        datetime.fromtimestamp(call["at"], UTC).strftime("%H:%M:%S.%f")[:-3] + "Z",
        f"{call['ms']:.3f}",
        str(call["status"]),
        printable(call["endpoint"]),
        printable(call["component"] or call["variant"] or "-"),
        error if len(error) <= MAX_ERROR else f"{error[: MAX_ERROR - 1]}…",
    ]
