"""Batches as text."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli import jobs
from hostelry.cli.job_text import (
    NOTHING,
    backlog_line,
    batch_bar,
    batch_facts,
    batch_line,
    batch_lines,
    list_lines,
    show_lines,
    transform_bar,
    transform_lines,
    transform_progress,
)
from hostelry.cli.jobs import BATCH, TRANSFORM_JOB, WatchedKind

NOW = 1_700_000_100.0
BATCH_SEEN: dict[str, Any] = {
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
PROGRESS = {
    "objects": 10,
    "objects_total": 40,
    "failed_objects": 0,
    "records": 5000,
    "bytes": 1024**2,
    "bytes_total": 4 * 1024**2,
    "at": NOW,
}
JOB: dict[str, Any] = {
    "name": "nightly",
    "status": "InProgress",
    "failure_reason": None,
    "created_at": NOW - 130,
    "started_at": NOW - 100,
    "ended_at": None,
    "progress": PROGRESS,
    "endpoint": None,
}
BATCH_ROW: dict[str, Any] = {
    "id": "batch_1",
    "status": "in_progress",
    "total": 40,
    "completed": 10,
    "failed": 0,
    "begun_at": NOW - 100,
    "ended_at": None,
    "faults": [],
    "trouble": None,
}
BATCH_END = {**BATCH_ROW, "status": "failed", "completed": 39, "failed": 1, "ended_at": NOW}
SCOPE = {"account": "123456789012", "region": "us-west-2"}
ROW: dict[str, Any] = {
    "id": "i1",
    "inference_id": "inference-1",
    "endpoint_name": "scores",
    "state": "failed",
    "attempt": 3,
    "accepted_at": 1_700_000_000.0,
    "expires_at": 1_700_000_060.0,
    "finished_at": None,
    "reason": "the model\nanswered 500 " + "x" * 100,
    "input_uri": None,
    "body_bytes": 17,
    "output_uri": "s3://b/o.out",
    "failure_uri": "s3://b/f.out",
}
QUEUE = {"scope": SCOPE, "endpoint_name": "scores", "waiting": 5, "running": 1}


@cases(
    "changes, cells",
    case("under way", {}, ["1,000 of 4,000", "20", "10.2/s", "4m52s", "-"]),
    case("ended", ENDED, ["1,000 of 4,000", "20", "20.4/s", "-", "-"]),
    case("not begun", {"begun_at": None, "status": "validating"}, ["-", "-", "-"]),
    case("nothing ended yet", {"completed": 0, "failed": 0}, ["0.0/s", "-"]),
    case("what holds it up", {"trouble": "no copy\nserves model a"}, ["no copy"]),
    case("the first fault", {"status": "failed", "faults": [FAULT, WHOLE]},
        ["line 7: url must be another."]),
)  # fmt: skip
def test_a_list_has_a_line_a_batch(changes: dict[str, Any], cells: list[str]) -> None:
    head, line = batch_lines([{**BATCH_SEEN, **changes}], NOW)
    assert head.startswith("BATCH")
    assert line.startswith("batch_1")
    found = 0
    for cell in cells:
        found = line.index(cell, found)


def test_without_batches_there_is_no_line() -> None:
    assert batch_lines([], NOW) == []


def test_one_batch_is_shown_whole() -> None:
    shown = batch_facts({**BATCH_SEEN, **ENDED, "faults": [FAULT, WHOLE]}, NOW)
    text = "\n".join(shown)
    assert "file-2" in text
    assert "30,000 in, 64,000 out (1,280.0/s)" in text
    assert [it.split(maxsplit=1)[1] for it in shown if it.startswith("reason")] == [
        "line 7: url must be another.",
        "The file has no request.",
    ]


@cases(
    "changes, text",
    case("under way", {}, "in_progress  1,000 of 4,000 answered, 20 failed, 10.2/s, 4m52s left"),
    case("not begun",
        {"status": "validating", "begun_at": None, "total": 0, "completed": 0, "failed": 0},
        "validating  0 of 0 answered"),
    case("what holds it up", {"trouble": "no copy serves model a", "completed": 0, "failed": 0},
        "in_progress  0 of 4,000 answered, 0.0/s; no copy serves model a"),
)  # fmt: skip
def test_status_has_a_line_for_a_batch(changes: dict[str, Any], text: str) -> None:
    assert batch_line({**BATCH_SEEN, **changes}, NOW) == f"batch batch_1  {text}"


def test_a_watched_batch_has_a_bar() -> None:
    assert "########......................]  26 %  1,000 of" in batch_bar(BATCH_SEEN, NOW)
    assert "? %" in batch_bar({**BATCH_SEEN, "total": 0}, NOW)


@cases(
    "changes, expected",
    case(
        "a quarter of the bytes in 100 s leaves 300 s",
        {},
        "10 of 40 objects, 5,000 records, 1 MiB of 4 MiB, 50.0 records/s, 5m00s left",
    ),
    case(
        "what it waits for",
        {"progress": {**PROGRESS, "trouble": "the object store does not answer"}},
        "10 of 40 objects, 5,000 records, 1 MiB of 4 MiB, 50.0 records/s, 5m00s left;"
        " waits: the object store does not answer",
    ),
    case("no copy yet", {"started_at": None}, "its instances come up; age 2m10s"),
    case(
        "the input is not listed yet",
        {"progress": {**PROGRESS, "objects_total": None, "bytes_total": None}},
        "10 objects, 5,000 records, 1 MiB, 50.0 records/s",
    ),
    case(
        "objects that failed",
        {"progress": {**PROGRESS, "failed_objects": 2}},
        "10 of 40 objects, 5,000 records, 1 MiB of 4 MiB, 2 failed, 50.0 records/s, 5m00s left",
    ),
    case(
        "objects without bytes",
        {"progress": {**PROGRESS, "bytes": 0, "bytes_total": 0}},
        "10 of 40 objects, 5,000 records, 0 MiB of 0 MiB, 50.0 records/s, 5m00s left",
    ),
    case(
        "one that is over is timed to its end",
        {"status": "Completed", "ended_at": NOW - 50},
        "10 of 40 objects, 5,000 records, 1 MiB of 4 MiB, 100.0 records/s",
    ),
)
def test_progress(changes: dict[str, Any], expected: str) -> None:
    assert transform_progress({**JOB, **changes}, NOW) == expected


def test_a_bar_is_filled_by_what_is_done() -> None:
    text = transform_bar(JOB, NOW)
    assert "########......................] " in text.replace(" 25 %", " 25 %")
    assert " 25 % " in text
    unknown = {**JOB, "progress": {**PROGRESS, "objects_total": None, "bytes_total": None}}
    assert "? %" in transform_bar(unknown, NOW)


def test_status_shows_jobs_that_are_not_over() -> None:
    over = {**JOB, "name": "old", "status": "Completed"}
    lines = transform_lines([JOB, over], NOW, most_alike=10)
    assert lines == [f"transform job nightly  InProgress  {transform_progress(JOB, NOW)}", ""]


def looks(*seen: Mapping[str, Any] | None) -> Callable[[], Mapping[str, Any] | None]:
    left = list(seen)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "LOOK_EVERY_S", 0.0)


@cases(
    "kind, job, end, statuses, has_failed",
    case(
        "a transform job",
        TRANSFORM_JOB,
        JOB,
        {**JOB, "status": "Completed", "ended_at": NOW},
        ["InProgress", "Completed"],
        False,
    ),
    case("a batch", BATCH, BATCH_ROW, BATCH_END, ["in_progress", "failed"], True),
)
def test_a_watch_ends_with_the_job(
    capsys: pytest.CaptureFixture[str],
    kind: WatchedKind,
    job: dict[str, Any],
    end: dict[str, Any],
    statuses: list[str],
    has_failed: bool,
) -> None:
    found = jobs.follow_job("nightly", kind, looks(job, job, None, end), on_terminal=False)
    assert kind.has_failed(found) is has_failed
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == statuses


def test_a_watched_batch_shows_what_holds_it_up_and_why_it_failed() -> None:
    held = {**BATCH_ROW, "trouble": "no copy serves model a"}
    assert BATCH.line(held, NOW).endswith("25 %  10 of 40 answered, 0.1/s, 5m00s left; no copy"
                                          " serves model a")  # fmt: skip
    fault = {"line": 7, "message": "no body.model"}
    assert BATCH.reason({**BATCH_END, "faults": [fault]}) == "line 7: no body.model"
    assert BATCH.reason(BATCH_ROW) is None


@pytest.mark.parametrize("kind", [TRANSFORM_JOB, BATCH], ids=["control", "jobs"])
def test_a_watch_does_not_wait_for_a_process_that_is_gone(kind: WatchedKind) -> None:
    with pytest.raises(TerminalError, match=f"{kind.process} does not answer"):
        jobs.follow_job("nightly", kind, looks(None), on_terminal=True)


def test_a_list_has_a_line_a_request_and_one_a_queue() -> None:
    count = {"scope": SCOPE, "endpoint_name": "scores", "number": 12}
    head, line, queue = list_lines([ROW], [QUEUE], [count])
    assert head.split() == ["INFERENCE", "ID", "ENDPOINT", "STATE", "ATTEMPT", "ACCEPTED", "REASON"]
    assert line.startswith("inference-1")
    assert line.endswith("x...")
    assert queue == ("scores: 5 waiting, 1 running; 12 ended in the last minute, so 30 s are left")


@pytest.mark.parametrize("number", [0], ids=["no request ended"])
def test_without_a_rate_there_is_no_eta(number: int) -> None:
    assert backlog_line(QUEUE, number).endswith("none ended in the last minute")


def test_without_requests_it_reports_that() -> None:
    assert list_lines([], [], []) == [NOTHING]


def test_what_all_wait_for_is_shown() -> None:
    assert list_lines([], [], [], "the disk is full")[-1].endswith("wait: the disk is full")
    assert "the disk is full" in "\n".join(show_lines({**ROW, "trouble": "the disk is full"}))
    assert show_lines({**ROW, "trouble": None}) == show_lines(ROW)


def test_one_request_is_shown_whole() -> None:
    text = "\n".join(show_lines(ROW))
    assert "17 bytes with the request" in text
    assert "x" * 100 in text, "its reason is not cut"
    assert "s3://b/f.out" in text
