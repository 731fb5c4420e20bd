"""`hostelry jobs`: asynchronous requests, batches and transform jobs."""

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.base.printable import CLEAR_LINE
from hostelry.cli import completion as names
from hostelry.cli.control_requests import control_state, document, require_endpoint, send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.job_text import (
    RUNNING_JOB,
    batch_bar,
    batch_facts,
    batch_lines,
    batch_reasons,
    list_lines,
    show_lines,
    transform_bar,
)
from hostelry.home.home import Credentials, UpConfig

jobs = typer.Typer(
    help="Show asynchronous requests, batches and transform jobs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
PATH = "/internal/jobs"
BatchName = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the batch.", autocompletion=names.batches)
]
RequestName = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Id or inference id of the request.", autocompletion=names.jobs
    ),
]
LOOK_EVERY_S = 1.0
MAX_SILENT_LOOKS = 60  # a restart of a process takes a few seconds
BATCH_PREFIX = "batch_"
Row = Mapping[str, Any]


def list_jobs(
    endpoint: Annotated[
        str | None,
        typer.Option(help="List only requests of this endpoint.", autocompletion=names.endpoints),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            help=(
                "List only requests in this state: waiting, running, completed, failed or expired."
            )
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of rows.")] = 100,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List asynchronous requests, newest first, with each endpoint's queue, and batches.

    Failed and expired requests are kept for 14 days as dead letters. `hostelry jobs retry` runs
    them again. Batches are those of OpenAI's API, for any model.

    Example: hostelry jobs list --state failed
    """
    wanted = {"endpoint": endpoint, "state": state, "limit": str(limit)}
    query = {name: value for name, value in wanted.items() if value is not None}
    found = _answer(home, "GET", PATH, query)
    if endpoint is not None and not found["jobs"]:
        require_endpoint(*load_home(home_at(home)), endpoint, "request")
    if as_json:
        print_json(found)
        return
    lines = list_lines(
        found["jobs"], found["backlog"], found["finished_a_minute"], found.get("trouble")
    )
    batches = batch_lines(found["batches"], SystemClock().now())
    typer.echo("\n".join([*lines, "", *batches] if batches else lines))


jobs.command("list", short_help="Show asynchronous requests, their queues, and batches.")(list_jobs)


def show_job(name: RequestName, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show an asynchronous request or a batch: how far it is, its objects or files, its reason.

    Exit code 1 if no request or batch has this id.
    """
    row = _answer(home, "GET", f"{PATH}/{quote(name, safe='')}")
    if as_json:
        print_json(row)
        return
    is_request = "inference_id" in row
    lines = show_lines(row) if is_request else batch_facts(row, SystemClock().now())
    typer.echo("\n".join(lines))


jobs.command("show", short_help="Show one asynchronous request or batch.")(show_job)


def cancel_job(name: BatchName, home: HomeOption = None) -> None:
    """Cancel a batch, which keeps the answers that it has.

    Exit code 1 if it has ended.
    """
    _answer(home, "POST", f"{PATH}/{quote(name, safe='')}/cancel")
    typer.echo(f"{name} is being cancelled; see `hostelry jobs show {name}`")


jobs.command("cancel", short_help="Cancel a batch.")(cancel_job)


def retry_job(name: RequestName, home: HomeOption = None) -> None:
    """Run a failed or expired request again, with its whole time to live.

    Exit code 1 if it is in another state.
    """
    _answer(home, "POST", f"{PATH}/{quote(name, safe='')}/retry")
    typer.echo(f"{name} waits again; see `hostelry jobs show {name}`")


jobs.command("retry", short_help="Run a failed asynchronous request again.")(retry_job)


def drop_job(name: RequestName, home: HomeOption = None) -> None:
    """Forget a request that is not running, without output, failure object or notification."""
    _answer(home, "POST", f"{PATH}/{quote(name, safe='')}/drop")
    typer.echo(f"{name} is dropped")


jobs.command("drop", short_help="Forget an asynchronous request.")(drop_job)


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
    config, credentials = load_home(home_at(home))
    kind, look = TRANSFORM_JOB, seen_job
    if name.startswith(BATCH_PREFIX):
        kind, look = BATCH, seen_batch
    on_terminal = (sys.stderr if as_json else sys.stdout).isatty()
    seen = partial(look, config, credentials, name)
    job = follow_job(name, kind, seen, on_terminal=on_terminal, err=as_json)
    if as_json:
        print_json(job)
    elif reason := kind.reason(job):
        typer.echo(reason)
    raise typer.Exit(1 if kind.has_failed(job) else 0)


jobs.command("watch", short_help="Show the progress of a transform job or a batch.")(watch)


def _answer(
    home: HomeOption, method: str, path: str, query: dict[str, str] | None = None
) -> dict[str, Any]:
    """The JSON of the answer, empty without a body. Raises TerminalError for a refusal."""
    config, credentials = load_home(home_at(home))
    response = send(
        config,
        credentials,
        method,
        path,
        process="jobs",
        knows="asynchronous requests and batches",
        params=query or {},
    )
    if response.status_code not in (200, 204):
        raise TerminalError(response.text)
    return document(response)


class WatchedKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of job: which process reports it, how it is printed, and when it has ended.

    Without a terminal a line is printed when `key` changes. `reason` explains the end.
    """

    process: str
    line: Callable[[Row, float], str]
    is_over: Callable[[Row], bool]
    key: Callable[[Row], object]
    has_failed: Callable[[Row], bool]
    reason: Callable[[Row], str | None]


TRANSFORM_JOB = WatchedKind(
    process="control",
    line=transform_bar,
    is_over=lambda job: job["status"] not in RUNNING_JOB,
    key=lambda job: (job["status"], job["progress"]),
    has_failed=lambda job: job["status"] == "Failed",
    reason=lambda job: job.get("failure_reason"),
)
BATCH = WatchedKind(
    process="jobs",
    line=batch_bar,
    is_over=lambda batch: batch["ended_at"] is not None,
    key=lambda batch: (batch["status"], batch["completed"], batch["failed"], batch["trouble"]),
    has_failed=lambda batch: batch["status"] in ("failed", "expired"),
    reason=lambda batch: "\n".join(batch_reasons(batch)) or None,
)


def follow_job(
    name: str,
    kind: WatchedKind,
    look: Callable[[], Row | None],
    *,
    on_terminal: bool,
    err: bool = False,
) -> Row:
    """Show the progress of a job until it ends, and return the job.

    `look` returns None while the process does not answer, for example during a restart. Raises
    TerminalError if the process stays silent longer than a restart takes.
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
    """The transform job as control reports it. None while control does not answer.

    Raises TerminalError if control has no job of this name.
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
    """The batch as the jobs process reports it. None while the process does not answer.

    Raises TerminalError if no batch has this id.
    """
    try:
        path = f"/internal/jobs/{quote(name, safe='')}"
        answer = send(config, credentials, "GET", path, process="jobs")
    except TerminalError:
        return None
    if answer.status_code == 404:
        raise TerminalError(answer.text)
    return document(answer) if answer.status_code == 200 else None
