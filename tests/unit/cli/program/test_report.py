"""The report on a program's calls, for people and for programs."""

from hostelry.cli.program.call import MAX_ROWS, CallReport, SeenCall, report_lines, stray_lines

OK = SeenCall(service="sagemaker", operation="ListModels", status=200)
UNSERVED = SeenCall(
    service="sagemaker",
    operation="ListTrainingJobs",
    status=400,
    error="UnknownOperationException",
    message="Hostelry does not implement it.",
)
STRAY = SeenCall(
    service="lambda",
    operation="GET /f",
    status=404,
    error="UnknownOperationException",
    host="lambda.us-east-1.amazonaws.com",
)


def reported(*calls: SeenCall) -> CallReport:
    report = CallReport()
    for call in calls:
        report.add(call)
    return report


def test_calls_are_counted_by_operation_and_result() -> None:
    assert list(report_lines(reported(OK, OK, UNSERVED))) == [
        "sagemaker:ListModels            2  ok",
        "sagemaker:ListTrainingJobs      1  not served UnknownOperationException",
        "not served: sagemaker:ListTrainingJobs: Hostelry does not implement it.",
        "1 of 3 AWS calls need what this hostelry does not serve",
    ]


def test_the_verdict_on_a_program_that_needs_nothing_else() -> None:
    assert list(report_lines(reported(OK)))[-1] == "1 AWS calls, all of them served"
    assert list(report_lines(CallReport())) == ["no AWS call was made"]


def test_strays_are_calls_to_aws_hosts_that_failed() -> None:
    answered = SeenCall(service="sts", operation="GetCallerIdentity", status=200, host="sts.x")
    (line,) = stray_lines(reported(OK, UNSERVED, answered, STRAY))
    assert line.startswith("lambda.us-east-1.amazonaws.com lambda:GET /f (1): ")


def test_an_endless_program_takes_a_bounded_report() -> None:
    report = CallReport()
    for number in range(3 * MAX_ROWS):
        report.add(
            SeenCall(service="s3", operation=f"GET {number}", status=200, message="m" * 9999)
        )
    assert len(report.rows) == MAX_ROWS
    assert report.uncounted == 2 * MAX_ROWS
    assert f"... and {2 * MAX_ROWS} calls of further operations" in report_lines(report)
    assert max(len(row.message) for row in report.rows) <= 300


def test_programs_read_the_same_as_json() -> None:
    assert reported(OK, UNSERVED).to_json() == {
        "calls": [
            {"service": "sagemaker", "operation": "ListModels", "result": "ok", "count": 1},
            {
                "service": "sagemaker",
                "operation": "ListTrainingJobs",
                "result": "not served",
                "error": "UnknownOperationException",
                "count": 1,
                "message": "Hostelry does not implement it.",
            },
        ],
        "unserved": [
            {
                "service": "sagemaker",
                "operation": "ListTrainingJobs",
                "result": "not served",
                "error": "UnknownOperationException",
                "count": 1,
                "message": "Hostelry does not implement it.",
            },
        ],
        "uncounted": 0,
    }
