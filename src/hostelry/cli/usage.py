"""`hostelry usage`: the usage of serverless endpoints."""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from hostelry.base.errors import TerminalError
from hostelry.cli import completion as names
from hostelry.cli.control_requests import control_answer
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.status_text import columns

COLUMNS: Mapping[str, str] = {
    "requests": "REQUESTS",
    "throttled": "THROTTLED",
    "billed_ms": "BILLED MS",
    "memory_mb_ms": "MB x MS",
    "bytes_in": "BYTES IN",
    "bytes_out": "BYTES OUT",
    "provisioned_mb_s": "PROVISIONED MB x S",
}


def usage(
    endpoint: Annotated[
        str | None, typer.Option(help="Show only this endpoint.", autocompletion=names.endpoints)
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the requests, billed milliseconds, memory and bytes of serverless endpoints, by hour.

    Hours are in UTC. Usage of the last minute may still be missing.

    Example: hostelry usage --endpoint fn
    """
    config, credentials = load_home(home_at(home))
    query = {} if endpoint is None else {"endpoint": endpoint}
    found = control_answer(config, credentials, "/internal/usage", query, knows="of usage")
    if endpoint is not None and not found["endpoints"]:
        raise TerminalError(
            f"no usage of a serverless endpoint {endpoint} is known; `hostelry status` shows what"
            " there is"
        )
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(usage_lines(found["endpoints"])))


def usage_lines(endpoints: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table per endpoint. The total comes first."""
    if not endpoints:
        return ["No serverless endpoint was used."]
    rows = [["ENDPOINT", "HOUR", *COLUMNS.values()]]
    for one in endpoints:
        rows.append([one["endpoint"], "total", *(str(one["total"][it]) for it in COLUMNS)])
        for hour in one["hours"]:
            at = time.strftime("%Y-%m-%d %H:00", time.gmtime(hour["hour"]))
            rows.append(["", at, *(str(hour[it]) for it in COLUMNS)])
    return columns(rows)
