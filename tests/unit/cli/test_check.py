import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.cli.check import NEVER_ENDED, RUNNER, CellRuns, cell_json, cell_lines, verdict
from hostelry.cli.program.call import SeenCall

LIST = SeenCall(service="sagemaker", operation="ListEndpoints", status=200)
UNSERVED = SeenCall(
    service="sagemaker",
    operation="ListTrainingJobs",
    status=400,
    error="UnknownOperationException",
    message="no such operation",
)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


def note(path: Path, **values: Any) -> None:
    with path.open("a") as file:
        file.write(json.dumps(values) + "\n")


def test_calls_belong_to_the_cell_that_runs(notes: Path) -> None:
    runs = CellRuns(notes)
    runs.add(LIST)
    note(notes, cell=1, first_line="import boto3")
    runs.add(LIST)
    runs.add(LIST)
    note(notes, cell=1, error="")
    note(notes, cell=2, first_line="jobs()")
    runs.add(UNSERVED)
    note(notes, cell=2, error="")
    runs.read_notes()
    assert [cell.passed for cell in runs.cells] == [True, False]
    assert list(cell_lines(runs.cells[0])) == [
        "[1] ok          import boto3",
        "      sagemaker:ListEndpoints  2  ok",
    ]
    assert list(cell_lines(runs.cells[1])) == [
        "[2] NOT SERVED  jobs()",
        "      sagemaker:ListTrainingJobs  1  not served UnknownOperationException"
        " no such operation",
    ]
    assert verdict(runs.cells, 0) == "cell 2 called what is not served"
    assert cell_json(runs.cells[1])["unserved"][0]["operation"] == "ListTrainingJobs"


def test_a_cell_within_which_the_program_ended_has_failed(notes: Path) -> None:
    runs = CellRuns(notes)
    note(notes, cell=1, first_line="os._exit(0)")
    runs.read_notes()
    assert runs.cells[0].error == NEVER_ENDED
    assert not runs.cells[0].passed
    assert verdict(runs.cells, 0) == "cell 1 failed"


def test_half_a_note_is_read_once_it_is_whole(notes: Path) -> None:
    runs = CellRuns(notes)
    notes.write_text('{"cell": 1, "first_')
    runs.read_notes()
    assert runs.cells == []
    notes.write_text('{"cell": 1, "first_line": "x"}\n{"cell": 1, "error": ""}\n')
    runs.read_notes()
    assert runs.cells[0].passed


@cases(
    "codes, code, text",
    case("all is well", [""], 0, "1 cell ran, and all calls are served"),
    case("two failed", ["", "E: no", "E"], 1, "cell 2, 3 failed"),
    case("no cell began", [], 3, "the run ended with exit code 3"),
)
def test_verdict(notes: Path, codes: list[str], code: int, text: str) -> None:
    runs = CellRuns(notes)
    for number, error in enumerate(codes, start=1):
        note(notes, cell=number, first_line="x")
        note(notes, cell=number, error=error)
    runs.read_notes()
    assert verdict(runs.cells, code) == text


def test_the_runner_needs_the_standard_library_only() -> None:
    imports = [it for it in ast.parse(RUNNER.read_text()).body if isinstance(it, ast.Import)]
    modules = {alias.name for it in imports for alias in it.names}
    assert modules <= sys.stdlib_module_names
