"""Run a notebook or program cell by cell in the user's Python, and record each cell in a file.

This file imports nothing of hostelry. It runs on Python 3.8 or newer, and needs nbclient and
ipykernel for notebooks only. The program's output goes to stderr.
Usage: check_runner.py NOTES goes-on|stops FILE
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import shutil
import sys

TYPE_CHECKING = False  # type checkers assume True. Importing typing would affect user programs
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

FAILED = 1


class Notes:
    """A file with one JSON object per line: the start and the end of each cell."""

    def __init__(self, path: str) -> None:
        self._path = path

    def add(self, **note: Any) -> None:
        """Append a note and flush it, so that it survives a crash of the next step."""
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(note) + "\n")


def run_program(path: str, notes: Notes) -> None:
    """Run a program as one cell, as `python FILE` does. Passes its exception on."""
    sys.argv = [path]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    report = sys.excepthook

    def failed(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        notes.add(cell=1, error=one_line(kind.__name__, str(error)))
        report(kind, error, trace)

    sys.excepthook = failed
    notes.add(cell=1, first_line=os.path.basename(path))
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        notes.add(cell=1, error="" if end.code in (None, 0) else f"SystemExit: {end.code}")
        raise
    notes.add(cell=1, error="")


def run_notebook(path: str, notes: Notes, goes_on: bool) -> bool:
    """Run a notebook's code cells in order, in the kernel of this Python."""
    nbformat: Any = importlib.import_module("nbformat")
    nbclient: Any = importlib.import_module("nbclient")
    errors: Any = importlib.import_module("nbclient.exceptions")
    notebook = nbformat.read(path, as_version=4)
    folder = os.path.dirname(os.path.abspath(path))
    find_own_commands()
    client = nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    cells = [(i, it) for i, it in enumerate(notebook.cells) if it.cell_type == "code"]
    all_well = True
    with client.setup_kernel():
        for number, (index, cell) in enumerate(cells, start=1):
            lines = [line for line in cell.source.split("\n") if line.strip()]
            notes.add(cell=number, first_line=lines[0][:200] if lines else "")
            error = ""
            try:
                client.execute_cell(cell, index)
            except errors.CellExecutionError as raised:
                error = one_line(raised.ename, raised.evalue)
            except errors.DeadKernelError:
                error = "the kernel died"
            notes.add(cell=number, error=error)
            all_well = all_well and not error
            if error and not goes_on:
                break
    return all_well


def find_own_commands() -> None:
    """Let `!pip` and `!aws` find the commands of this Python's environment first.

    Otherwise `!pip install` would change another environment, such as hostelry's own.
    """
    folder, name = os.path.split(sys.executable)
    if os.path.dirname(shutil.which(name) or "") != folder:
        os.environ["PATH"] = folder + os.pathsep + os.environ.get("PATH", os.defpath)


def one_line(name: str, text: str) -> str:
    """An error's name with the last non-empty line of its text."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return f"{name}: {lines[-1]:.1000}" if lines else name


def main() -> int:
    """Run the program or notebook in the arguments, and return the exit code."""
    notes_path, mode, path = sys.argv[1:4]
    os.dup2(2, 1)
    notes = Notes(notes_path)
    if path.endswith(".ipynb"):
        return 0 if run_notebook(path, notes, mode == "goes-on") else FAILED
    run_program(path, notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
