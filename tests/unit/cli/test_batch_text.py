"""Batches as text."""

from typing import Any

import pytest

from hostelry.cli.job_text import batch_bar, batch_facts, batch_line, batch_lines

NOW = 1_700_000_100.0
BATCH: dict[str, Any] = {
    "id": "batch_1",
    "status": "in_progress",
    "url": "/v1/completions",
    "total": 4000,
    "completed": 1000,
    "failed": 20,
    "input_tokens": 30_000,
    "output_tokens": 64_000,
    "created_at": NOW - 120,
    "begun_at": NOW - 100,
    "ended_at": None,
    "input_file_id": "file-1",
    "output_file_id": None,
    "error_file_id": None,
    "faults": [],
    "trouble": None,
}
ENDED = {"status": "completed", "ended_at": NOW - 50, "output_file_id": "file-2"}
FAULT = {"code": "url_mismatch", "message": "url must be another.", "param": "url", "line": 7}
WHOLE = {"code": "empty_file", "message": "The file has no request.", "param": None, "line": None}


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        pytest.param({}, ["1,000 of 4,000", "20", "10.2/s", "4m52s", "-"], id="under way"),
        pytest.param(ENDED, ["1,000 of 4,000", "20", "20.4/s", "-", "-"], id="ended"),
        pytest.param({"begun_at": None, "status": "validating"}, ["-", "-", "-"],
                     id="not begun"),
        pytest.param({"completed": 0, "failed": 0}, ["0.0/s", "-"], id="nothing ended yet"),
        pytest.param({"trouble": "no copy\nserves model a"}, ["no copy"], id="what holds it up"),
        pytest.param({"status": "failed", "faults": [FAULT, WHOLE]},
                     ["line 7: url must be another."], id="the first fault"),
    ],
)  # fmt: skip
def test_a_list_has_a_line_a_batch(changes: dict[str, Any], cells: list[str]) -> None:
    head, line = batch_lines([{**BATCH, **changes}], NOW)
    assert head.startswith("BATCH")
    assert line.startswith("batch_1")
    found = 0
    for cell in cells:
        found = line.index(cell, found)


def test_without_batches_there_is_no_line() -> None:
    assert batch_lines([], NOW) == []


def test_one_batch_is_shown_whole() -> None:
    shown = batch_facts({**BATCH, **ENDED, "faults": [FAULT, WHOLE]}, NOW)
    text = "\n".join(shown)
    assert "file-2" in text
    assert "30,000 in, 64,000 out (1,280.0/s)" in text
    assert [it.split(maxsplit=1)[1] for it in shown if it.startswith("reason")] == [
        "line 7: url must be another.",
        "The file has no request.",
    ]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({}, "in_progress  1,000 of 4,000 answered, 20 failed, 10.2/s, 4m52s left",
                     id="under way"),
        pytest.param({"status": "validating", "begun_at": None, "total": 0, "completed": 0,
                      "failed": 0}, "validating  0 of 0 answered", id="not begun"),
        pytest.param({"trouble": "no copy serves model a", "completed": 0, "failed": 0},
                     "in_progress  0 of 4,000 answered, 0.0/s; no copy serves model a",
                     id="what holds it up"),
    ],
)  # fmt: skip
def test_status_has_a_line_for_a_batch(changes: dict[str, Any], text: str) -> None:
    assert batch_line({**BATCH, **changes}, NOW) == f"batch batch_1  {text}"


def test_a_watched_batch_has_a_bar() -> None:
    assert "########......................]  26 %  1,000 of" in batch_bar(BATCH, NOW)
    assert "? %" in batch_bar({**BATCH, "total": 0}, NOW)
