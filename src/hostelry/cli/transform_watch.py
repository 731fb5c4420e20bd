"""`hostelry jobs watch`."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.cli.home_option import HomeOption, home_at, settled
from hostelry.cli.state import control_state
from hostelry.cli.transform_text import RUNNING, bar_text
from hostelry.server.home import Credentials, UpConfig

LOOK_EVERY_S = 1.0
MAX_SILENT_LOOKS = 60  # a restart of control takes a few seconds
CLEAR_LINE = "\r\x1b[2K"


def watch(
    name: Annotated[str, typer.Argument(help="The transform job's name.")],
    home: HomeOption = None,
) -> None:
    """Show a transform job's progress until it is over.

    A bar on a terminal, else a line for each change. Exit code 0 where the job is Completed or
    Stopped, 1 where it Failed.

    Example: hostelry jobs watch nightly-scores
    """
    config, credentials = settled(home_at(home))
    job = followed(
        name, lambda: seen_job(config, credentials, name), on_terminal=sys.stdout.isatty()
    )
    if job.get("failure_reason"):
        typer.echo(job["failure_reason"])
    raise typer.Exit(1 if job["status"] == "Failed" else 0)


def followed(
    name: str, look: Callable[[], Mapping[str, Any] | None], *, on_terminal: bool
) -> Mapping[str, Any]:
    """The job once it is over; what is seen of it until then is shown.

    `look` gives None while control does not answer, which may be for a restart; raises
    TerminalError where that takes longer.
    """
    clock, shown, silent = SystemClock(), "", 0
    while True:
        job = look()
        silent = silent + 1 if job is None else 0
        if silent > MAX_SILENT_LOOKS:
            raise TerminalError("control does not answer: see `hostelry logs control`")
        if job is not None:
            line = f"{name}  {bar_text(job, clock.now())}"
            is_over = job["status"] not in RUNNING
            if on_terminal:
                typer.echo(CLEAR_LINE + line, nl=is_over)
            elif key_of(job) != shown:
                typer.echo(line)
            shown = key_of(job)
            if is_over:
                return job
        time.sleep(LOOK_EVERY_S)


def key_of(job: Mapping[str, Any]) -> str:
    """A text that differs where a line without a terminal is worth another."""
    return f"{job['status']} {job['progress']}"


def seen_job(config: UpConfig, credentials: Credentials, name: str) -> Mapping[str, Any] | None:
    """The job as control sees it; None while control does not answer.

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
    newest: Mapping[str, Any] = found[0]
    return newest
