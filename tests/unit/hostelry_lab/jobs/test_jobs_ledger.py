from dataclasses import replace
from typing import Any

import pytest

from hostelry_lab.jobs.jobs_ledger import (
    JobsLedger,
    KillReport,
    LineFacts,
    RequestFacts,
    WorkCounts,
    compare_lines,
    count_records,
    count_requests,
)
from hostelry_lab.jobs.plan import JobsSizes, PlannedFile

WELL = RequestFacts(
    acknowledged=True, is_refused=False, output=True, failure=None, successes=1, errors=0
)
REFUSED = RequestFacts(
    acknowledged=True, is_refused=True, output=None, failure=True, successes=0, errors=1
)
LOST_TRY = replace(WELL, acknowledged=False, output=None, successes=0)
GOOD = JobsLedger(
    sizes=JobsSizes(num_requests=2, num_records=2, num_kills=1, seed=3),
    num_files=1,
    requests=WorkCounts(submitted=2, answered=2),
    records=WorkCounts(submitted=2, answered=2),
    refusals={"ServiceUnavailable": 2},
    messages=3,
    repeats=1,
    strays=0,
    job_end="Completed: None",
    job_as_due=True,
    kills=[KillReport(kind="jobs", name="jobs", at_s=1.0, back_s=0.5)],
    requests_s=2.0,
    records_s=1.0,
)


@pytest.mark.parametrize(
    ("facts", "counted"),
    [
        pytest.param(WELL, {"submitted": 1, "answered": 1}, id="an answer"),
        pytest.param(REFUSED, {"submitted": 1, "failed_as_due": 1}, id="a refusal that is due"),
        pytest.param(
            replace(WELL, output=None, successes=0),
            {"submitted": 1, "missing": 1},
            id="no end at all",
        ),
        pytest.param(
            replace(WELL, output=None), {"submitted": 1, "missing": 1}, id="a message, no output"
        ),
        pytest.param(
            replace(WELL, failure=False), {"submitted": 1, "doubled": 1}, id="output and failure"
        ),
        pytest.param(
            replace(WELL, successes=2), {"submitted": 1, "doubled": 1}, id="two messages by id"
        ),
        pytest.param(
            replace(WELL, errors=1), {"submitted": 1, "doubled": 1}, id="success and error"
        ),
        pytest.param(replace(WELL, output=False), {"submitted": 1, "wrong": 1}, id="other bytes"),
        pytest.param(
            replace(WELL, output=None, failure=False, successes=0, errors=1),
            {"submitted": 1, "failed_otherwise": 1},
            id="a failure that the model did not give",
        ),
        pytest.param(
            replace(REFUSED, failure=False), {"submitted": 1, "wrong": 1}, id="another reason"
        ),
        pytest.param(
            replace(REFUSED, output=False, failure=None, successes=1, errors=0),
            {"submitted": 1, "wrong": 1},
            id="an answer of what the model refuses",
        ),
        pytest.param(
            replace(WELL, successes=0, errors=1), {"submitted": 1, "wrong": 1}, id="the wrong topic"
        ),
        pytest.param(
            replace(WELL, successes=0),
            {"submitted": 1, "answered": 1, "unnotified": 1},
            id="an answer without a message",
        ),
        pytest.param(LOST_TRY, {"submitted": 0}, id="a try that was not kept"),
        pytest.param(
            replace(WELL, acknowledged=False),
            {"submitted": 0, "kept_unacknowledged": 1},
            id="a try that was kept though not acknowledged",
        ),
        pytest.param(
            replace(LOST_TRY, successes=1),
            {"submitted": 0, "kept_unacknowledged": 1, "missing": 1},
            id="such a try whose output is missing",
        ),
    ],
)
def test_a_try_is_counted_by_its_objects_and_notifications(
    facts: RequestFacts, counted: dict[str, int]
) -> None:
    assert count_requests([facts]) == WorkCounts(**counted)


@pytest.mark.parametrize(
    ("found", "facts"),
    [
        pytest.param("abcd", LineFacts(answered=4), id="all in order"),
        pytest.param("abd", LineFacts(answered=3, missing=1), id="one missing"),
        pytest.param("abbcd", LineFacts(answered=4, doubled=1), id="one twice"),
        pytest.param("abdc", LineFacts(answered=3, out_of_order=1), id="two exchanged"),
        pytest.param("abxd", LineFacts(answered=3, missing=1, wrong=1), id="other bytes"),
        pytest.param("abcdx", LineFacts(answered=4, wrong=1), id="one more"),
        pytest.param("", LineFacts(missing=4), id="nothing"),
    ],
)
def test_lines_are_missing_doubled_out_of_order_or_wrong(found: str, facts: LineFacts) -> None:
    lines = [it.encode() for it in found]
    assert compare_lines([b"a", b"b", b"c", b"d"], lines) == facts


@pytest.mark.parametrize(
    ("refused", "found", "counted"),
    [
        pytest.param(None, {"f": LineFacts(answered=9)}, {"answered": 9}, id="a whole output"),
        pytest.param(None, {}, {"missing": 9}, id="no output"),
        pytest.param(3, {}, {"failed_as_due": 9}, id="a file with a refused record has none"),
        pytest.param(3, {"f": LineFacts(answered=8)}, {"wrong": 9}, id="an output of such a file"),
    ],
)
def test_a_file_with_a_refused_record_fails_whole_and_no_other(
    refused: int | None, found: dict[str, LineFacts], counted: dict[str, int]
) -> None:
    file = PlannedFile("f", 9, refused)
    assert count_records([file], found) == WorkCounts(submitted=9, **counted)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param(
            {"requests": WorkCounts(submitted=2, missing=1)}, ["1 requests missing"], id="a request"
        ),
        pytest.param(
            {"records": WorkCounts(submitted=2, out_of_order=2)},
            ["2 records out of order"],
            id="the order",
        ),
        pytest.param(
            {"refusals": {"ValidationError": 3}},
            ["3 submissions refused with ValidationError"],
            id="a refusal on which no client tries again",
        ),
        pytest.param(
            {"strays": 1}, ["1 objects or notifications that belong to no request"], id="a stray"
        ),
        pytest.param(
            {"job_as_due": False, "job_end": "Stopped: None"},
            ["the batch ended otherwise than its records make it: Stopped: None"],
            id="the batch's end",
        ),
        pytest.param({"kills": []}, ["only 0 of 1 kills were made"], id="a kill that was not made"),
        pytest.param(
            {"kills": [KillReport(kind="jobs", name="jobs", at_s=1.0, back_s=None)]},
            ["jobs did not come back"],
            id="a process that stays away",
        ),
        pytest.param({"stuck": ["the work stands"]}, ["the work stands"], id="no progress"),
    ],
)
def test_what_is_broken_is_named(changed: dict[str, Any], words: list[str]) -> None:
    assert replace(GOOD, **changed).broken() == words


def test_what_is_missing_is_lost() -> None:
    assert GOOD.lost() == []
    lost = replace(GOOD, requests=WorkCounts(submitted=2, missing=1, doubled=1)).lost()
    assert lost == ["1 requests"]
