"""`hostelry cells`: the table of cells, its router, and moves of endpoints between cells."""

from pathlib import Path
from typing import Annotated

import typer

from hostelry.base.errors import TerminalError
from hostelry.base.logging import configure_logging
from hostelry.base.user import expanded
from hostelry.cells.assignment_file import (
    AssignmentDocument,
    check_document,
    read_document,
    write_document,
)
from hostelry.cli.cells.move import MoveOrder, move_endpoint
from hostelry.cli.cells.table import cell_rows, with_cell
from hostelry.cli.completion import names
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.server.cell_router import CellRouterConfig, run_cell_router
from hostelry.server.home import Home

DEFAULT_FILE = Path("cells.toml")
DEFAULT_PORT = 8780
FileOption = Annotated[
    Path, typer.Option("--file", "-f", help="The table of cells.", show_default=True)
]

cells = typer.Typer(
    help="Whole platforms behind a router: add, list, route, move endpoints.",
    no_args_is_help=True,
)


@cells.callback()
def _group() -> None:
    """Cells."""


@cells.command()
def add(
    name: Annotated[str, typer.Argument(help="The cell's name.")],
    file: FileOption = DEFAULT_FILE,
    url: Annotated[
        str | None, typer.Option(help="Its gateway, as the router reaches it; else the home's.")
    ] = None,
    home: HomeOption = None,
) -> None:
    """Add a platform to the table as a cell, with its account and the digests of its keys.

    An account that another cell has already stays there; endpoints are moved, or named in the
    table.

    Example: hostelry cells add blue --home /srv/blue
    """
    config, credentials = settled(home_at(home))
    document = read_document(file) if file.exists() else AssignmentDocument(cells={})
    changed = with_cell(document, name, url or config.gateway_url, credentials)
    check_document(changed, file)
    write_document(file, changed)
    typer.echo(f"{file}: cell {name} at {changed.cells[name].url}")


@cells.command("ls")
def list_cells(file: FileOption = DEFAULT_FILE, as_json: JsonOption = False) -> None:
    """List cells: their accounts, what is assigned to them apart, and whether they answer.

    Exit code 1 where one does not answer.

    Example: hostelry cells ls
    """
    rows = cell_rows(read_document(file))
    if as_json:
        print_json({"cells": rows})
    else:
        for row in rows:
            accounts = ", ".join(row["accounts"]) or "no account"
            apart = f"; apart: {', '.join(row['apart'])}" if row["apart"] else ""
            typer.echo(f"{row['name']}  {row['url']}  {row['state']}  {accounts}{apart}")
    if any(row["state"] != "answers" for row in rows):
        raise typer.Exit(1)


@cells.command()
def router(
    file: FileOption = DEFAULT_FILE,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free one.")] = DEFAULT_PORT,
    max_body_mb: Annotated[
        float, typer.Option(min=0.001, help="Largest request body, MiB.")
    ] = 25.0,
) -> None:
    """Send each request to the cell that serves it; in the foreground, until Ctrl-C.

    The table is read again when it changes. Any number of routers may run beside each other.

    Example: hostelry cells router --host 0.0.0.0 --port 8787
    """
    configure_logging("cell router")
    config = CellRouterConfig(
        file=file, host=host, port=port, max_body_bytes=int(max_body_mb * 1024 * 1024)
    )
    try:
        run_cell_router(config, lambda address: typer.echo(f"routing at {address}"))
    except OSError as error:
        raise TerminalError(f"the router cannot run: {error.strerror or error}") from None


@cells.command()
def move(
    endpoint: Annotated[
        str, typer.Argument(help="The endpoint to move.", autocompletion=names.endpoints)
    ],
    to: Annotated[str, typer.Option("--to", help="The cell that gets it.")],
    from_home: Annotated[Path, typer.Option(help="Home of the cell that has it.")],
    to_home: Annotated[Path, typer.Option(help="Home of the cell that gets it.")],
    file: FileOption = DEFAULT_FILE,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the old endpoint in place.")] = False,
) -> None:
    """Move an endpoint to another cell of the same account, without a failed request.

    Its artifacts are copied and it is made in the new cell with its components, adapters, scaling
    and alarms; once it is InService there the table sends its requests to it, and when the old one
    has none under way any more it is removed. Interrupted, it may be run again.

    Example: hostelry cells move shop --to green --from-home /srv/blue --to-home /srv/green
    """
    order = MoveOrder(endpoint=endpoint, cell=to, file=file, keep=keep)
    move_endpoint(order, Home(expanded(from_home)), Home(expanded(to_home)))
