"""`hostelry cells`: the table of cells, its router, and moves of endpoints between cells."""

from pathlib import Path
from typing import Annotated

import typer

from hostelry.base.errors import TerminalError
from hostelry.base.files import expand_user
from hostelry.base.logging import configure_logging
from hostelry.cells.assignment_file import (
    AssignmentDocument,
    check_document,
    read_document,
    write_document,
)
from hostelry.cli import completion as names
from hostelry.cli.cells.move import MoveOrder, add_cell, cell_rows, move_endpoint
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.home.home import Home
from hostelry.services.cell_router import CellRouterConfig, run_cell_router

DEFAULT_FILE = Path("cells.toml")
DEFAULT_PORT = 8780
FileOption = Annotated[
    Path, typer.Option("--file", "-f", help="File with the table of cells.", show_default=True)
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
    name: Annotated[str, typer.Argument(help="Name of the cell.")],
    file: FileOption = DEFAULT_FILE,
    url: Annotated[
        str | None,
        typer.Option(help="URL of the cell's gateway. Default: the gateway of the home."),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Add a platform to the table as a cell, with its account and the digests of its keys.

    If another cell has the account, the account stays there. Move its endpoints, or assign them in
    the table.

    Example: hostelry cells add blue --home /srv/blue
    """
    config, credentials = load_home(home_at(home))
    document = read_document(file) if file.exists() else AssignmentDocument(cells={})
    changed = add_cell(document, name, url or config.gateway_url, credentials)
    check_document(changed, file)
    write_document(file, changed)
    typer.echo(f"{file}: cell {name} at {changed.cells[name].url}")


@cells.command("ls")
def list_cells(file: FileOption = DEFAULT_FILE, as_json: JsonOption = False) -> None:
    """List the cells with their accounts, the endpoints assigned to them, and whether they answer.

    Exit code 1 if a cell does not answer.

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
    port: Annotated[
        int, typer.Option(help="Port to listen on. 0 chooses a free port.")
    ] = DEFAULT_PORT,
    max_body_mb: Annotated[
        float, typer.Option(min=0.001, help="Maximum size of a request body, in MiB.")
    ] = 25.0,
) -> None:
    """Route each request to the cell that serves it. Runs in the foreground until Ctrl-C.

    The table is read again when it changes. Several routers can run at the same time.

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
        str, typer.Argument(help="Endpoint to move.", autocompletion=names.endpoints)
    ],
    to: Annotated[str, typer.Option("--to", help="Name of the target cell.")],
    from_home: Annotated[Path, typer.Option(help="Home directory of the source cell.")],
    to_home: Annotated[Path, typer.Option(help="Home directory of the target cell.")],
    file: FileOption = DEFAULT_FILE,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the endpoint in the source cell.")
    ] = False,
) -> None:
    """Move an endpoint to another cell of the same account, without a failed request.

    The command copies the artifacts and creates the endpoint in the new cell with its components,
    adapters, scaling and alarms. When it is InService there, the table sends its requests to the
    new cell. The old endpoint is removed when its last request has ended. After an interruption,
    run the command again.

    Example: hostelry cells move shop --to green --from-home /srv/blue --to-home /srv/green
    """
    order = MoveOrder(endpoint=endpoint, cell=to, file=file, keep=keep)
    move_endpoint(order, Home(expand_user(from_home)), Home(expand_user(to_home)))
