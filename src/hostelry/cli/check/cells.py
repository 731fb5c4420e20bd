"""Results of the cells of a checked program, from the runner's notes and the calls seen."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.json import decode
from hostelry.cli.program.call import SeenCall
from hostelry.cli.program.report import CallReport, Row, as_json
from hostelry.cli.status_text import count_text

NEVER_ENDED = "the program ended within this cell"


class Note(msgspec.Struct, frozen=True):
    """A line of the runner's: with `first_line` a cell's start, with `error` its end."""

    cell: int
    first_line: str | None = None
    error: str | None = None


@dataclass(slots=True, kw_only=True)
class CellRun:
    """A cell, the calls that it made, and its error's last line; empty where it went well."""

    number: int
    first_line: str
    error: str = NEVER_ENDED
    calls: CallReport = field(default_factory=CallReport)

    @property
    def passed(self) -> bool:
        """Whether it did not fail and all its calls are served."""
        return not self.error and not self.calls.unserved


class CellRuns:
    """The cells so far. Calls belong to the cell that runs when they end."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._offset = 0
        self.cells: list[CellRun] = []

    def add(self, call: SeenCall) -> None:
        """Count a call in the cell that runs now; one before the first cell is left out."""
        self.read_notes()
        if self.cells:
            self.cells[-1].calls.add(call)

    def read_notes(self) -> None:
        """Read what the runner has noted since."""
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
    """A cell for people: its verdict, its calls, what is not served."""
    verdict = "ok" if cell.passed else "FAILED" if cell.error else "NOT SERVED"
    yield f"[{cell.number}] {verdict:<10}  {cell.first_line:.70}"
    for row in cell.calls.rows:
        yield f"      {row.service}:{row.operation}  {row.count}  {result_of(row)}"
    if cell.error:
        yield f"      {cell.error:.300}"


def result_of(row: Row) -> str:
    """The result of a call, with the message of one that is not served."""
    return " ".join(filter(None, [row.verdict, row.error, row.message]))


def cell_json(cell: CellRun) -> dict[str, Any]:
    """A cell for programs."""
    return {
        "cell": cell.number,
        "first_line": cell.first_line,
        "ok": cell.passed,
        "error": cell.error,
        "calls": [as_json(row) for row in cell.calls.rows],
        "unserved": [as_json(row) for row in cell.calls.unserved],
    }


def verdict(cells: list[CellRun], code: int) -> str:
    """The verdict on the whole run in one line; `code` is the runner's exit code."""
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
