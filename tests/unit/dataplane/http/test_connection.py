import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.cases import case, cases

from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.fake import FakeTransport
from hostelry.dataplane.http.connection import HttpConnection, ServerState
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import HttpLimits, HttpRefusedError

GET = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"
LIMITS = HttpLimits(max_body_bytes=1000)


class Rig:
    """A connection over a recorded transport, at a time that the test sets."""

    def __init__(
        self,
        handler: Callable[[Exchange], Awaitable[None]],
        limits: HttpLimits = LIMITS,
        admit: Callable[[HttpRequest], bool] = lambda _: False,
    ) -> None:
        self.now_s = 1000.0
        self.state = ServerState(
            handler=handler,
            refusal_answer=refusal_answer,
            limits=limits,
            admit=admit,
            now_s=lambda: self.now_s,
            common_head=b"Server: s\r\n",
        )
        self.transport, self.connection = self.connect()

    def connect(self) -> tuple[FakeTransport, HttpConnection]:
        """One more client."""
        transport, connection = FakeTransport(), HttpConnection(self.state)
        connection.connection_made(transport)
        return transport, connection

    async def feed(self, *pieces: bytes) -> bytes:
        """The written bytes after the pieces were received one after another."""
        self.transport.written = b""
        for piece in pieces:
            self.connection.data_received(piece)
            await settle()
        return self.transport.written

    async def pass_time(self, delta_s: float) -> bytes:
        """The written bytes after this time has passed and the limits were checked."""
        self.transport.written = b""
        self.now_s += delta_s
        self.connection.sweep(self.now_s)
        await settle()
        return self.transport.written


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def refusal_answer(refusal: HttpRefusedError) -> HttpResponse:
    return HttpResponse(refusal.status, {"X-Refused": "1"}, refusal.reason.encode())


async def echo(exchange: Exchange) -> None:
    exchange.respond(HttpResponse(200, {}, exchange.request.path.encode()))


async def hang(exchange: Exchange) -> None:
    await asyncio.Event().wait()


async def test_a_request_is_answered_and_the_connection_kept() -> None:
    rig = Rig(echo)
    assert await rig.feed(GET % 1) == (
        b"HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: 2\r\n\r\n/1"
    )
    assert (await rig.feed(GET % 2)).endswith(b"/2")
    assert not rig.transport.closed


async def test_pipelined_requests_are_answered_in_order_and_reading_waits_for_them() -> None:
    release = asyncio.Event()

    async def slow_first(exchange: Exchange) -> None:
        if exchange.request.path == "/1":
            await release.wait()
        await echo(exchange)

    rig = Rig(slow_first)
    assert await rig.feed(GET % 1, GET % 2 + GET % 3) == b""
    assert not rig.transport.reading
    release.set()
    await settle()
    order = [rig.transport.written.index(path) for path in (b"/1", b"/2", b"/3")]
    assert order == sorted(order)
    assert rig.transport.reading


async def test_a_client_that_leaves_cancels_its_request() -> None:
    cancelled = []

    async def handler(exchange: Exchange) -> None:
        try:
            await hang(exchange)
        except asyncio.CancelledError:
            cancelled.append(exchange.request.path)
            raise

    rig = Rig(handler)
    await rig.feed(GET % 7)
    rig.connection.connection_lost(None)
    await settle()
    assert cancelled == ["/7"]
    assert not rig.state.connections


async def test_a_refused_request_is_answered_and_the_rest_of_it_is_thrown_away() -> None:
    rig = Rig(echo)
    answer = await rig.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\nabc")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"Connection: close\r\n" in answer
    assert rig.transport.eof_written
    assert await rig.feed(b"x" * 900, GET % 1) == b""
    await rig.pass_time(LIMITS.linger_s - 1)
    assert not rig.transport.aborted
    await rig.pass_time(2)
    assert rig.transport.aborted


async def test_a_refusal_behind_a_request_waits_for_its_answer() -> None:
    rig = Rig(echo)
    written = await rig.feed(GET % 1 + b"NONSENSE\r\n\r\n")
    assert written.index(b"/1") < written.index(b"HTTP/1.1 400 ")


async def test_expect_continue_is_answered_before_the_body_comes() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n"
    rig = Rig(echo)
    assert await rig.feed(head % 3) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await rig.feed(b"abc")).startswith(b"HTTP/1.1 200 ")
    assert (await rig.feed(head % 2000)).startswith(b"HTTP/1.1 413 ")


