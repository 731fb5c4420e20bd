"""Readiness checks against a server with scripted answers."""

import pytest
from tests.cases import case, cases
from tests.unit.home.scripted_server import scripted_server

from hostelry.aws.call import parse_call
from hostelry.aws.sigv4 import Secret, Verifier
from hostelry.base.clock import SystemClock
from hostelry.base.http import HttpRequest
from hostelry.base.ports import free_port
from hostelry.home.home import new_credentials
from hostelry.processes.jumpstart import stock_catalogues
from hostelry.processes.readiness import gateway_check, health_check, store_check

KEYS = new_credentials("111122223333", "eu-west-1")
BUCKETS = b"<?xml version='1.0'?><ListAllMyBucketsResult xmlns='x'></ListAllMyBucketsResult>"
CALLER = b"<GetCallerIdentityResponse><GetCallerIdentityResult></GetCallerIdentityResult>"
REFUSED = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"


def verify(request: HttpRequest) -> str:
    """The account that signed the request. Raises ServiceError for a wrong signature."""
    secret = Secret(secret_access_key=KEYS.secret_access_key, account_id=KEYS.account_id)
    return (
        Verifier({KEYS.access_key_id: secret}.get).verify(request, SystemClock().now()).account_id
    )


@cases(
    "status, body, reason",
    case("a list of buckets", 200, BUCKETS, None),
    case("it refuses", 403, REFUSED, f"403 {REFUSED.decode()}"),
    case("no XML yet", 404, b"404 page\nnot found", "404 404 page not found"),
    case("another program's success", 200, b"starting", "200 starting"),
    case("nothing but a status", 503, b"", "503"),
)
def test_only_a_list_of_buckets_shows_that_the_store_is_ready(
    status: int, body: bytes, reason: str | None
) -> None:
    with scripted_server((status, body)) as (url, seen):
        assert store_check(url, KEYS)() == reason
    assert verify(seen[0]) == KEYS.account_id


@cases(
    "body, is_ready",
    case("the caller's identity", CALLER, True),
    case("an empty success", b"", False),
)
def test_the_gateway_is_ready_once_it_names_the_caller(body: bytes, *, is_ready: bool) -> None:
    with scripted_server((200, body)) as (url, seen):
        assert (gateway_check(url, KEYS)() is None) == is_ready
    assert verify(seen[0]) == KEYS.account_id
    assert parse_call(seen[0], "id").operation == "GetCallerIdentity"


def test_an_unhealthy_gateway_gives_its_reason() -> None:
    with scripted_server((503, b"no routes yet"), (200, b"")) as (url, _):
        check = health_check(url)
        assert (check(), check()) == ("503 no routes yet", None)


def test_a_refused_connection_is_the_reason() -> None:
    assert "refused" in str(store_check(f"http://127.0.0.1:{free_port()}", KEYS)())


def test_catalogues_are_written_once_with_their_bucket() -> None:
    absent, done = (404, b""), (200, b"")
    with scripted_server(absent, absent, absent, done) as (url, seen):
        stock_catalogues(url, KEYS)
        calls = [f"{it.method} {it.path.rpartition('/')[2]}" for it in seen]
    bucket, files = "jumpstart-cache-prod-eu-west-1", [it.split()[1] for it in calls[:2]]
    assert calls[2:] == [f"HEAD {bucket}", f"PUT {bucket}", *(f"PUT {it}" for it in files)]
    assert b"<LocationConstraint>eu-west-1<" in seen[3].body
    assert all(verify(it) == KEYS.account_id for it in seen)


def test_catalogues_that_are_there_stay() -> None:
    with scripted_server((200, b"")) as (url, seen):
        stock_catalogues(url, KEYS)
    assert [it.method for it in seen] == ["HEAD", "HEAD"]


def test_a_store_that_refuses_the_catalogues_is_reported_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with scripted_server((403, REFUSED)) as (url, _):
        stock_catalogues(url, KEYS)
    assert "cannot be written" in caplog.text
