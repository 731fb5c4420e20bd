"""Transform jobs as text: status lines, the bar, and what a watch shows."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hostelry.base.errors import TerminalError
from hostelry.cli import jobs
from hostelry.cli.job_text import transform_bar, transform_lines, transform_progress
from hostelry.cli.jobs import BATCH, TRANSFORM_JOB, WatchedKind

NOW = 1_700_000_100.0
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


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {},
            "10 of 40 objects, 5,000 records, 1 MiB of 4 MiB, 50.0 records/s, 5m00s left",
            id="a quarter of the bytes in 100 s leaves 300 s",
        ),
        pytest.param(
            {"progress": {**PROGRESS, "trouble": "the object store does not answer"}},
            "10 of 40 objects, 5,000 records, 1 MiB of 4 MiB, 50.0 records/s, 5m00s left;"
            " waits: the object store does not answer",
            id="what it waits for",
        ),
        pytest.param({"started_at": None}, "its instances come up; age 2m10s", id="no copy yet"),
        pytest.param(
            {"progress": {**PROGRESS, "objects_total": None, "bytes_total": None}},
            "10 objects, 5,000 records, 1 MiB, 50.0 records/s",
            id="the input is not listed yet",
        ),
        pytest.param(
            {"progress": {**PROGRESS, "failed_objects": 2}},
            "10 of 40 objects, 5,000 records, 1 MiB of 4 MiB, 2 failed, 50.0 records/s, 5m00s left",
            id="objects that failed",
        ),
        pytest.param(
            {"progress": {**PROGRESS, "bytes": 0, "bytes_total": 0}},
            "10 of 40 objects, 5,000 records, 0 MiB of 0 MiB, 50.0 records/s, 5m00s left",
            id="objects without bytes",
        ),
        pytest.param(
            {"status": "Completed", "ended_at": NOW - 50},
            "10 of 40 objects, 5,000 records, 1 MiB of 4 MiB, 100.0 records/s",
            id="one that is over is timed to its end",
        ),
    ],
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


@pytest.mark.parametrize(
    ("kind", "job", "end", "statuses", "has_failed"),
    [
        pytest.param(
            TRANSFORM_JOB,
            JOB,
            {**JOB, "status": "Completed", "ended_at": NOW},
            ["InProgress", "Completed"],
            False,
            id="a transform job",
        ),
        pytest.param(BATCH, BATCH_ROW, BATCH_END, ["in_progress", "failed"], True, id="a batch"),
    ],
)
def test_a_watch_ends_with_the_job(
    capsys: pytest.CaptureFixture[str],
    kind: WatchedKind,
    job: dict[str, Any],
    end: dict[str, Any],
    statuses: list[str],
    has_failed: bool,
) -> None:
    found = jobs.followed("nightly", kind, looks(job, job, None, end), on_terminal=False)
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
        jobs.followed("nightly", kind, looks(None), on_terminal=True)
