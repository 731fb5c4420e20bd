from dataclasses import replace
from typing import Any

from tests.cases import case, cases

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


@cases(
    "facts, counted",
    case("an answer", WELL, {"submitted": 1, "answered": 1}),
    case("a refusal that is due", REFUSED, {"submitted": 1, "failed_as_due": 1}),
    case("no end at all", replace(WELL, output=None, successes=0), {"submitted": 1, "missing": 1}),
    case("a message, no output", replace(WELL, output=None), {"submitted": 1, "missing": 1}),
    case("output and failure", replace(WELL, failure=False), {"submitted": 1, "doubled": 1}),
    case("two messages by id", replace(WELL, successes=2), {"submitted": 1, "doubled": 1}),
    case("success and error", replace(WELL, errors=1), {"submitted": 1, "doubled": 1}),
    case("other bytes", replace(WELL, output=False), {"submitted": 1, "wrong": 1}),
    case(
        "a failure that the model did not give",
        replace(WELL, output=None, failure=False, successes=0, errors=1),
        {"submitted": 1, "failed_otherwise": 1},
    ),
    case("another reason", replace(REFUSED, failure=False), {"submitted": 1, "wrong": 1}),
    case(
        "an answer of what the model refuses",
        replace(REFUSED, output=False, failure=None, successes=1, errors=0),
        {"submitted": 1, "wrong": 1},
    ),
    case("the wrong topic", replace(WELL, successes=0, errors=1), {"submitted": 1, "wrong": 1}),
    case(
        "an answer without a message",
        replace(WELL, successes=0),
        {"submitted": 1, "answered": 1, "unnotified": 1},
    ),
    case("a try that was not kept", LOST_TRY, {"submitted": 0}),
    case(
        "a try that was kept though not acknowledged",
        replace(WELL, acknowledged=False),
        {"submitted": 0, "kept_unacknowledged": 1},
    ),
    case(
        "such a try whose output is missing",
        replace(LOST_TRY, successes=1),
        {"submitted": 0, "kept_unacknowledged": 1, "missing": 1},
    ),
)
def test_a_try_is_counted_by_its_objects_and_notifications(
    facts: RequestFacts, counted: dict[str, int]
) -> None:
    assert count_requests([facts]) == WorkCounts(**counted)


@cases(
    "found, facts",
    case("all in order", "abcd", LineFacts(answered=4)),
    case("one missing", "abd", LineFacts(answered=3, missing=1)),
    case("one twice", "abbcd", LineFacts(answered=4, doubled=1)),
    case("two exchanged", "abdc", LineFacts(answered=3, out_of_order=1)),
    case("other bytes", "abxd", LineFacts(answered=3, missing=1, wrong=1)),
    case("one more", "abcdx", LineFacts(answered=4, wrong=1)),
    case("nothing", "", LineFacts(missing=4)),
)
def test_lines_are_missing_doubled_out_of_order_or_wrong(found: str, facts: LineFacts) -> None:
    lines = [it.encode() for it in found]
    assert compare_lines([b"a", b"b", b"c", b"d"], lines) == facts


@cases(
    "refused, found, counted",
    case("a whole output", None, {"f": LineFacts(answered=9)}, {"answered": 9}),
    case("no output", None, {}, {"missing": 9}),
    case("a file with a refused record has none", 3, {}, {"failed_as_due": 9}),
    case("an output of such a file", 3, {"f": LineFacts(answered=8)}, {"wrong": 9}),
)
def test_a_file_with_a_refused_record_fails_whole_and_no_other(
    refused: int | None, found: dict[str, LineFacts], counted: dict[str, int]
) -> None:
    file = PlannedFile("f", 9, refused)
    assert count_records([file], found) == WorkCounts(submitted=9, **counted)


@cases(
    "changed, words",
    case("nothing", {}, []),
    case("a request", {"requests": WorkCounts(submitted=2, missing=1)}, ["1 requests missing"]),
    case(
        "the order",
        {"records": WorkCounts(submitted=2, out_of_order=2)},
        ["2 records out of order"],
    ),
    case(
        "a refusal on which no client tries again",
        {"refusals": {"ValidationError": 3}},
        ["3 submissions refused with ValidationError"],
    ),
    case("a stray", {"strays": 1}, ["1 objects or notifications that belong to no request"]),
    case(
        "the batch's end",
        {"job_as_due": False, "job_end": "Stopped: None"},
        ["the batch ended otherwise than its records make it: Stopped: None"],
    ),
    case("a kill that was not made", {"kills": []}, ["only 0 of 1 kills were made"]),
    case(
        "a process that stays away",
        {"kills": [KillReport(kind="jobs", name="jobs", at_s=1.0, back_s=None)]},
        ["jobs did not come back"],
    ),
    case("no progress", {"stuck": ["the work stands"]}, ["the work stands"]),
)
def test_what_is_broken_is_named(changed: dict[str, Any], words: list[str]) -> None:
    assert replace(GOOD, **changed).broken() == words


def test_what_is_missing_is_lost() -> None:
    assert GOOD.lost() == []
    lost = replace(GOOD, requests=WorkCounts(submitted=2, missing=1, doubled=1)).lost()
    assert lost == ["1 requests"]
