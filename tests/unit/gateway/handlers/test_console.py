"""The passage to the console: forwarded requests, refusals, and answers."""

import asyncio
from collections.abc import Mapping

import pytest
from tests.cases import case, cases

from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.dataplane.fake import FakeReplyConnection, WrittenAnswer
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import Received
from hostelry.gateway.handlers.console import (
    MAX_BODY_BYTES,
    STREAM_TIMEOUTS,
    TIMEOUTS,
    ConsoleHandler,
)
from hostelry.http1.reply import BrokenError, ConnectError, Reply
from hostelry.http1.upstream import Timeouts, UpstreamPool


class Console(UpstreamPool):
    """A console that answers `chunks`, and breaks off after them where `breaks`."""

    def __init__(
        self, headers: Mapping[str, str], *chunks: bytes, status: int = 200, breaks: bool = False
    ) -> None:
        super().__init__()
        self.sent = b""
        self.timeouts: Timeouts | None = None
        self._answer = status, dict(headers), chunks, breaks

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        self.sent, self.timeouts = b"".join(parts), timeouts
        status, headers, chunks, breaks = self._answer
        if not status:
            raise ConnectError("refused")
        reply = Reply(FakeReplyConnection())
        reply.set_head(status, headers)
        for chunk in chunks:
            reply.add_chunk(chunk)
        if breaks:
            reply.fail(BrokenError("it was killed"))
        else:
            reply.end(True)
        return reply


def passed(console: Console, request: HttpRequest) -> tuple[Exchange, bytes]:
    handler = ConsoleHandler(pool=console, address="http://127.0.0.1:9", internal_key="internal")
    sink = WrittenAnswer()
    exchange = Exchange(sink, Received(request, True, True), b"")
    asyncio.run(handler.serve(exchange, "id"))
    return exchange, sink.written


def test_what_the_console_needs_is_passed_on_and_nothing_else() -> None:
    headers = {
        "host": "box:8787",
        "cookie": "hostelry-console=c",
        "origin": "http://box:8787",
        "x-hostelry-csrf": "t",
        "x-hostelry-key": "guess",
        "x-forwarded-host": "forged",
        "authorization": "Bearer sk",
        "connection": "upgrade",
    }
    console = Console({"content-type": "application/json"}, b"{}")
    request = HttpRequest("POST", "/console/api/sign-out", "a=b", headers, b'{"a":1}')
    passed(console, request)
    head, _, body = console.sent.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    assert first == "POST /console/api/sign-out?a=b HTTP/1.1"
    assert dict(line.split(": ") for line in lines) == {
        "Host": "127.0.0.1:9",
        "X-Hostelry-Key": "internal",
        "X-Forwarded-Host": "box:8787",
        "Content-Length": "7",
        "cookie": "hostelry-console=c",
        "origin": "http://box:8787",
        "x-hostelry-csrf": "t",
    }
    assert body == b'{"a":1}'
    assert console.timeouts == TIMEOUTS


def test_an_answer_has_the_headers_that_browsers_obey() -> None:
    headers = {"content-type": "text/html", "set-cookie": "a", "etag": "e", "x-other": "o"}
    _, written = passed(Console(headers, b"page"), HttpRequest("GET", "/console"))
    assert written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert all(it in written for it in (b"set-cookie: a", b"etag: e", b"Content-Length: 4"))
    assert b"x-other" not in written
    assert written.endswith(b"\r\n\r\npage")


def test_a_page_that_a_browser_has_is_answered_without_a_body() -> None:
    _, written = passed(Console({"etag": "e"}, status=304), HttpRequest("GET", "/console"))
    assert written.startswith(b"HTTP/1.1 304 ")
    assert b"chunked" not in written


def test_events_are_passed_on_as_they_come_and_cut_off_where_they_break() -> None:
    console = Console({"content-type": "text/event-stream"}, b"one", b"two", breaks=True)
    exchange, written = passed(console, HttpRequest("GET", "/console/live", "view=fleet"))
    assert written.endswith(b"3\r\none\r\n3\r\ntwo\r\n")
    assert (exchange.started, exchange.finished) == (True, False)
    assert console.timeouts == STREAM_TIMEOUTS


@cases(
    "console, request_, status",
    case("another method", Console({}), HttpRequest("DELETE", "/console"), 405),
    case(
        "a large body",
        Console({}),
        HttpRequest("POST", "/console/sign-in", body=b" " * (MAX_BODY_BYTES + 1)),
        413,
    ),
    case("no console", Console({}, status=0), HttpRequest("GET", "/console"), 503),
    case(
        "a page that breaks off",
        Console({"content-type": "text/html"}, b"ha", breaks=True),
        HttpRequest("GET", "/console"),
        503,
    ),
)
def test_what_is_refused(console: Console, request_: HttpRequest, status: int) -> None:
    with pytest.raises(ServiceError) as refused:
        passed(console, request_)
    assert refused.value.http_status == status


@cases(
    "method, length, status",
    case("as much as it takes", "POST", str(MAX_BODY_BYTES), None),
    case("more", "POST", str(MAX_BODY_BYTES + 1), 413),
    case("another method", "PUT", "1", 405),
)
def test_a_body_is_refused_before_it_comes_in(method: str, length: str, status: int | None) -> None:
    handler = ConsoleHandler(pool=Console({}), address="http://127.0.0.1:9", internal_key="k")
    request = HttpRequest(method, "/console/sign-in", headers={"content-length": length})
    if status is None:
        assert handler.admit(request) is False
        return
    with pytest.raises(ServiceError) as refused:
        handler.admit(request)
    assert refused.value.http_status == status
