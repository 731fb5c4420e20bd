"""`hostelry jobs list`, `show`, `cancel`, `retry` and `drop`: asynchronous requests, batches."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.cli.batch_text import batch_facts, batch_lines
from hostelry.cli.completion import names
from hostelry.cli.control_requests import document, require_endpoint, send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.cli.job_text import list_lines, show_lines

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
        require_endpoint(*settled(home_at(home)), endpoint, "request")
    if as_json:
        print_json(found)
        return
    lines = list_lines(
        found["jobs"], found["backlog"], found["finished_a_minute"], found.get("trouble")
    )
    batches = batch_lines(found["batches"], SystemClock().now())
    typer.echo("\n".join([*lines, "", *batches] if batches else lines))


def show_job(name: RequestName, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show an asynchronous request or a batch: how far it is, its objects or files, its reason.

    Exit code 1 where there is none with this id.
    """
    row = _answer(home, "GET", f"{PATH}/{quote(name, safe='')}")
    if as_json:
        print_json(row)
        return
    is_request = "inference_id" in row
    lines = show_lines(row) if is_request else batch_facts(row, SystemClock().now())
    typer.echo("\n".join(lines))


def cancel_job(name: BatchName, home: HomeOption = None) -> None:
    """Cancel a batch, which keeps the answers that it has.

    Exit code 1 where it has ended.
    """
    _answer(home, "POST", f"{PATH}/{quote(name, safe='')}/cancel")
    typer.echo(f"{name} is being cancelled; see `hostelry jobs show {name}`")


def retry_job(name: RequestName, home: HomeOption = None) -> None:
    """Run a failed or expired request again, with its whole time to live.

    Exit code 1 where it is in another state.
    """
    _answer(home, "POST", f"{PATH}/{quote(name, safe='')}/retry")
    typer.echo(f"{name} waits again; see `hostelry jobs show {name}`")


def drop_job(name: RequestName, home: HomeOption = None) -> None:
    """Forget a request that is not running, without output, failure object or notification."""
    _answer(home, "POST", f"{PATH}/{quote(name, safe='')}/drop")
    typer.echo(f"{name} is dropped")


def _answer(
    home: HomeOption, method: str, path: str, query: dict[str, str] | None = None
) -> dict[str, Any]:
    """The answer's JSON, empty without a body; raises TerminalError for a refusal."""
    config, credentials = settled(home_at(home))
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
