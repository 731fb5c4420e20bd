"""SigV4: no altered request is verified."""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from random import Random
from urllib.parse import unquote_to_bytes, urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from msgspec.structs import replace
from tests.fuzz.conftest import Cases
from tests.fuzz.mutation import mutated
from tests.unit.s3.signed_heads import NOW, passage
from tests.unit.s3.signed_heads import signed as signed_head

from hostelry.aws.s3_signing import UNSIGNED_PAYLOAD
from hostelry.aws.sigv4 import (
    Identity,
    NeedsBody,
    Proven,
    Secret,
    Verifier,
)
from hostelry.aws.steering_headers import ADDED_ON_THE_WAY
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.domain.scope import Scope
from hostelry.gateway.handlers.callers import Callers
from hostelry.gateway.handlers.control import ControlHandler
from hostelry.http1.heads import MalformedHeadError
from hostelry.http1.upstream import UpstreamPool
from hostelry.principals.source import no_principals
from hostelry.s3.admission import S3Refusal
from hostelry.s3.head import Head, parse_head, write_head

BLANKS = re.compile("[ \t]+")
KEY = "AKIDEXAMPLE"
SECRET = Secret(secret_access_key="wJalrXUtnFEMI/K7MDENG", account_id="111122223333")
STATED = "x-amz-content-sha256"
BODY = b'{"EndpointName": "e"}'
PATH = "/endpoints/e/invocations"
WORDS = (
    b"a",
    b"0",
    b"/",
    b"..",
    b".",
    b"%2F",
    b"%",
    b"&",
    b"=",
    b";",
    b",",
    b" ",
    b"  ",
    b"\t",
    b"\x85",
    b"\xa0",
    b"\xff",
    b"host",
    b"Signature=",
    b"Credential=",
    b"SignedHeaders=host",
    b"aws4_request",
    b"20300101",
    b"sagemaker",
    b"sts",
    b"X-Amz-Expires=604800",
    b"&X-Amz-Date=20300101T000000Z",
    UNSIGNED_PAYLOAD.encode(),
    KEY.encode(),
)
ADDED = (
    "x-amz-target",
    "x-amzn-sagemaker-inference-component",
    "x-hostelry-tenant",
    STATED,
    "x-amz-security-token",
    "x-amz-date",
    "x-amz",
    "date",
    "host",
    "content-encoding",
    "x-amzn-trace-id",
    "authorization",
)


def signed(
    method: str = "POST",
    url: str = PATH,
    headers: dict[str, str] | None = None,
    body: bytes = BODY,
    signer: type[SigV4Auth] = SigV4Auth,
) -> tuple[HttpRequest, float]:
    """A request as it arrives, and when it was signed."""
    request = AWSRequest(method, f"http://door{url}", headers=headers or {}, data=body)
    credentials = Credentials(KEY, SECRET.secret_access_key)
    signer(credentials, "sagemaker", "us-west-2").add_auth(request)
    parts = urlsplit(request.url)
    arrived = {"host": "door"} | {name.lower(): value for name, value in request.headers.items()}
    stamp = request.context["timestamp"]
    at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    return HttpRequest(method, parts.path, parts.query, arrived, body), at


ORIGINALS = (
    signed(headers={"X-Amzn-SageMaker-Inference-Component": "mine", "Accept": "a b"}),
    signed(url="/?Action=ListRoles&Version=2010-05-08&b", method="GET"),
    signed(headers={"X-Amz-Content-SHA256": sha256(BODY).hexdigest()}),
    signed(headers={"X-Amz-Content-SHA256": UNSIGNED_PAYLOAD}),
    signed(body=b"", signer=SigV4QueryAuth),
)


S3_ORIGINALS = (
    signed_head("GET", "/b?notification"),
    signed_head("PUT", "/b?notification="),
    signed_head("PUT", "/b/a%20b?uploadId=x"),
    signed_head("GET", "/b?notification", in_query=True),
)


def meaning(request: HttpRequest) -> tuple[object, ...]:
    """The parts of a request that a signature covers. Requests with equal parts may be believed."""
    kept: list[str] = []
    for segment in request.path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    kept += [""] * (request.path.endswith("/") and bool(kept))
    pairs = [it.partition("=")[::2] for it in request.query.split("&")] if request.query else []
    headers = {
        name: BLANKS.sub(" ", value).strip(" ")
        for name, value in request.headers.items()
        if name in ("host", "accept") or name.startswith(("x-amz", "x-hostelry"))
        if name not in ADDED_ON_THE_WAY
    }
    body = b"" if headers.get(STATED) == UNSIGNED_PAYLOAD else request.body
    return (
        request.method,
        kept,
        sorted(it for it in pairs if it[0] != "X-Amz-Signature"),
        headers,
        body,
    )


