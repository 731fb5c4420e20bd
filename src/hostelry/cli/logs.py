"""`hostelry logs`."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.errors import TerminalError
from hostelry.base.printable import terminal_lines
from hostelry.cli import completion as names
from hostelry.cli.control_requests import control_state
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home
from hostelry.fleet.records import instance_folders
from hostelry.home.home import Home
from hostelry.logs.events import LogStream, LogsUnavailable
from hostelry.logs.store import BEGIN, END, LogStore

FOLLOW_PAUSE_S = 0.2
TAIL_BYTES_PER_LINE = 400
MAX_TAIL_BYTES = 8 * 1024 * 1024
MAX_LINES = MAX_TAIL_BYTES  # no limit: these bytes cannot hold more lines
COPY_ID = re.compile(r"c-[0-9a-f]{8,}")
INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,}")
Read = Callable[[LogStore, LogStream], list[str]]
# A traceback has a heading, indented lines, and the line after one of these lines.
HEADING, INDENTS = "Traceback (most recent", (" ", "\t")


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
    config, credentials = load_home(at)
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
        for title, text in follow_lines(found, positions):
            printer.line(title, text, follows=True)


def print_about(printer: "LinePrinter", found: Mapping[str, Path], request_id: str) -> None:
    """Print the lines about a request in the newest 8 MiB of each log.

    Raises TerminalError if no log has such a line.
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


class LinePrinter(msgspec.Struct, frozen=True, kw_only=True):
    """Prints lines of one log, or of several with titles. With JSON each line is an object."""

    as_json: bool
    several: bool

    def begin(self, title: str) -> None:
        """Print a log's title above its lines."""
        if self.several and not self.as_json:
            typer.echo(f"==> {title} <==")

    def line(self, title: str, text: str, *, follows: bool = False) -> None:
        """Print one line. If it `follows` lines of other logs, its title comes first."""
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


def follow_lines(found: dict[str, Path], positions: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Title and text of each line from now on. A truncated file is read from its start."""
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


def platform_logs(home: Home) -> dict[str, Path]:
    """The logs of the platform's processes, by name."""
    return {path.stem: path for path in sorted(home.logs.glob("*.log"))}


def fleet_logs(home: Home) -> dict[str, Path]:
    """The logs of agents (by instance id) and copies (by copy id) that are on disk."""
    found: dict[str, Path] = {}
    for folder in instance_folders(home.instances):
        found[folder.root.name] = folder.agent_log
        for copy_id in sorted(folder.copy_ids()):
            found[copy_id] = folder.copy(copy_id).log
    return {name: path for name, path in found.items() if path.exists()}


def find_copies(state: Mapping[str, Any] | None, name: str) -> list[str]:
    """Ids of the copies of the endpoint or component `name`, in control's `state`."""
    return [
        copy["id"]
        for endpoint in (state or {}).get("endpoints", [])
        for copy in endpoint.get("copies", ())
        if endpoint["name"] == name or copy.get("owner", "").partition("/")[2] == name
    ]


def serving_component(state: Mapping[str, Any] | None, name: str) -> str:
    """The component whose copies serve `name`: the base of an adapter, or the component itself."""
    for endpoint in (state or {}).get("endpoints", []):
        for component in endpoint.get("components", ()):
            if component["name"] == name and component.get("base"):
                return str(component["base"])
    return name


def find_logs(home: Home, state: Mapping[str, Any] | None, name: str | None) -> dict[str, Path]:
    """Title and path of each log that `name` selects. None selects the logs of all processes.

    A copy or instance may be named by the start of its id. If nothing matches, raises TerminalError
    with all names.
    """
    platform, fleet = platform_logs(home), fleet_logs(home)
    if name is None:
        return platform
    named = {k: it for k, it in platform.items() if k == name or k.startswith(f"{name}-")}
    if named:
        return named
    owned = find_copies(state, serving_component(state, name))
    matches = {it: path for it, path in fleet.items() if it in owned or it.startswith(name)}
    if not matches:
        known = ", ".join([*platform, *fleet]) or "none yet"
        raise TerminalError(f"no log for {name}: {why_none(state, name)}. There are: {known}")
    return matches


def why_none(state: Mapping[str, Any] | None, name: str) -> str:
    """Why no log has the name, if the reason is known."""
    if COPY_ID.fullmatch(name):
        return "this copy is gone, and no line of its log is kept"
    if INSTANCE_ID.fullmatch(name):
        return "this instance is gone, and no line of its copies' logs is kept"
    if state is None:
        return (
            "it is no process, instance or copy with output on disk, and control, which knows "
            "endpoints and components, does not answer"
        )
    for endpoint in state.get("endpoints", []):
        for resource in (endpoint, *endpoint.get("components", ())):
            if resource["name"] == name:
                return (
                    f"it is {resource.get('status', 'there')} and has no running copy "
                    "(`hostelry status` shows why)"
                )
    return "it is no process, endpoint, component, instance or copy with output on disk"


def kept_logs(home: Home, name: str, count: int) -> Mapping[str, Sequence[str]]:
    """The last `count` lines of each log stream of an endpoint, component, job, instance or copy.

    Keys name stream and group. Empty if nothing is kept, or the file cannot be read now.
    """
    return _read(
        home,
        name,
        lambda store, stream: [
            event.message for event in store.read_backwards(stream, BEGIN, END, count)
        ],
    )


def logs_between(
    home: Home, name: str, since: float, until: float, count: int
) -> dict[str, list[str]]:
    """As `kept_logs`, the lines from `since` to `until`, in seconds since the epoch.

    Streams without such lines are left out.
    """
    start, end = (int(since * 1000), 0), (int(until * 1000), 0)
    found = _read(
        home,
        name,
        lambda store, stream: [
            event.message for event in store.read_backwards(stream, start, end, count)
        ],
    )
    return {title: lines for title, lines in found.items() if lines}


def _read(home: Home, name: str, read: Read) -> dict[str, list[str]]:
    if not home.log_events.exists():
        return {}
    store = LogStore(home.log_events)
    try:
        return {
            f"{stream.name} of {group}": read(store, stream)
            for group, stream in store.find_named(name)
        }
    except LogsUnavailable:
        return {}
    finally:
        store.close()


def request_lines(lines: Iterable[str], request_id: str) -> list[str]:
    """The lines that name the request, each with its continuation lines."""
    found: list[str] = []
    belongs = was_indented = False
    for line in lines:
        is_indented = line.startswith(INDENTS)
        continues = is_indented or was_indented or line.startswith(HEADING)
        belongs = request_id in line or (belongs and continues)
        was_indented = is_indented
        if belongs:
            found.append(line)
    return found
