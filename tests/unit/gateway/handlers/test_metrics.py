"""``GET /metrics``: the clients that may read it, and the answer while control is away."""

import asyncio

import pytest
from tests.cases import case, cases

from hostelry.aws.sigv4 import Verifier
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.dataplane.fake import FakeUpstream, WrittenAnswer
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import Received
from hostelry.domain.scope import Scope
from hostelry.gateway.handlers.callers import Callers
from hostelry.gateway.handlers.metrics import MetricsHandler
from hostelry.http1.reply import ConnectError
from hostelry.principals.source import no_principals

CONTROL = "http://control:1"


def asked(
    upstream: FakeUpstream,
    *,
    method: str = "GET",
    key: str | None = "sk-1",
    allow_unsigned: bool = False,
    path: str = "/metrics",
) -> bytes:
    """The bytes of the answer. Raises the handler's errors."""
    owner = Scope("111122223333", "us-west-2")
    callers = Callers(
        Verifier(lambda _: None),
        owner,
        "sk-1",
        allow_unsigned,
        lambda: 0.0,
        no_principals(owner.account),
    )
    room = MetricsHandler(callers, upstream, CONTROL, "internal")
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    sink = WrittenAnswer()
    exchange = Exchange(
        sink, Received(HttpRequest(method, path, "endpoint=e", headers), True, True), b""
    )
    asyncio.run(room.serve(exchange, "rid"))
    return sink.written


@cases(
    "key, allow_unsigned",
    case("with the key", "sk-1", False),
    case("without, at a door without authentication", None, True),
)
def test_the_page_is_the_one_of_control(key: str | None, allow_unsigned: bool) -> None:
    assert asked(FakeUpstream(), key=key, allow_unsigned=allow_unsigned).endswith(b"\r\n\r\nok")


@cases(
    "key, method, upstream, status",
    case("no key", None, "GET", FakeUpstream(), 401),
    case("another key", "sk-2", "GET", FakeUpstream(), 401),
    case("another method", "sk-1", "POST", FakeUpstream(), 405),
    case("control is away", "sk-1", "GET", FakeUpstream({CONTROL: ConnectError("no")}), 503),
)
def test_what_cannot_be_answered_has_an_error(
    key: str | None, method: str, upstream: FakeUpstream, status: int
) -> None:
    for path in ("/metrics", "/metrics/copies"):
        with pytest.raises(ServiceError) as failure:
            asked(upstream, method=method, key=key, path=path)
        assert failure.value.http_status == status
