"""Heads of S3 requests: their operations and signatures, compared with botocore's."""

import calendar
import time
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as Keys
from tests.cases import case, cases

from hostelry.aws.s3_signing import OwnKey
from hostelry.aws.sigv4 import Proven, Secret, Verifier
from hostelry.base.errors import ServiceError
from hostelry.s3.admission import S3Refusal, Wants, check_can_sign, wants_of
from hostelry.s3.head import Head, parse_head, write_head
from hostelry.s3.store_client import signed_head

KEY = OwnKey(access_key_id="AKIA", secret_access_key="secret", region="us-east-1")
PATHS = ["/b/k", "/b/a%20b%2Bc", "/b/%C3%A4/../x//y", "/b/k~_-.", "/b/", "/"]
QUERIES = ["", "uploads=", "list-type=2&prefix=a%2Fb%20c&delimiter=%2F", "versionId=x%3D"]


def verifier(key: OwnKey = KEY) -> Verifier:
    secret = Secret(secret_access_key=key.secret_access_key, account_id="1")
    return Verifier({key.access_key_id: secret}.get, 900.0, is_s3=True)


def of_botocore(path: str, query: str, headers: dict[str, str], signer: Any) -> tuple[Head, float]:
    """A head that botocore signed, and its instant."""
    url = f"http://h:1{path}" + (f"?{query}" if query else "")
    request = AWSRequest(
        "PUT", url, headers=headers, data=b"" if signer is S3SigV4QueryAuth else b"body"
    )
    signer(Keys(KEY.access_key_id, KEY.secret_access_key), "s3", KEY.region).add_auth(request)
    prepared = request.prepare()
    target = prepared.url.removeprefix("http://h:1")
    sent = {"Host": "h:1", **prepared.headers}
    shown = {name: it.decode() if isinstance(it, bytes) else it for name, it in sent.items()}
    head = parse_head(write_head("PUT", target, shown.items()))
    return head, calendar.timegm(time.gmtime())


@pytest.mark.parametrize("signer", [S3SigV4Auth, S3SigV4QueryAuth])
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("path", PATHS)
def test_what_botocore_signs_holds_and_is_signed_again(path: str, query: str, signer: Any) -> None:
    head, now = of_botocore(path, query, {"x-amz-meta-a": "b  c"}, signer)
    assert isinstance(verifier().verify_head(head.request, now), Proven)
    other = OwnKey(access_key_id="OWN", secret_access_key="own", region="us-west-2")
    added = {"x-amz-server-side-encryption-aws-kms-key-id": "arn"}
    again = parse_head(signed_head(head, other, now, added))
    assert isinstance(verifier(other).verify_head(again.request, now), Proven)
    with pytest.raises(ServiceError):
        verifier().verify_head(again.request, now)
    assert again.values["x-amz-server-side-encryption-aws-kms-key-id"] == "arn"
    assert again.values["x-amz-meta-a"] == "b  c"
    assert "X-Amz-Signature" not in again.target
    assert again.request.path == head.request.path


@cases(
    "line, headers, wants",
    case("a read wants nothing", "GET /b/k", {}, Wants()),
    case(
        "KMS without a key takes the default one",
        "PUT /b/k",
        {"x-amz-server-side-encryption": "aws:kms"},
        Wants(key="alias/aws/s3", adds_key=True),
    ),
    case(
        "a named key is looked at",
        "PUT /b/k",
        {
            "X-Amz-Server-Side-Encryption": "aws:kms",
            "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "k",
        },
        Wants(key="k"),
    ),
    case(
        "the store's own keys want nothing",
        "PUT /b/k",
        {"x-amz-server-side-encryption": "AES256"},
        Wants(),
    ),
    case(
        "an upload may take its bucket's default",
        "POST /b/k?uploads",
        {},
        Wants(starts_upload=True),
    ),
    case(
        "temporary keys in a header",
        "GET /b/k",
        {"x-amz-security-token": "t", "authorization": "AWS4"},
        Wants(token="t"),
    ),
    case(
        "temporary keys in a presigned query",
        "GET /b/k?X-Amz-Signature=s&X-Amz-Security-Token=t%2F",
        {},
        Wants(token="t/"),
    ),
)
def test_what_a_request_wants(line: str, headers: dict[str, str], wants: Wants) -> None:
    method, target = line.split(" ")
    assert wants_of(parse_head(write_head(method, target, headers.items()))) == wants


@cases(
    "target, method",
    case("two layers", "/b/k", "aws:kms:dsse"),
    case("an unknown method", "/b/k", "none"),
    case("in the query", "/b/k?X-Amz-Server-Side-Encryption=aws:kms", ""),
)
def test_an_encryption_that_the_store_would_leave_out_is_refused(target: str, method: str) -> None:
    headers = {"x-amz-server-side-encryption": method} if method else {}
    with pytest.raises(S3Refusal) as refused:
        wants_of(parse_head(write_head("PUT", target, headers.items())))
    assert (refused.value.status, refused.value.code) == (501, "NotImplemented")


def test_a_body_signed_in_pieces_cannot_be_signed_again() -> None:
    headers = {"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}
    with pytest.raises(S3Refusal, match="alias/aws/s3"):
        check_can_sign(parse_head(write_head("PUT", "/b/k", headers.items())))