@cases(
    "begun, after_s, expected",
    case("a head may take its time", b"GET / HT", 9, b""),
    case("but not more than ten seconds", b"GET / HT", 11, b"HTTP/1.1 408 "),
    case("a body may begin slowly", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999\r\n\r\nab",
        9, b""),
    case("but must reach its floor rate",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999\r\n\r\nab", 11, b"HTTP/1.1 408 "),
    case("a body above the floor rate goes on",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999\r\n\r\n" + b"a" * 998, 10.9, b""),
)  # fmt: skip
async def test_slow_senders(begun: bytes, after_s: float, expected: bytes) -> None:
    rig = Rig(echo)
    await rig.feed(begun)
    assert (await rig.pass_time(after_s))[: len(b"HTTP/1.1 408 ")] == expected


async def test_a_quick_start_does_not_pay_for_a_body_that_stands_still() -> None:
    rig = Rig(echo, HttpLimits())
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n"
    await rig.feed(head + b"a" * 500_000)
    answers = []
    for piece in (b"b", b"", b"", b"b", b"", b"", b""):
        await rig.feed(piece)
        answers.append(await rig.pass_time(4))
    assert answers[:6] == [b""] * 6
    assert answers[6].startswith(b"HTTP/1.1 408 ")


async def test_one_byte_at_a_time_does_not_extend_the_time_for_a_head() -> None:
    rig = Rig(echo)
    answers = []
    for byte in b"GET / HTTP/1":
        await rig.feed(bytes([byte]))
        answers.append(await rig.pass_time(1))
    assert answers[8] == b""
    assert answers[10].startswith(b"HTTP/1.1 408 ")


@cases(
    "served, after_s, closed",
    case("a new connection may wait a little", False, 9, False),
    case("but must ask something", False, 11, True),
    case("a kept one may idle", True, 60, False),
    case("but not for ever", True, 80, True),
)
async def test_idle_connections(served: bool, after_s: float, closed: bool) -> None:
    rig = Rig(echo)
    if served:
        await rig.feed(GET % 1)
    assert await rig.pass_time(after_s) == b""
    assert rig.transport.closed is closed


async def test_a_client_that_takes_nothing_is_cut_off_and_one_that_takes_some_is_not() -> None:
    rig = Rig(hang)
    await rig.feed(GET % 1)
    rig.transport.unsent_bytes = 5000
    for unsent_bytes in (4000, 3000, 3000):
        await rig.pass_time(40)
        assert not rig.transport.aborted
        rig.transport.unsent_bytes = unsent_bytes
    await rig.pass_time(40)
    await rig.pass_time(61)
    assert rig.transport.aborted


async def test_a_stream_waits_while_its_client_is_slow() -> None:
    sent = []

    async def stream(exchange: Exchange) -> None:
        exchange.start(200, {})
        for number in range(3):
            await exchange.send(b"%d" % number)
            sent.append(number)
        exchange.finish()

    rig = Rig(stream)
    rig.connection.pause_writing()
    await rig.feed(GET % 1)
    assert sent == []
    rig.connection.resume_writing()
    await settle()
    assert sent == [0, 1, 2]
    assert rig.transport.written.endswith(
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n0\r\n1\r\n1\r\n1\r\n2\r\n0\r\n\r\n"
    )


async def test_a_client_that_asks_on_without_reading_is_not_read_any_further() -> None:
    rig = Rig(echo)
    rig.connection.pause_writing()
    await rig.feed(GET % 1)
    assert rig.transport.reading
    assert await rig.feed(GET % 2 + GET % 3) == b""
    assert not rig.transport.reading
    rig.connection.resume_writing()
    await settle()
    assert rig.transport.written.endswith(b"/3")
    assert rig.transport.reading


async def test_an_answer_that_was_never_finished_ends_with_the_connection_cut() -> None:
    async def begin_only(exchange: Exchange) -> None:
        exchange.start(200, {})

    rig = Rig(begin_only)
    await rig.feed(GET % 1)
    assert rig.transport.aborted


async def test_a_defect_of_the_handler_cuts_the_connection_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def defective(exchange: Exchange) -> None:
        raise ZeroDivisionError

    rig = Rig(defective)
    await rig.feed(GET % 1)
    assert rig.transport.aborted
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("draining", [False, True])
async def test_a_draining_server_closes_after_the_answer(draining: bool) -> None:
    rig = Rig(echo)
    rig.state.draining = draining
    answer = await rig.feed(GET % 1)
    assert (b"Connection: close\r\n" in answer) is draining
    assert rig.transport.closed is draining


async def test_http_1_0_clients_get_streams_without_chunks() -> None:
    async def stream(exchange: Exchange) -> None:
        exchange.start(200, {})
        await exchange.send(b"abc")
        await exchange.send(b"")
        exchange.finish()

    rig = Rig(stream)
    answer = await rig.feed(b"GET / HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"Connection: close\r\n\r\nabc")
    assert rig.transport.closed


async def test_head_requests_get_the_length_but_no_body() -> None:
    answer = await Rig(echo).feed(b"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n")
    assert answer.endswith(b"Content-Length: 2\r\n\r\n")


async def test_line_breaks_in_a_header_value_cannot_end_the_header() -> None:
    async def careless(exchange: Exchange) -> None:
        exchange.respond(HttpResponse(200, {"X-A": "a\r\nX-Evil: 1\n", "X-B": "b"}))

    answer = await Rig(careless).feed(GET % 1)
    assert b"\r\nX-A: a X-Evil: 1\r\nX-B: b\r\n" in answer


POST = b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n"


def refuse(request: HttpRequest) -> bool:
    raise HttpRefusedError(403, "unknown key", request)


async def verify(exchange: Exchange) -> None:
    exchange.verified()
    await hang(exchange)


async def test_the_body_of_a_refused_head_is_not_read() -> None:
    rig = Rig(echo, HttpLimits(), refuse)
    assert (await rig.feed(POST % 1)).startswith(b"HTTP/1.1 403 ")
    assert await rig.feed(b"a" * 20_000) == b""
    assert rig.state.connection_limits.held_bytes == 0
    small = (POST % 1).replace(b"20000", b"9")
    assert await Rig(echo, HttpLimits(), refuse).feed(small) == b""
    expecting = small.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    assert (await Rig(echo, HttpLimits(), refuse).feed(expecting)).startswith(b"HTTP/1.1 403 ")


@cases(
    "handler, admit, held",
    case("until it is answered", echo, lambda _: False, [True, True, False]),
    case("until its sender is known", verify, lambda _: False, [True, True, False]),
    case("while it is verified", hang, lambda _: False, [True, True, True]),
    case("not if its head proves it", hang, lambda _: True, [False, False, False]),
)
async def test_bytes_count_until_they_are_verified(
    handler: Callable[[Exchange], Awaitable[None]],
    admit: Callable[[HttpRequest], bool],
    held: list[bool],
) -> None:
    rig = Rig(handler, HttpLimits(), admit)
    counted = []
    for piece in (POST % 1, b"a" * 15_000, b"a" * 5_000):
        await rig.feed(piece)
        counted.append(rig.state.connection_limits.held_bytes > 0)
    assert counted == held
    rig.connection.connection_lost(None)
    assert rig.state.connection_limits.held_bytes == 0


async def test_the_slowest_unverified_request_is_shed_when_too_much_is_held() -> None:
    rig = Rig(echo, HttpLimits(max_unverified_bytes=50_000, max_body_bytes=50_000))
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n"
    await rig.feed(head + b"a" * 20_000)
    rig.now_s += 5
    quick_transport, quick = rig.connect()
    quick.data_received(head + b"a" * 35_000)
    await settle()
    assert rig.transport.written.startswith(b"HTTP/1.1 503 ")
    assert b"50000 bytes" in rig.transport.written
    assert not quick_transport.written
    assert 0 < rig.state.connection_limits.held_bytes <= 50_000


async def test_a_new_connection_gets_the_slot_of_the_oldest_unverified_one() -> None:
    rig = Rig(verify, HttpLimits(max_connections=4))  # two of one address
    await rig.feed(GET % 1)
    second, _ = rig.connect()
    third, _ = rig.connect()
    assert (rig.transport.aborted, second.aborted, third.aborted) == (False, True, False)


async def test_a_new_connection_gets_503_where_all_are_verified() -> None:
    rig = Rig(verify, HttpLimits(max_connections=1))
    await rig.feed(GET % 1)
    late, _ = rig.connect()
    await settle()
    assert late.written.startswith(b"HTTP/1.1 503 ")
    assert b"1 connections" in late.written
    assert not rig.transport.aborted
