from hostelry_lab.drill_text import outcome_lines
from hostelry_lab.jobs.jobs_ledger import JobsLedger, KillReport, WorkCounts
from hostelry_lab.jobs.plan import JobsSizes
from hostelry_lab.outcome import DrillOutcome

LEDGER = JobsLedger(
    sizes=JobsSizes(num_requests=10, num_records=100, num_kills=3, seed=42),
    num_files=4,
    requests=WorkCounts(submitted=10, answered=9, failed_as_due=1, kept_unacknowledged=1),
    records=WorkCounts(submitted=100, answered=70, failed_as_due=30),
    refusals={"ServiceUnavailable": 2, "ConnectionClosedError": 1},
    messages=12,
    repeats=1,
    strays=0,
    job_end="Failed: ClientError: 1 of 4 objects failed.",
    job_as_due=True,
    kills=[
        KillReport(kind="jobs", name="jobs", at_s=1.0, back_s=0.5),
        KillReport(kind="control", name="control", at_s=2.0, back_s=1.25),
        KillReport(kind="jobs", name="jobs", at_s=3.0, back_s=None),
    ],
    requests_s=5.0,
    records_s=20.0,
)


def test_the_ledger_is_a_table_of_requests_and_records_and_one_of_kills() -> None:
    lines = outcome_lines(DrillOutcome(drill="jobs", target="t", jobs=LEDGER))
    rows = [line.split() for line in lines]
    for row in (
        ["seed", "42"],
        ["submitted", "10", "100"],
        ["answered", "9", "70"],
        ["failed", "as", "the", "model", "said", "1", "30"],
        ["missing", "0", "0"],
        ["per", "second", "2", "5"],
        ["jobs", "2", "0.5,", "never"],
        ["control", "1", "1.2"],
    ):
        assert row in rows, (row, lines)
    text = "\n".join(lines)
    assert (
        "3 more that were not acknowledged (1 ConnectionClosedError, 2 ServiceUnavailable)" in text
    )
    assert "12 notifications, 1 of them repeats" in text
