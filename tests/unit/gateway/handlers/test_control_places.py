"""Control calls that the gateway lets through without a signature, or at another path."""

import gzip

import pytest
from tests.cases import case, cases

from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.gateway.handlers.control import (
    _check_path,
    find_confirmed_topic_owner,
    is_web_identity,
    may_be_web_identity,
)

TOPIC = "arn:aws:sns:us-west-2:123456789012:t"
CONFIRM = f"Action=ConfirmSubscription&TopicArn={TOPIC}&Token=x"


@cases(
    "method, path, query, signed, is_let",
    case("a SubscribeURL", "GET", "/", CONFIRM, False, True),
    case("a POST", "POST", "/", CONFIRM, False, False),
    case("another path", "GET", "/x", CONFIRM, False, False),
    case("a signed one is verified as any other", "GET", "/", CONFIRM, True, False),
    case("another action", "GET", "/", f"Action=DeleteTopic&TopicArn={TOPIC}", False, False),
    case("two actions", "GET", "/", f"{CONFIRM}&Action=DeleteTopic", False, False),
    case("no topic", "GET", "/", "Action=ConfirmSubscription&TopicArn=t", False, False),
    case("many fields", "GET", "/", "a=1&" * 50 + CONFIRM, False, False),
)
def test_only_a_confirmation_needs_no_signature(
    method: str, path: str, query: str, signed: bool, is_let: bool
) -> None:
    headers = {"authorization": "AWS4-HMAC-SHA256 x"} if signed else {}
    identity = find_confirmed_topic_owner(HttpRequest(method, path, query, headers, b""))
    assert (identity is not None) is is_let
    if identity is not None:
        assert (identity.account_id, identity.region) == ("123456789012", "us-west-2")
        assert identity.service == "sns"


@pytest.mark.parametrize(
    "announced", [{"content-length": "1"}, {"transfer-encoding": "chunked"}], ids=str
)
def test_a_confirmation_with_a_body_is_refused(announced: dict[str, str]) -> None:
    with pytest.raises(ServiceError, match="no body"):
        find_confirmed_topic_owner(HttpRequest("GET", "/", CONFIRM, announced, b""))


FORM = {"content-type": "application/x-www-form-urlencoded"}
ASSUME = b"Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=r&WebIdentityToken=t"


@cases(
    "method, more, body, is_let",
    case("a token", "POST", {}, ASSUME, True),
    case("another path", "PUT", {}, ASSUME, False),
    case("a signed one is verified as any other", "POST", {"authorization": "x"}, ASSUME, False),
    case("another action", "POST", {}, ASSUME.replace(b"RoleWithWebIdentity", b"Role"), False),
    case("another service", "POST", {}, ASSUME.replace(b"2011-06-15", b"2010-05-08"), False),
    case("the last of two actions", "POST", {}, ASSUME + b"&Action=GetCallerIdentity", False),
    case("too long", "POST", {"content-length": "65537"}, ASSUME, False),
    case("a length that is none", "POST", {"content-length": "-1"}, ASSUME, False),
    case("of unknown length", "POST", {"content-length": ""}, ASSUME, False),
    case("no form", "POST", {"content-type": "application/x-amz-json-1.1"}, ASSUME, False),
    case("a target", "POST", {"x-amz-target": "SageMaker.ListModels"}, ASSUME, False),
    case("a packed body", "POST", {"content-encoding": "gzip"}, gzip.compress(ASSUME), False),
    case("no text", "POST", {}, b"\xff", False),
)
def test_only_a_web_identity_needs_no_signature_in_a_form(
    method: str, more: dict[str, str], body: bytes, is_let: bool
) -> None:
    headers = {**FORM, "content-length": str(len(body)), **more}
    request = HttpRequest(method, "/", "", headers, body)
    assert (may_be_web_identity(request) and is_web_identity(request)) is is_let


@pytest.mark.parametrize(
    ("path", "is_served"),
    [
        ("/", True),
        ("/123456789012/queue_1-a", True),
        ("/123456789012/queue/x", False),
        ("/12345/queue", False),
        ("/internal/state", False),
        ("/123456789012/../internal", False),
    ],
)
def test_a_queues_own_url_is_served(path: str, is_served: bool) -> None:
    request = HttpRequest("POST", path, "", {}, b"")
    if is_served:
        _check_path(request)
        return
    with pytest.raises(ServiceError):
        _check_path(request)
