"""Names and verdicts of AWS calls as they are seen on the wire."""

import pytest

from hostelry.cli.program.call import (
    SeenCall,
    SeenRequest,
    Verdict,
    error_of,
    is_aws,
    is_s3,
    name_of,
)


def signed(service: str) -> dict[str, str]:
    scope = f"AKIA1/20261122/us-west-2/{service}/aws4_request"
    return {"authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host"}


@pytest.mark.parametrize(
    ("method", "target", "headers", "body", "named"),
    [
        pytest.param(
            "POST",
            "/",
            {**signed("sagemaker"), "x-amz-target": "SageMaker.CreateModel"},
            b"{}",
            ("sagemaker", "CreateModel"),
            id="JSON",
        ),
        pytest.param(
            "POST",
            "/",
            {**signed("monitoring"), "x-amz-target": "GraniteServiceVersion20100801.ListMetrics"},
            b"",
            ("cloudwatch", "ListMetrics"),
            id="a service whose signing name differs",
        ),
        pytest.param(
            "POST",
            "/",
            signed("iam"),
            b"Action=GetRole&RoleName=r",
            ("iam", "GetRole"),
            id="a form",
        ),
        pytest.param(
            "GET", "/?Action=ListTopics", signed("sns"), b"", ("sns", "ListTopics"), id="a query"
        ),
        pytest.param(
            "POST",
            "/service/GraniteServiceVersion20100801/operation/PutMetricData",
            signed("monitoring"),
            b"",
            ("cloudwatch", "PutMetricData"),
            id="CBOR",
        ),
        pytest.param(
            "POST",
            "/endpoints/e/invocations",
            signed("sagemaker"),
            b"",
            ("sagemaker-runtime", "InvokeEndpoint"),
            id="an invocation",
        ),
        pytest.param(
            "GET",
            "/2015-03-31/functions/",
            signed("lambda"),
            b"",
            ("lambda", "GET /2015-03-31/functions/"),
            id="a REST service",
        ),
        pytest.param("GET", "/", {}, b"", ("unsigned", "GET /"), id="no signature"),
        pytest.param("GET", "/", signed("s3"), b"", ("s3", "ListBuckets"), id="list buckets"),
        pytest.param("PUT", "/b", signed("s3"), b"", ("s3", "CreateBucket"), id="create bucket"),
        pytest.param(
            "GET", "/b?list-type=2&prefix=a", signed("s3"), b"", ("s3", "ListObjectsV2"), id="list"
        ),
        pytest.param(
            "PUT",
            "/b/k?partNumber=1&uploadId=u",
            signed("s3"),
            b"",
            ("s3", "UploadPart"),
            id="a part",
        ),
        pytest.param(
            "PUT",
            "/b/k",
            {**signed("s3"), "x-amz-copy-source": "b/j"},
            b"",
            ("s3", "CopyObject"),
            id="a copy",
        ),
        pytest.param(
            "GET",
            "/b/k?X-Amz-Credential=AKIA1%2F20261122%2Fus-west-2%2Fs3%2Faws4_request",
            {},
            b"",
            ("s3", "GetObject"),
            id="a presigned address",
        ),
        pytest.param("PATCH", "/b/k", signed("s3"), b"", ("s3", "PATCH object"), id="no operation"),
    ],
)
def test_a_request_has_the_name_of_its_operation(
    method: str, target: str, headers: dict[str, str], body: bytes, named: tuple[str, str]
) -> None:
    request = SeenRequest(method=method, target=target, headers=headers, body=body)
    assert name_of(request) == named


@pytest.mark.parametrize(
    ("status", "headers", "body", "found"),
    [
        pytest.param(
            400,
            {},
            b'{"__type":"com.amazon#ValidationException","message":"no \\"x\\""}',
            ("ValidationException", 'no \\"x\\"'),
            id="JSON with a namespace",
        ),
        pytest.param(
            400,
            {"x-amzn-errortype": "ValidationError:http://x"},
            b'{"Message":"m"}',
            ("ValidationError", "m"),
            id="the header of REST services",
        ),
        pytest.param(
            404,
            {},
            b"<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>",
            ("NoSuchKey", "gone"),
            id="XML",
        ),
        pytest.param(404, {}, b"", ("404", ""), id="the answer to HEAD"),
        pytest.param(502, {}, b"\xff\xfe", ("502", ""), id="no text"),
    ],
)
def test_an_error_has_code_and_message(
    status: int, headers: dict[str, str], body: bytes, found: tuple[str, str]
) -> None:
    assert error_of(status, headers, body) == found


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
