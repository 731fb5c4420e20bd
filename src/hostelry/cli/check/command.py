"""`hostelry check`: run a program or notebook here and report, cell by cell, what is served."""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from hostelry.base.errors import TerminalError
from hostelry.cli.check.cells import CellRuns, cell_json, cell_lines, verdict
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json
from hostelry.cli.kernel import python_with

RUNNER = Path(__file__).parent / "runner.py"
FOR_NOTEBOOKS = ("nbclient", "ipykernel")


def check(
    program: Annotated[Path, typer.Argument(help="Python program (.py) or notebook (.ipynb).")],
    home: HomeOption = None,
    python: Annotated[
        str,
        typer.Option(
            "--python", help="Python interpreter that runs the file. Notebooks need nbclient in it."
        ),
    ] = "python3",
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Continue after a cell that failed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a program or notebook, and report for each cell which AWS calls are not served.

    The program really runs. What it creates on this platform stays until it is deleted. Its output
    goes to standard error, the report to standard output.

    Exit code 0 if no cell failed and every AWS call is served.

    Example: hostelry check my_notebook.ipynb --python ~/work/.venv/bin/python
    """
    from hostelry.cli.program.child import CannotRunError
    from hostelry.cli.program.run import run_program  # TLS and HTTP, which no other command needs

    at = home_at(home)
    if not program.is_file():
        is_folder = program.is_dir()
        raise TerminalError(
            f"{program}: {'a folder: name one .py or .ipynb file' if is_folder else 'no such file'}"
        )
    if program.suffix not in (".py", ".ipynb"):
        raise TerminalError(f"{program}: expected a .py or .ipynb file")
    interpreter = python_with(python, *(FOR_NOTEBOOKS if program.suffix == ".ipynb" else ()))
    typer.echo(
        f"hostelry: running {program} with {interpreter}; what it creates in {at.root} is real",
        err=True,
    )
    with tempfile.TemporaryDirectory(prefix="hostelry-check-") as folder:
        notes = Path(folder) / "notes"
        notes.touch(mode=0o600)
        runs = CellRuns(notes)
        mode = "goes-on" if keep_going else "stops"
        command = [interpreter, str(RUNNER), str(notes), mode, str(program)]
        try:
            code = asyncio.run(run_program(at, command, runs.add, recording=True))
        except CannotRunError as error:
            raise TerminalError(str(error)) from None
        runs.read_notes()
    if as_json:
        print_json({"cells": [cell_json(cell) for cell in runs.cells], "exit_code": code})
    else:
        for cell in runs.cells:
            typer.echo("\n".join(cell_lines(cell)))
        typer.echo(verdict(runs.cells, code))
    if code or not runs.cells or not all(cell.passed for cell in runs.cells):
        raise typer.Exit(1)
