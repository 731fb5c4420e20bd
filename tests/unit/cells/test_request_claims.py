"""Claims of a request about itself, before anything is verified."""

import hashlib
import json

from tests.cases import case, cases

from hostelry.aws.temporary_keys import Session, TokenSeal
from hostelry.base.http import HttpRequest
from hostelry.cells.request_claims import (
    MAX_READ_BYTES,
    NamedKind,
    NamedResource,
    RequestClaims,
    read_claims,
)

SIGNED = (
    "AWS4-HMAC-SHA256 Credential=KEYONE/20261126/us-east-1/sagemaker/aws4_request, "
    "SignedHeaders=host;x-amz-date, Signature=00"
)
CALL = {"x-amz-target": "SageMaker.DescribeEndpoint", "authorization": SIGNED}


def named(kind: NamedKind, name: str) -> NamedResource:
    return NamedResource(kind=kind, name=name)


NESTED = b'{"ResourceArn": %b}' % (b"[" * 900 + b"]" * 900)


def token(account: str) -> str:
    session = Session(access_key_id="ASIA1", account_id=account, expires_at=1)
    return TokenSeal("another home's").issue(session).session_token


@cases(
    "request_, found",
    case("a signed invocation names its key and endpoint",
        HttpRequest("POST", "/endpoints/shop/invocations", headers={"authorization": SIGNED}),
        RequestClaims(access_key_id="KEYONE", names=(named(NamedKind.ENDPOINT, "shop"),))),
    case("an unsigned one names no key; its path is decoded",
        HttpRequest("POST", "/endpoints/a%2Fb/async-invocations"),
        RequestClaims(names=(named(NamedKind.ENDPOINT, "a/b"),))),
    case("a presigned request names its key in the query",
        HttpRequest("GET", "/x", query="X-Amz-Credential=KEYTWO%2Fd%2Fr%2Fs%2Faws4_request"),
        RequestClaims(access_key_id="KEYTWO")),
    case("a session token claims an account, sealed elsewhere or not", HttpRequest(
            "POST", "/", headers={**CALL, "x-amz-security-token": token("123456789012")}
        ), RequestClaims(access_key_id="KEYONE", account_id="123456789012")),
    case("a token that is none claims nothing",
        HttpRequest("POST", "/", headers={**CALL, "x-amz-security-token": "?" * 5000}),
        RequestClaims(access_key_id="KEYONE")),
    case("an OpenAI client's key is a digest, its model a component", HttpRequest(
            "POST", "/v1/chat/completions", headers={"authorization": "Bearer  secret "},
            body=b'{"model": "llama:es"}',
        ), RequestClaims(
            bearer_sha256=hashlib.sha256(b"secret").hexdigest(),
            names=(named(NamedKind.COMPONENT, "llama"),),
        )),
    case("a model that is asked after", HttpRequest("GET", "/v1/models/llama%3Aes"),
        RequestClaims(names=(named(NamedKind.COMPONENT, "llama"),))),
    case("the endpoint of a call comes before its component; no text is no name", HttpRequest(
            "POST", "/", headers=CALL,
            body=b'{"InferenceComponentName": "c", "EndpointName": "e", "ModelName": 5}',
        ), RequestClaims(
            access_key_id="KEYONE",
            names=(named(NamedKind.ENDPOINT, "e"), named(NamedKind.COMPONENT, "c")),
        )),
    case("a scalable target is what it scales",
        HttpRequest("POST", "/", headers=CALL, body=b'{"ResourceId": "inference-component/c"}'),
        RequestClaims(access_key_id="KEYONE", names=(named(NamedKind.COMPONENT, "c"),))),
    case("an ARN names its resource", HttpRequest(
            "POST", "/", headers=CALL,
            body=b'{"ResourceArn": "arn:aws:sagemaker:us-east-1:111122223333:endpoint/e"}',
        ), RequestClaims(access_key_id="KEYONE", names=(named(NamedKind.ENDPOINT, "e"),))),
    case("nonsense names nothing", HttpRequest("POST", "/", headers=CALL, body=b"[" * 100_000),
        RequestClaims(access_key_id="KEYONE")),
    case("a huge body is not looked at", HttpRequest(
            "POST", "/", headers=CALL,
            body=json.dumps({"EndpointName": "e", "x": "y" * MAX_READ_BYTES}).encode(),
        ), RequestClaims(access_key_id="KEYONE")),
    case("an empty key is none",
        HttpRequest("POST", "/", headers={"authorization": "AWS4-HMAC-SHA256 Credential=/x"}),
        RequestClaims()),
    case("more than 200 members of a query name no key",
        HttpRequest("GET", "/x", query="X-Amz-Credential=KEY%2Fd&" + "a=1&" * 201),
        RequestClaims()),
    case("nested lists in place of an ARN name nothing",
        HttpRequest("POST", "/", headers=CALL, body=NESTED), RequestClaims(access_key_id="KEYONE")),
)  # fmt: skip
def test_claims_of_a_request(request_: HttpRequest, found: RequestClaims) -> None:
    assert read_claims(request_) == found
