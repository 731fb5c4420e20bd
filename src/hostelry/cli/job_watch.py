"""`hostelry jobs watch`."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import typer

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.cli import batch_text, transform_text
from hostelry.cli.completion import names
from hostelry.cli.control_requests import document, send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.cli.printable import CLEAR_LINE
from hostelry.cli.state import control_state
from hostelry.home.home import Credentials, UpConfig

LOOK_EVERY_S = 1.0
MAX_SILENT_LOOKS = 60  # a restart of a process takes a few seconds
BATCH_PREFIX = "batch_"
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedKind:
    """A kind of job: the process that knows it, its line, its end.

    `key` differs where a line without a terminal is worth another one; `reason` is why it ended so.
    """

    process: str
    line: Callable[[Row, float], str]
    is_over: Callable[[Row], bool]
    key: Callable[[Row], object]
    has_failed: Callable[[Row], bool]
    reason: Callable[[Row], str | None]


TRANSFORM_JOB = WatchedKind(
    process="control",
    line=transform_text.bar_text,
    is_over=lambda job: job["status"] not in transform_text.RUNNING,
    key=lambda job: (job["status"], job["progress"]),
    has_failed=lambda job: job["status"] == "Failed",
    reason=lambda job: job.get("failure_reason"),
)
BATCH = WatchedKind(
    process="jobs",
    line=batch_text.bar_text,
    is_over=lambda batch: batch["ended_at"] is not None,
    key=lambda batch: (batch["status"], batch["completed"], batch["failed"], batch["trouble"]),
    has_failed=lambda batch: batch["status"] in ("failed", "expired"),
    reason=lambda batch: "\n".join(batch_text.reasons(batch)) or None,
)


def watch(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the transform job, or id of the batch.", autocompletion=names.watched
        ),
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the progress of a transform job or batch until it ends.

    On a terminal it is a bar, otherwise one line per change. With --json the progress goes to
    standard error, and the finished job to standard output.

    Exit code 1 if the job is Failed, or the batch failed or expired.

    Example: hostelry jobs watch nightly-scores
    """
    config, credentials = settled(home_at(home))
    kind, look = TRANSFORM_JOB, seen_job
    if name.startswith(BATCH_PREFIX):
        kind, look = BATCH, seen_batch
    on_terminal = (sys.stderr if as_json else sys.stdout).isatty()
    seen = partial(look, config, credentials, name)
    job = followed(name, kind, seen, on_terminal=on_terminal, err=as_json)
    if as_json:
        print_json(job)
    elif reason := kind.reason(job):
        typer.echo(reason)
    raise typer.Exit(1 if kind.has_failed(job) else 0)


def followed(
    name: str,
    kind: WatchedKind,
    look: Callable[[], Row | None],
    *,
    on_terminal: bool,
    err: bool = False,
) -> Row:
    """The job once it is over; what is seen of it until then is shown.

    `look` gives None while the process does not answer, which may be for a restart; raises
    TerminalError where that takes longer.
    """
    clock, shown, silent = SystemClock(), None, 0
    while True:
        job = look()
        silent = silent + 1 if job is None else 0
        if silent > MAX_SILENT_LOOKS:
            process = kind.process
            raise TerminalError(f"{process} does not answer: see `hostelry logs {process}`")
        if job is not None:
            line, is_over, key = kind.line(job, clock.now()), kind.is_over(job), kind.key(job)
            if on_terminal:
                typer.echo(CLEAR_LINE, nl=False, err=err)
                typer.echo(f"{name}  {line}", nl=is_over, err=err)
            elif key != shown:
                typer.echo(f"{name}  {line}", err=err)
            shown = key
            if is_over:
                return job
        time.sleep(LOOK_EVERY_S)


def seen_job(config: UpConfig, credentials: Credentials, name: str) -> Row | None:
    """The transform job as control sees it; None while control does not answer.

    Raises TerminalError where control shows none of that name.
    """
    state = control_state(config, credentials)
    if state is None:
        return None
    jobs = state.get("transform_jobs", [])
    found = [it for it in jobs if it["name"] == name]
    if not found:
        names = ", ".join(it["name"] for it in jobs) or "none"
        raise TerminalError(
            f"there is no transform job {name} that runs or ended lately. There are: {names}"
        )
    newest: Row = found[0]
    return newest


def seen_batch(config: UpConfig, credentials: Credentials, name: str) -> Row | None:
    """The batch as the jobs process sees it; None while that does not answer.

    Raises TerminalError where there is none of that id.
    """
    try:
        path = f"/internal/jobs/{quote(name, safe='')}"
        answer = send(config, credentials, "GET", path, process="jobs")
    except TerminalError:
        return None
    if answer.status_code == httpx.codes.NOT_FOUND:
        raise TerminalError(answer.text)
    return document(answer) if answer.status_code == httpx.codes.OK else None
