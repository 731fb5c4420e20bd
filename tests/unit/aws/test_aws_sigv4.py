"""Signatures: botocore signs, our code verifies, and then one part is changed at a time."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.aws.s3_signing import UNSIGNED_PAYLOAD
from hostelry.aws.sigv4 import Identity, NeedsBody, Proven, Secret, Verifier
from hostelry.aws.steering_headers import ADDED_ON_THE_WAY
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest

KEY, SECRET, ACCOUNT = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "111122223333"
HOST = "127.0.0.1:8787"
BODY = b'{"ModelName": "m"}'
TARGET = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "SageMaker.DeleteModel"}
QUIET = settings(deadline=None, max_examples=150, derandomize=True)


def secret_of(key: str) -> Secret | None:
    return Secret(secret_access_key=SECRET, account_id=ACCOUNT) if key == KEY else None


VERIFIER, PRIVATE = Verifier(secret_of), Verifier(secret_of, is_private=True)


def sign(
    method: str = "POST",
    url: str = "/",
    body: bytes = BODY,
    headers: Mapping[str, str] = TARGET,
    service: str = "sagemaker",
    signer: type[SigV4Auth] = SigV4Auth,
    secret: str = SECRET,
    token: str | None = None,
    **options: Any,
) -> tuple[HttpRequest, float]:
    """A request signed by botocore as it would arrive, and the instant at which it was signed."""
    request = AWSRequest(method, f"http://{HOST}{url}", headers=dict(headers), data=body)
    credentials = Credentials(KEY, secret, token)
    signer(credentials, service, "us-west-2", **options).add_auth(request)
    parts = urlsplit(request.url)
    lowered: dict[str, str] = {"host": HOST}
    for name in {name.lower() for name in request.headers}:
        values = [as_text(value).strip() for value in request.headers.get_all(name)]
        lowered[name] = ",".join(values)
    stamp = request.context["timestamp"]
    arrived = HttpRequest(method, parts.path, parts.query, lowered, body)
    return arrived, instant(stamp)


def as_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


def instant(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def with_header(request: HttpRequest, name: str, value: str | None) -> HttpRequest:
    headers = {key: old for key, old in request.headers.items() if key != name}
    return replace(request, headers=headers | ({} if value is None else {name: value}))


def refused(request: HttpRequest, now: float, verifier: Verifier = VERIFIER) -> tuple[str, str]:
    with pytest.raises(ServiceError) as caught:
        verifier.verify(request, now)
    assert caught.value.http_status == 403
    return caught.value.code, caught.value.message


SEGMENTS = st.sampled_from(
    ["a", "..", ".", "", "%2F", "%252e", "a b", "~x", "a+b", "(x)", "é", "*"]
)
PATHS = st.lists(SEGMENTS, max_size=5).map(lambda parts: "/" + "/".join(parts))
QUERY_PARTS = st.sampled_from(["b=2", "a=1", "a", "a=", "a=0", "c=%20x", "d=~", "=v", "Z=1"])
QUERIES = st.lists(QUERY_PARTS, max_size=4).map("&".join)
NAMES = st.sampled_from(["X-Amz-Meta", "X-Amzn-SageMaker-Inference-Id", "Accept", "my-header"])
VALUES = st.sampled_from(["v", "  padded  ", "two   spaces", "a,b", "", "caf\u00e9", 'q="x  y"'])


@QUIET
@given(
    method=st.sampled_from(["POST", "GET", "DELETE"]),
    path=PATHS,
    query=QUERIES,
    headers=st.dictionaries(NAMES, VALUES),
    body=st.binary(max_size=50),
    token=st.none() | st.just("session/token=="),
)
def test_what_botocore_signs_is_believed(
    method: str, path: str, query: str, headers: dict[str, str], body: bytes, token: str | None
) -> None:
    url = path + ("?" + query if query else "")
    request, now = sign(method, url, body, headers, token=token)
    assert VERIFIER.verify(request, now) == Identity(
        access_key_id=KEY, account_id=ACCOUNT, region="us-west-2", service="sagemaker"
    )


@QUIET
@given(path=PATHS, query=QUERIES.filter(lambda text: "=v" not in text), body=st.just(b""))
def test_what_botocore_presigns_is_believed(path: str, query: str, body: bytes) -> None:
    url = path + ("?" + query if query else "")
    request, now = sign("GET", url, body, {}, "sts", SigV4QueryAuth, expires=60)
    assert VERIFIER.verify(request, now).service == "sts"
    assert VERIFIER.verify(request, now + 60).access_key_id == KEY
    assert refused(request, now + 61)[0] == "SignatureDoesNotMatch"


@QUIET
@given(at=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_body_with_one_changed_byte_is_refused(at: int, flip: int) -> None:
    request, now = sign()
    body = bytearray(request.body)
    body[at % len(body)] ^= flip
    altered = replace(request, body=bytes(body))
    assert refused(altered, now)[0] == "InvalidSignatureException"


def a_second_off(stamp: str) -> str:
    return f"{stamp[:14]}{(int(stamp[14]) + 1) % 10}Z"


@cases(
    "change",
    case("the method", lambda r: replace(r, method="PUT")),
    case("the path", lambda r: replace(r, path="/other")),
    case("the query", lambda r: replace(r, query="a=1")),
    case("the body is taken away", lambda r: replace(r, body=b"")),
    case("the host", lambda r: with_header(r, "host", "evil.example")),
    case("the operation", lambda r: with_header(r, "x-amz-target", "SageMaker.DeleteEndpoint")),
    case("a header is gone", lambda r: with_header(r, "content-type", None)),
    case(
        "the signature",
        lambda r: with_header(r, "authorization", r.headers["authorization"][:-1] + "g"),
    ),
    case(
        "the signature is no ASCII",
        lambda r: with_header(r, "authorization", r.headers["authorization"] + "\u00e9\ud800"),
    ),
    case(
        "the region",
        lambda r: with_header(
            r, "authorization", r.headers["authorization"].replace("us-west-2", "eu-west-1")
        ),
    ),
    case(
        "the host is not signed",
        lambda r: with_header(r, "authorization", r.headers["authorization"].replace("host;", "")),
    ),
    case("a hash of another body", lambda r: with_header(r, "x-amz-content-sha256", "0" * 64)),
    case(
        "an unsigned wish to leave the body unsigned",
        lambda r: with_header(r, "x-amz-content-sha256", UNSIGNED_PAYLOAD),
    ),
    case("the time", lambda r: with_header(r, "x-amz-date", a_second_off(r.headers["x-amz-date"]))),
    case("the day", lambda r: with_header(r, "x-amz-date", "20200101T000000Z")),
)
def test_one_changed_thing_is_refused(change: Any) -> None:
    request, now = sign(body=BODY)
    VERIFIER.verify(request, now)
    assert refused(change(request), now)[0] == "InvalidSignatureException"


def test_a_query_service_has_its_own_names_for_it() -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    request, now = sign(body=b"Action=GetCallerIdentity", headers=form, service="sts")
    assert VERIFIER.verify(request, now).service == "sts"
    assert refused(replace(request, body=b"x"), now)[0] == "SignatureDoesNotMatch"
    without_keys = Verifier(lambda key: None)
    assert refused(request, now, without_keys)[0] == "InvalidClientTokenId"


def test_a_wrong_key_and_a_wrong_secret() -> None:
    request, now = sign()
    code, message = refused(request, now, Verifier(lambda key: None))
    assert code == "UnrecognizedClientException"
    assert message == "The security token included in the request is invalid."
    request, now = sign(secret="another")
    assert refused(request, now)[0] == "InvalidSignatureException"


@pytest.mark.parametrize(("late_s", "word"), [(301, "expired"), (-301, "not yet current")])
def test_a_skewed_clock_is_refused(late_s: float, word: str) -> None:
    request, now = sign()
    assert VERIFIER.verify(request, now + 300).account_id == ACCOUNT
    assert VERIFIER.verify(request, now - 300).account_id == ACCOUNT
    code, message = refused(request, now + late_s)
    assert code == "InvalidSignatureException"
    assert message.startswith(f"Signature {word}: {request.headers['x-amz-date']} is ")
    wide = Verifier(lambda key: Secret(secret_access_key=SECRET, account_id=ACCOUNT), 400)
    assert wide.verify(request, now + late_s).account_id == ACCOUNT


def test_unsigned_headers_change_nothing() -> None:
    request, now = sign()
    for name in ("amz-sdk-request", "user-agent", "traceparent", "x-forwarded-for"):
        VERIFIER.verify(with_header(request, name, "anything"), now)


def test_an_unsigned_payload_needs_a_signed_header() -> None:
    headers = {"X-Amz-Content-SHA256": UNSIGNED_PAYLOAD}
    request, now = sign(headers=headers)
    assert VERIFIER.verify(replace(request, body=b"any other"), now).access_key_id == KEY


@pytest.mark.parametrize("zone", ["-0000", "GMT", "+0000"])
def test_a_date_header_stands_in_for_the_amazon_one(zone: str) -> None:
    request, now = sign(headers={"Date": "x"})
    assert "x-amz-date" not in request.headers
    assert request.headers["date"] == formatdate(now)
    assert VERIFIER.verify(request, now).access_key_id == KEY
    other = request.headers["date"].replace("-0000", zone)
    if zone != "-0000":
        assert refused(with_header(request, "date", other), now)[1].startswith("The request sig")


@pytest.mark.parametrize("query", ["", "a=1", "X-Amz-Credential=x"])
def test_no_signature_at_all(query: str) -> None:
    code, message = refused(HttpRequest("POST", "/", query, {"host": HOST}), 0.0)
    assert (code, message) == (
        "MissingAuthenticationTokenException",
        "Missing Authentication Token",
    )


CREDENTIAL = f"Credential={KEY}/20261121/us-west-2/sagemaker/aws4_request"


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer sk-x",
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 ",
        "AWS4-HMAC-SHA256 Signature=",
        f"AWS4-HMAC-SHA256 {CREDENTIAL}, SignedHeaders=host",
        f"AWS4-HMAC-SHA256 {CREDENTIAL}, Signature=0",
        f"AWS4-HMAC-SHA256 {CREDENTIAL}, SignedHeaders, Signature=0",
        "AWS4-HMAC-SHA256 SignedHeaders=host, Signature=0",
        "AWS4-HMAC-SHA256 Credential=a/b/c, SignedHeaders=host, Signature=0",
        "AWS4-HMAC-SHA256 Credential=a/b/c/d/e, SignedHeaders=host, Signature=0",
        "AWS4-HMAC-SHA256 Credential=/b/c/d/aws4_request, SignedHeaders=host, Signature=0",
        f"AWS4-ECDSA-P256-SHA256 {CREDENTIAL}, SignedHeaders=host, Signature=0",
    ],
)
def test_an_authorization_that_cannot_be_read(authorization: str) -> None:
    headers = {"host": HOST, "authorization": authorization, "x-amz-date": "20261121T000000Z"}
    code, message = refused(HttpRequest("POST", "/", "", headers), 1_795_219_200.0)
    assert code == "IncompleteSignatureException"
    assert message


@pytest.mark.parametrize(
    "dates",
    [
        {},
        {"x-amz-date": ""},
        {"x-amz-date": "2026-11-21T00:00"},
        {"x-amz-date": "20261121 000000Z"},
        {"x-amz-date": "20261121T00000aZ"},
        {"x-amz-date": "20261341T000000Z"},
        {"x-amz-date": "\u0662\u0660261121T000000Z"},
        {"date": ""},
        {"date": "tomorrow"},
        {"date": "Fri, 99 Nov 2026 99:99:99 GMT"},
        {"date": "Thu, 01 Jan 2026 00:00:00 +99999999999999"},
    ],
)
def test_a_time_that_cannot_be_read(dates: dict[str, str]) -> None:
    authorization = f"AWS4-HMAC-SHA256 {CREDENTIAL}, SignedHeaders=host, Signature=0"
    headers = {"host": HOST, "authorization": authorization, **dates}
    code, _ = refused(HttpRequest("POST", "/", "", headers), 1_795_219_200.0)
    assert code == "IncompleteSignatureException"


@cases(
    "old, new",
    case("another algorithm", "X-Amz-Algorithm=AWS4", "X-Amz-Algorithm=AWS5"),
    case("no lifetime", "X-Amz-Expires=60", "X-Amz-Expires=0"),
    case("over a week", "X-Amz-Expires=60", "X-Amz-Expires=604801"),
    case("no number", "X-Amz-Expires=60", "X-Amz-Expires=soon"),
    case("an empty lifetime", "X-Amz-Expires=60", "X-Amz-Expires="),
    case("no date", "X-Amz-Date=", "X-Amz-Day="),
    case("no signature", "&X-Amz-Signature=", "&aX-Amz-Signature="),
)
def test_a_presigned_query_that_cannot_be_read(old: str, new: str) -> None:
    request, now = sign("GET", "/?a=1", b"", {}, "sts", SigV4QueryAuth, expires=60)
    assert old in request.query
    broken = replace(request, query=request.query.replace(old, new))
    assert refused(broken, now)[0] == "IncompleteSignatureException"


@pytest.mark.parametrize("part", ["a=1", "X-Amz-Expires=60", "X-Amz-SignedHeaders=host"])
def test_a_presigned_query_with_a_changed_part_is_refused(part: str) -> None:
    request, now = sign("GET", "/?a=1", b"", {}, "sts", SigV4QueryAuth, expires=60)
    changes = {"a=1": "a=2", "X-Amz-Expires=60": "X-Amz-Expires=61"}
    changed = replace(request, query=request.query.replace(part, changes.get(part, part + "%3Bx")))
    assert refused(changed, now)[0] == "SignatureDoesNotMatch"


@settings(deadline=None, max_examples=200, derandomize=True)
@given(
    authorization=st.text(max_size=60)
    | st.text(max_size=30).map(lambda t: "AWS4-HMAC-SHA256 " + t),
    query=st.text(max_size=60),
    date=st.text(max_size=20),
    path=st.text(max_size=20),
)
def test_nonsense_is_refused_and_never_breaks_us(
    authorization: str, query: str, date: str, path: str
) -> None:
    signed = f"AWS4-HMAC-SHA256 {CREDENTIAL}, SignedHeaders=host;x, Signature={authorization}"
    for text in (authorization, signed):
        headers = {"authorization": text, "x-amz-date": "20261121T000000Z", "x": date, "host": path}
        refused(HttpRequest("POST", path, query, headers, b"x"), 1_795_219_200.0)
        refused(HttpRequest("POST", path, query, {"authorization": text, "date": date}), 0.0)
    refused(HttpRequest("GET", path, "X-Amz-Signature=" + query, {}), 0.0)


@cases(
    "name, value",
    case("the operation", "x-amz-target", "SageMaker.DeleteEndpoint"),
    case("the component", "x-amzn-sagemaker-inference-component", "other"),
    case("the session", "x-amzn-sagemaker-session-id", "s-1"),
    case("the variant", "x-amzn-sagemaker-target-variant", "v"),
    case("the tenant", "x-hostelry-tenant", "other"),
    case("the deadline", "x-hostelry-first-token-deadline-s", "0.001"),
    case("a session token", "x-amz-security-token", "t"),
    case("the body's true hash", "x-amz-content-sha256", sha256(BODY).hexdigest()),
    case("leave for another body", "x-amz-content-sha256", UNSIGNED_PAYLOAD),
    case("the bare prefix", "x-amz", ""),
)
@pytest.mark.parametrize("signer", [SigV4Auth, SigV4QueryAuth])
def test_a_header_that_steers_cannot_be_added_to_a_signed_request(
    name: str, value: str, signer: type[SigV4Auth]
) -> None:
    request, now = sign(headers={}, signer=signer)
    code, message = refused(with_header(request, name, value), now)
    assert code == "InvalidSignatureException"
    assert f"not signed: {name}" in message


@cases(
    "name, value, believed",
    case("the component", "x-amzn-sagemaker-inference-component", "other", True),
    case("the session", "x-amzn-sagemaker-session-id", "s-1", True),
    case("the operation", "x-amz-target", "SageMaker.DeleteEndpoint", False),
    case("leave for another body", "x-amz-content-sha256", UNSIGNED_PAYLOAD, False),
    case("the tenant", "x-hostelry-tenant", "other", False),
)
def test_an_invocations_headers_need_no_signature_by_tls_or_on_loopback(
    name: str, value: str, believed: bool
) -> None:
    """litellm adds the component after it has signed, which AWS accepts."""
    request, now = sign(headers={})
    added = with_header(request, name, value)
    if believed:
        assert PRIVATE.verify(added, now).service
    else:
        with pytest.raises(ServiceError, match="not signed"):
            PRIVATE.verify(added, now)


def test_a_signed_header_of_an_invocation_cannot_be_changed_on_the_way() -> None:
    name = "x-amzn-sagemaker-inference-component"
    request, now = sign(headers={name: "mine"})
    with pytest.raises(ServiceError, match="does not match"):
        PRIVATE.verify(with_header(request, name, "other"), now)


@pytest.mark.parametrize("name", sorted(ADDED_ON_THE_WAY))
def test_what_load_balancers_put_on_steers_nothing_and_may_be_added(name: str) -> None:
    request, now = sign()
    assert VERIFIER.verify(with_header(request, name, "Root=1-67891233"), now).service


@pytest.mark.parametrize("blank", ["\xa0", "\x85", "\x1f", "\u2003"])
def test_only_spaces_and_tabs_fold_so_a_signed_value_cannot_be_swapped(blank: str) -> None:
    request, now = sign(headers={"X-Amzn-SageMaker-Inference-Id": "a b"})
    altered = with_header(request, "x-amzn-sagemaker-inference-id", f"a{blank}b")
    assert refused(altered, now)[0] == "InvalidSignatureException"
    folded = with_header(request, "x-amzn-sagemaker-inference-id", " a \t b ")
    assert VERIFIER.verify(folded, now).service


def test_a_presigned_parameter_that_comes_twice_is_refused() -> None:
    request, now = sign("GET", "/", b"", {}, "sts", SigV4QueryAuth, expires=60)
    twice = replace(request, query=request.query + "&X-Amz-Expires=600000")
    assert refused(twice, now) == (
        "IncompleteSignatureException",
        "The presigned query has X-Amz-Expires more than once",
    )


def test_a_stated_hash_lets_the_head_alone_be_verified() -> None:
    headers = {"X-Amz-Content-SHA256": sha256(BODY).hexdigest()}
    request, now = sign(headers=headers)
    head = replace(request, body=b"")
    found = VERIFIER.verify_head(head, now)
    assert isinstance(found, Proven)
    assert found.identity.access_key_id == KEY
    with pytest.raises(ServiceError, match="does not match"):
        VERIFIER.verify_head(with_header(head, "x-amz-content-sha256", "0" * 64), now)
    assert refused(head, now)[1] == "X-Amz-Content-SHA256 is not the SHA-256 of the body."


@cases(
    "headers, late_s, message",
    case("nothing is wrong with it so far", {}, 0.0, None),
    case("not signed", {"authorization": None}, 0.0, "Missing Authentication"),
    case("stale", {}, 900.0, "Signature expired"),
    case("a header added", {"x-hostelry-tenant": "t"}, 0.0, "not signed: x-host"),
)
def test_what_the_head_shows_is_refused_before_the_body_is_there(
    headers: dict[str, str | None], late_s: float, message: str | None
) -> None:
    request, now = sign()
    head = replace(request, body=b"")
    for name, value in headers.items():
        head = with_header(head, name, value)
    if message is None:
        assert isinstance(VERIFIER.verify_head(head, now + late_s), NeedsBody)
        return
    with pytest.raises(ServiceError, match=message):
        VERIFIER.verify_head(head, now + late_s)


def test_unverified_requests_leave_nothing_behind_and_a_replaced_key_counts_at_once() -> None:
    secrets = {KEY: Secret(secret_access_key=SECRET, account_id=ACCOUNT)}
    verifier = Verifier(secrets.get)
    request, now = sign()
    wrong = with_header(request, "authorization", request.headers["authorization"][:-1] + "g")
    refused(wrong, now, verifier)
    remembered = [verifier.num_remembered]
    verifier.verify(request, now)
    remembered.append(verifier.num_remembered)
    assert remembered == [0, 1]
    secrets[KEY] = Secret(secret_access_key="another", account_id=ACCOUNT)
    assert refused(request, now, verifier)[0] == "InvalidSignatureException"
