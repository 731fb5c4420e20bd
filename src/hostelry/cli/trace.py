"""`hostelry trace`: one call by its request id, or the slowest and the failed ones."""

import shutil
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.completion import names
from hostelry.cli.control_requests import document, require_endpoint, send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.cli.kept_logs import logs_between
from hostelry.cli.trace_text import call_lines, list_lines, log_lines
from hostelry.home.home import Credentials, Home, UpConfig

LOG_BEFORE_S, LOG_AFTER_S = 0.5, 2.5  # lines are collected each second, at their file's last write
MAX_LOG_LINES = 20  # of a copy
MAX_LOG_COPIES = 12
WIDTH = 120  # where there is no terminal


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
    config, credentials = settled(at)
    width = shutil.get_terminal_size((WIDTH, 24)).columns
    if slowest or failed:
        query = {"order": "failed" if failed else "slowest", "since_s": f"{minutes * 60:g}"}
        query |= {"limit": str(limit)} | ({} if name is None else {"endpoint": name})
        found = asked(config, credentials, "/traces", query)
        if name is not None and not found["calls"]:
            require_endpoint(config, credentials, name, "call")
        lines = list_lines(found["calls"])
    elif name is None:
        raise UsageError("give a request id, or one of --slowest and --failed")
    else:
        found = asked(config, credentials, f"/traces/{quote(name, safe='')}", {})
        found["logs"] = logs_of(at, found["call"])
        lines = [*call_lines(found["call"], width), *log_lines(found["logs"])]
    if as_json:
        print_json(found)
        return
    if found["silent"]:
        lines += ["", f"{', '.join(found['silent'])} did not answer: its calls are not shown."]
    typer.echo("\n".join(lines))


def asked(
    config: UpConfig, credentials: Credentials, path: str, query: Mapping[str, str]
) -> dict[str, Any]:
    """The gateway's answer; raises TerminalError where it refuses, or does not know the call."""
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


def logs_of(home: Home, call: Mapping[str, Any]) -> dict[str, list[str]]:
    """The log lines of the call's copies around its time, by stream; those of calls it made too."""
    found: dict[str, list[str]] = {}
    windows = dict(_windows(call))
    for copy_id, (since, until) in list(windows.items())[:MAX_LOG_COPIES]:
        found |= logs_between(home, copy_id, since, until, MAX_LOG_LINES)
    return found


def _windows(call: Mapping[str, Any]) -> Iterator[tuple[str, tuple[float, float]]]:
    """Each copy that a call used, or one that it made, with the time to look at."""
    since, until = call["at"] - LOG_BEFORE_S, call["at"] + call["ms"] / 1000 + LOG_AFTER_S
    for copy_id in call["copies"]:
        yield copy_id, (since, until)
    for made in calls_of(call):
        yield from _windows(made)


def calls_of(call: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The calls that a call made itself."""
    yield from call.get("calls", ())
    waiting = list(call["spans"])
    while waiting:
        span = waiting.pop()
        waiting += span.get("spans", ())
        if "call" in span:
            yield span["call"]
