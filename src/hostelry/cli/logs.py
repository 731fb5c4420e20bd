"""`hostelry logs`."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hostelry.base.errors import TerminalError
from hostelry.cli.completion import names
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, settled
from hostelry.cli.kept_logs import kept_logs
from hostelry.cli.log_files import find_logs, fleet_logs
from hostelry.cli.printable import terminal_lines
from hostelry.cli.request_lines import request_lines
from hostelry.cli.state import control_state

FOLLOW_PAUSE_S = 0.2
TAIL_BYTES_PER_LINE = 400
MAX_TAIL_BYTES = 8 * 1024 * 1024
MAX_LINES = MAX_TAIL_BYTES  # all that are in so many bytes


def logs(
    name: Annotated[
        str | None,
        typer.Argument(
            help=(
                "Process (up, gateway, gateway-1, control, objectstore), endpoint, "
                "component, instance id or copy id. Default: every process."
            ),
            show_default=False,
            autocompletion=names.logged,
        ),
    ] = None,
    home: HomeOption = None,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, help="Number of lines per log.")
    ] = 50,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Keep printing new lines until Ctrl-C.")
    ] = False,
    request: Annotated[
        str | None,
        typer.Option("--request", metavar="ID", help="Print only lines about this request."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the last lines of a process's log, or of the model servers of an endpoint or component.

    For resources that are deleted, it prints the lines that CloudWatch Logs keeps. With --json each
    line is an object with the log's name and the text.

    Example: hostelry logs control -n 100

    Example: hostelry logs my-component -f

    Example: hostelry logs --request 6f0f3b1e-6f5c-4a4e-9a53-0f9d1c2b7a10
    """
    at = home_at(home)
    config, credentials = settled(at)
    state = control_state(config, credentials)
    try:
        found = find_logs(at, state, name)
    except TerminalError:
        kept = kept_logs(at, name or "", lines)
        if not kept:
            raise
        printer = LinePrinter(as_json=as_json, several=True)
        for title, messages in kept.items():
            printer.begin(title)
            for message in messages:
                printer.line(title, message)
        return
    printer = LinePrinter(as_json=as_json, several=len(found) > 1)
    if request is not None:
        print_about(printer, found if name else {**found, **fleet_logs(at)}, request)
        return
    positions: dict[str, int] = {}
    for title, path in found.items():
        printer.begin(title)
        positions[title] = path.stat().st_size
        for line in last_lines(path, lines):
            printer.line(title, line)
    if follow:
        for title, text in appended(found, positions):
            printer.line(title, text, follows=True)


def print_about(printer: "LinePrinter", found: Mapping[str, Path], request_id: str) -> None:
    """Print what the newest 8 MiB of each log say of a request.

    Raises TerminalError where none says anything.
    """
    about = {
        title: lines
        for title, path in found.items()
        if (lines := request_lines(last_lines(path, MAX_LINES), request_id))
    }
    if not about:
        raise TerminalError(
            f"no log of {', '.join(found)} has a line about request {request_id}: most requests "
            f"leave none; `hostelry trace {request_id}` shows a call of the last minutes"
        )
    for title, lines in about.items():
        printer.begin(title)
        for line in lines:
            printer.line(title, line)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePrinter:
    """Lines of one log, or of several with their titles; as JSON an object for each line."""

    as_json: bool
    several: bool

    def begin(self, title: str) -> None:
        """Print a log's title above its lines."""
        if self.several and not self.as_json:
            typer.echo(f"==> {title} <==")

    def line(self, title: str, text: str, *, follows: bool = False) -> None:
        """Print one line; one that `follows` the others has its title beside it."""
        if self.as_json:
            typer.echo(msgspec.json.encode({"log": title, "line": text}))
            return
        for line in terminal_lines(text):
            typer.echo(f"{title}| {line}" if follows and self.several else line)


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` lines of a text file."""
    if count == 0:
        return []
    wanted = min(MAX_TAIL_BYTES, max(64 * 1024, count * TAIL_BYTES_PER_LINE))
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - wanted))
        return [it.decode(errors="replace") for it in file.read().splitlines()[-count:]]


def appended(found: dict[str, Path], positions: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Title and line of each line written from now on; a truncated file is read from its start."""
    while True:
        for title, path in found.items():
            for line in new_lines(path, title, positions):
                yield title, line
        time.sleep(FOLLOW_PAUSE_S)


def new_lines(path: Path, title: str, positions: dict[str, int]) -> list[str]:
    """Whole lines written to `path` since `positions[title]`, which advances."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(positions[title] if size >= positions[title] else 0)
            written = file.read(MAX_TAIL_BYTES)
            whole = written[: written.rfind(b"\n") + 1]
            positions[title] = file.tell() - len(written) + len(whole)
    except FileNotFoundError:
        return []
    return [it.decode(errors="replace") for it in whole.splitlines()]