def altered(request: HttpRequest, random: Random) -> HttpRequest:
    """The request with one of its parts changed, or a header added."""

    def changed(text: str) -> str:
        return mutated(text.encode("latin-1"), random, WORDS).decode("latin-1")

    kind = random.randrange(8)
    if kind == 0:
        return replace(request, method=random.choice(("GET", "PUT", "POST", "DELETE", "")))
    if kind == 1:
        return replace(request, path=changed(request.path))
    if kind == 2:
        return replace(request, query=changed(request.query))
    if kind == 3:
        return replace(request, body=mutated(request.body, random, WORDS))
    headers = dict(request.headers)
    if kind == 4:
        name = random.choice(ADDED)
        joined = f"{headers[name]}," if name in headers else ""
        headers[name] = joined + changed(random.choice(list(request.headers.values())))
    elif kind == 5:
        del headers[random.choice(list(headers))]
    else:
        name = "authorization" if kind == 6 and "authorization" in headers else ""
        name = name or random.choice(list(headers))
        headers[name] = changed(headers[name])
    return replace(request, headers=headers)


def is_believed(verify: Callable[[], Identity | Proven | NeedsBody]) -> bool:
    """Whether a signer was identified. Raises errors that are not AWS's refusals."""
    try:
        return not isinstance(verify(), NeedsBody)
    except ServiceError as error:
        if error.http_status != 403:
            raise
        return False


def test_an_altered_request_is_not_believed(cases: Cases) -> None:
    verifier = Verifier({KEY: SECRET}.get)
    for request, now in ORIGINALS:
        verifier.verify(request, now)
    for random in cases(20_000):
        request, now = random.choice(ORIGINALS)
        forged = altered(request, random)
        late_s = random.choice((0, 0, 1, 200))
        if is_believed(lambda: verifier.verify(forged, now + late_s)):  # noqa: B023
            assert meaning(forged) == meaning(request)


def test_a_head_is_not_believed_either(cases: Cases) -> None:
    verifier = Verifier({KEY: SECRET}.get)
    for random in cases(10_000):
        request, now = random.choice(ORIGINALS)
        forged = replace(altered(request, random), body=b"")
        if is_believed(lambda: verifier.verify_head(forged, now)):  # noqa: B023
            assert meaning(forged)[:-1] == meaning(request)[:-1]


def test_a_gateway_admits_no_altered_head(cases: Cases) -> None:
    clock = ManualClock()
    scope = Scope(SECRET.account_id, "us-west-2")
    callers = Callers(
        Verifier({KEY: SECRET}.get), scope, "openai", False, clock.now, no_principals(scope.account)
    )
    control = ControlHandler(callers, UpstreamPool(), "http://control", "internal")
    for random in cases(5_000):
        request, now = random.choice(ORIGINALS)
        clock.advance(now - clock.now())
        forged = replace(altered(request, random), body=b"")
        for admits in (lambda it: callers.admits_to("sagemaker", it), control.admit):
            with suppress(ServiceError):
                if admits(forged):
                    assert meaning(forged)[:-1] == meaning(request)[:-1]


def head_of(request: HttpRequest) -> Head:
    """The request's head as the S3 port reads it. Raises MalformedHeadError."""
    target = f"{request.path}?{request.query}" if request.query else request.path
    return parse_head(write_head(request.method, target, request.headers.items()))


def s3_meaning(head: Head) -> tuple[object, ...]:
    """All that a signature for S3 stands for but the body, whose hash is compared by itself."""
    _, _, query, headers, _ = meaning(head.request)
    return head.method, unquote_to_bytes(head.request.path), query, headers


def test_the_s3_port_believes_no_altered_head(cases: Cases) -> None:
    checked = passage(ManualClock(NOW))
    for original in S3_ORIGINALS:
        checked.find_caller(original)
    for random in cases(10_000):
        original = random.choice(S3_ORIGINALS)
        try:
            forged = head_of(altered(original.request, random))
            checked.find_caller(forged)
        except (S3Refusal, MalformedHeadError):
            continue
        assert s3_meaning(forged) == s3_meaning(original)


@pytest.mark.parametrize(
    ("request_", "now"),
    ORIGINALS,
    # The time of signing is in no id: two workers of one run would collect different tests.
    ids=[f"{request.method} {request.path}" for request, _ in ORIGINALS],
)
def test_what_is_altered_was_believed_before(request_: HttpRequest, now: float) -> None:
    assert Verifier({KEY: SECRET}.get).verify(request_, now).access_key_id == KEY
