"""Names and verdicts of AWS calls as they are seen on the wire."""

import pytest
from tests.cases import case, cases

from hostelry.cli.program.call import (
    MAX_ROWS,
    CallReport,
    SeenCall,
    SeenRequest,
    Verdict,
    get_operation,
    is_aws,
    is_s3,
    parse_error,
    report_lines,
    stray_lines,
)

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


def signed(service: str) -> dict[str, str]:
    scope = f"AKIA1/20261122/us-west-2/{service}/aws4_request"
    return {"authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host"}


@cases(
    "method, target, headers, body, named",
    case(
        "JSON",
        "POST",
        "/",
        {**signed("sagemaker"), "x-amz-target": "SageMaker.CreateModel"},
        b"{}",
        ("sagemaker", "CreateModel"),
    ),
    case(
        "a service whose signing name differs",
        "POST",
        "/",
        {**signed("monitoring"), "x-amz-target": "GraniteServiceVersion20100801.ListMetrics"},
        b"",
        ("cloudwatch", "ListMetrics"),
    ),
    case("a form", "POST", "/", signed("iam"), b"Action=GetRole&RoleName=r", ("iam", "GetRole")),
    case("a query", "GET", "/?Action=ListTopics", signed("sns"), b"", ("sns", "ListTopics")),
    case(
        "CBOR",
        "POST",
        "/service/GraniteServiceVersion20100801/operation/PutMetricData",
        signed("monitoring"),
        b"",
        ("cloudwatch", "PutMetricData"),
    ),
    case(
        "an invocation",
        "POST",
        "/endpoints/e/invocations",
        signed("sagemaker"),
        b"",
        ("sagemaker-runtime", "InvokeEndpoint"),
    ),
    case(
        "a REST service",
        "GET",
        "/2015-03-31/functions/",
        signed("lambda"),
        b"",
        ("lambda", "GET /2015-03-31/functions/"),
    ),
    case("no signature", "GET", "/", {}, b"", ("unsigned", "GET /")),
    case("list buckets", "GET", "/", signed("s3"), b"", ("s3", "ListBuckets")),
    case("create bucket", "PUT", "/b", signed("s3"), b"", ("s3", "CreateBucket")),
    case("list", "GET", "/b?list-type=2&prefix=a", signed("s3"), b"", ("s3", "ListObjectsV2")),
    case("a part", "PUT", "/b/k?partNumber=1&uploadId=u", signed("s3"), b"", ("s3", "UploadPart")),
    case(
        "a copy",
        "PUT",
        "/b/k",
        {**signed("s3"), "x-amz-copy-source": "b/j"},
        b"",
        ("s3", "CopyObject"),
    ),
    case(
        "a presigned address",
        "GET",
        "/b/k?X-Amz-Credential=AKIA1%2F20261122%2Fus-west-2%2Fs3%2Faws4_request",
        {},
        b"",
        ("s3", "GetObject"),
    ),
    case("no operation", "PATCH", "/b/k", signed("s3"), b"", ("s3", "PATCH object")),
)
def test_a_request_has_the_name_of_its_operation(
    method: str, target: str, headers: dict[str, str], body: bytes, named: tuple[str, str]
) -> None:
    request = SeenRequest(method=method, target=target, headers=headers, body=body)
    assert get_operation(request) == named


@cases(
    "status, headers, body, found",
    case(
        "JSON with a namespace",
        400,
        {},
        b'{"__type":"com.amazon#ValidationException","message":"no \\"x\\""}',
        ("ValidationException", 'no \\"x\\"'),
    ),
    case(
        "the header of REST services",
        400,
        {"x-amzn-errortype": "ValidationError:http://x"},
        b'{"Message":"m"}',
        ("ValidationError", "m"),
    ),
    case(
        "XML",
        404,
        {},
        b"<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>",
        ("NoSuchKey", "gone"),
    ),
    case("the answer to HEAD", 404, {}, b"", ("404", "")),
    case("no text", 502, {}, b"\xff\xfe", ("502", "")),
)
def test_an_error_has_code_and_message(
    status: int, headers: dict[str, str], body: bytes, found: tuple[str, str]
) -> None:
    assert parse_error(status, headers, body) == found


@pytest.mark.parametrize(
    ("status", "error", "message", "verdict"),
    [
        (200, "", "", Verdict.OK),
        (304, "", "", Verdict.OK),
        (400, "UnknownOperationException", "x", Verdict.UNSERVED),
        (501, "NotImplemented", "x", Verdict.UNSERVED),
        (400, "ValidationException", "F is not supported by this version of H.", Verdict.REFUSED),
        (400, "ValidationException", "Could not find", Verdict.FAILED),
    ],
)
def test_the_answer_is_the_verdict(status: int, error: str, message: str, verdict: Verdict) -> None:
    call = SeenCall(service="s", operation="o", status=status, error=error, message=message)
    assert call.verdict is verdict


@pytest.mark.parametrize(
    ("host", "aws", "s3"),
    [
        ("sts.us-east-1.amazonaws.com", True, False),
        ("STS.amazonaws.com:443", True, False),
        ("sts.cn-north-1.amazonaws.com.cn", True, False),
        ("sts.us-east-1.api.aws", True, False),
        ("s3.us-west-2.amazonaws.com", True, True),
        ("my-bucket.s3.us-west-2.amazonaws.com", True, True),
        ("amazonaws.com.example.org", False, False),
        ("notamazonaws.com", False, False),
        ("huggingface.co", False, False),
        ("", False, False),
    ],
)
def test_which_hosts_are_aws(host: str, aws: bool, s3: bool) -> None:
    assert is_aws(host) is aws
    assert (is_aws(host) and is_s3(host)) is s3


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
