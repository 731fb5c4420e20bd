"""`hostelry check`: run a program or notebook, and report for each cell which calls fail."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json
from hostelry.cli.kernel import python_with
from hostelry.cli.program.call import CallReport, Row, SeenCall, as_json
from hostelry.cli.status_text import count_text

RUNNER = Path(__file__).parent / "check_runner.py"
FOR_NOTEBOOKS = ("nbclient", "ipykernel")
NEVER_ENDED = "the program ended within this cell"


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
    from hostelry.cli.program.run import run_program  # TLS and HTTP, which other commands skip

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


class Note(msgspec.Struct, frozen=True):
    """A line that the runner wrote: `first_line` marks a cell's start, `error` its end."""

    cell: int
    first_line: str | None = None
    error: str | None = None


class CellRun(msgspec.Struct, kw_only=True):
    """A cell, its calls, and the last line of its error. Empty if the cell succeeded."""

    number: int
    first_line: str
    error: str = NEVER_ENDED
    calls: CallReport = msgspec.field(default_factory=CallReport)

    @property
    def passed(self) -> bool:
        """Whether the cell did not fail and all its calls are served."""
        return not self.error and not self.calls.unserved


class CellRuns:
    """The cells so far. A call belongs to the cell that is running when the call ends."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._offset = 0
        self.cells: list[CellRun] = []

    def add(self, call: SeenCall) -> None:
        """Count a call in the current cell. Calls before the first cell are left out."""
        self.read_notes()
        if self.cells:
            self.cells[-1].calls.add(call)

    def read_notes(self) -> None:
        """Read the runner's new notes."""
        with self._notes.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._apply(decode(line, Note))

    def _apply(self, note: Note) -> None:
        if note.first_line is not None:
            self.cells.append(CellRun(number=note.cell, first_line=note.first_line))
        elif note.error is not None:
            self.cells[-1].error = note.error


def cell_lines(cell: CellRun) -> Iterator[str]:
    """A cell as text: its verdict, its calls, and the calls that are not served."""
    verdict = "ok" if cell.passed else "FAILED" if cell.error else "NOT SERVED"
    yield f"[{cell.number}] {verdict:<10}  {cell.first_line:.70}"
    for row in cell.calls.rows:
        yield f"      {row.service}:{row.operation}  {row.count}  {result_text(row)}"
    if cell.error:
        yield f"      {cell.error:.300}"


def result_text(row: Row) -> str:
    """The result of a call. An unserved call also has its message."""
    return " ".join(filter(None, [row.verdict, row.error, row.message]))


def cell_json(cell: CellRun) -> dict[str, Any]:
    """A cell for JSON output."""
    return {
        "cell": cell.number,
        "first_line": cell.first_line,
        "ok": cell.passed,
        "error": cell.error,
        "calls": [as_json(row) for row in cell.calls.rows],
        "unserved": [as_json(row) for row in cell.calls.unserved],
    }


def verdict(cells: list[CellRun], code: int) -> str:
    """The verdict on the whole run in one line. `code` is the runner's exit code."""
    failed = [str(cell.number) for cell in cells if cell.error]
    unserved = [str(cell.number) for cell in cells if cell.calls.unserved]
    if failed:
        return f"cell {', '.join(failed)} failed" + (
            f"; cell {', '.join(unserved)} called what is not served" if unserved else ""
        )
    if unserved:
        return f"cell {', '.join(unserved)} called what is not served"
    if code:
        return f"the run ended with exit code {code}"
    return f"{count_text(len(cells), 'cell')} ran, and all calls are served"
