import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.base.http import HttpRequest
from hostelry.dataplane.fake import FakeTransport
from hostelry.http1.calls import call
from hostelry.http1.reply import (
    BrokenError,
    ConnectError,
    DeadlineError,
    Reply,
    ReplyPhase,
    TooLargeError,
    UpstreamError,
)
from hostelry.http1.silent_hosts import never_read
from hostelry.http1.upstream import Timeouts, UpstreamConnection, UpstreamPool

ADDRESS = "http://127.0.0.1:1"
LONG = Timeouts(total_s=60)
REQUEST = (b"POST / HTTP/1.1\r\n\r\n", b"body")
CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nX-One: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: t\r\n\r\n"
)


class Rig:
    """A connection to a copy over a recorded transport, with a request on the line."""

    def __init__(self, timeouts: Timeouts = LONG, pool: UpstreamPool | None = None) -> None:
        self.pool = pool or UpstreamPool()
        self.transport = FakeTransport()
        self.connection = UpstreamConnection(self.pool, ADDRESS)
        self.connection.connection_made(self.transport)
        self.reply = self.connection.send(REQUEST, timeouts)


async def drained(reply: Reply) -> bytes:
    """The body, read chunk by chunk."""
    pieces = []
    while (chunk := await reply.next_chunk()) is not None:
        pieces.append(chunk)
    return b"".join(pieces)


@pytest.mark.parametrize("cut", range(1, len(CHUNKED)))
async def test_an_answer_is_the_same_however_its_bytes_are_cut(cut: int) -> None:
    rig = Rig()
    assert rig.transport.written == b"".join(REQUEST)
    rig.connection.data_received(CHUNKED[:cut])
    rig.connection.data_received(CHUNKED[cut:])
    await rig.reply.head()
    assert (rig.reply.status, rig.reply.headers) == (
        200,
        {"x-one": "a", "transfer-encoding": "chunked"},
    )
    assert await drained(rig.reply) == b"abcde"
    rig.reply.close()
    assert not rig.transport.closed


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


@cases(
    "received, loss, body",
    case("a whole answer", OK + b"hello", None, b"hello"),
    case("an answer without a body", b"HTTP/1.1 204 No Content\r\n\r\n", None, b""),
    case("ended by the close", b"HTTP/1.1 200 OK\r\n\r\nhello", "eof", b"hello"),
    case("not by a reset", b"HTTP/1.1 200 OK\r\n\r\nhel", "reset", None),
    case("closed without an answer", b"", "eof", None),
    case("closed in the head", b"HTTP/1.1 200 OK\r\nContent-", "eof", None),
    case("closed before the stated length", OK + b"hel", "eof", None),
    case("closed before the last chunk", CHUNKED[:-2], "eof", None),
    case("no HTTP at all", b"Segmentation fault\n", None, None),
    case("a header line without an end", b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000, None, None),
    case("an endless head", b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000 + b"\r\n\r\n", None, None),
)  # fmt: skip
async def test_how_answers_end(received: bytes, loss: str | None, body: bytes | None) -> None:
    rig = Rig()
    rig.connection.data_received(received)
    if loss is not None:
        rig.connection.connection_lost(ConnectionResetError() if loss == "reset" else None)
    if body is None:
        with pytest.raises(BrokenError):
            await rig.reply.body(100)
    else:
        assert await rig.reply.body(100) == body
    rig.reply.close()


@cases(
    "received, kept",
    case("a whole answer leaves the connection usable", OK + b"hello", True),
    case("a second answer does not", OK + b"hello" + OK + b"evil!", False),
    case("half an answer does not", OK + b"hel", False),
    case("nor does none", b"", False),
    case(
        "nor one that says so",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        False,
    ),
)
async def test_whether_a_connection_is_kept(received: bytes, kept: bool) -> None:
    rig = Rig()
    rig.connection.data_received(received)
    rig.reply.close()
    rig.reply.close()
    assert rig.transport.aborted is not kept


async def test_a_second_answer_to_one_request_is_not_read() -> None:
    rig = Rig()
    rig.connection.data_received(OK + b"hello" + b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
    assert (await rig.reply.body(100), rig.reply.status) == (b"hello", 200)
    rig.reply.close()


async def test_a_call_over_a_unix_socket(tmp_path: Path) -> None:
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readuntil(b"\r\n\r\n") == (
            b"PUT /a?b=c HTTP/1.1\r\nHost: localhost\r\nX: y\r\nContent-Length: 4\r\n\r\n"
        )
        writer.write(OK + await reader.readexactly(4) + b"!")
        await reader.read()
        writer.close()
        await writer.wait_closed()
        served.set()

    path, pool = str(tmp_path / "socket"), UpstreamPool()
    async with await asyncio.start_unix_server(serve, path), asyncio.timeout(20):
        request = HttpRequest("PUT", "/a", "b=c", {"X": "y"}, b"body")
        answer = await call(pool, f"unix:{path}", request, LONG, 100)
        assert (answer.status, answer.body) == (200, b"body!")
        with pytest.raises(ConnectError):
            await call(pool, f"unix:{path}.other", request, LONG, 100)
        pool.close()
        await served.wait()


@cases(
    "received, lost, num_calls, chunks",
    case("whole", OK + b"hello", False, 1, [b"hello"]),
    case("not whole yet", OK + b"hel", False, 0, [b"hel"]),
    case("broken off", OK + b"hel", True, 1, [b"hel"]),
    case("none", b"", True, 1, []),
    case(
        "more than is kept of it",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n" + b"x" * 300_000,
        False,
        1,
        [b"x" * 300_000],
    ),
)
async def test_what_a_listener_is_called_for(
    received: bytes, lost: bool, num_calls: int, chunks: list[bytes]
) -> None:
    rig, calls = Rig(), list[ReplyPhase]()
    rig.reply.listen(lambda: calls.append(rig.reply.phase))
    rig.connection.data_received(received)
    if lost:
        rig.connection.connection_lost(None)
    assert calls == [], "not while the bytes are taken in"
    await asyncio.sleep(0)
    assert len(calls) == num_calls
    assert b"".join(rig.reply.take_chunks()) == b"".join(chunks)
    assert (rig.reply.take_chunks(), rig.reply.num_buffered) == ([], 0)


async def test_a_request_is_sent_at_once_where_a_connection_is_kept() -> None:
    rig = Rig()
    assert rig.pool.send_now(ADDRESS, REQUEST, LONG) is None, "its connection is in use"
    rig.connection.data_received(OK + b"hello")
    rig.reply.close()
    reply = rig.pool.send_now(ADDRESS, REQUEST, LONG)
    assert reply is not None
    assert rig.transport.written == b"".join(REQUEST) * 2
    assert not reply.may_repeat
    reply.close()
    rig.pool.close()


async def test_an_idle_connection_is_cut() -> None:
    """Soon after a copy has left the routes, only its requests under way have connections."""
    rig = Rig(pool=UpstreamPool(max_idle_s=0.01))
    rig.connection.data_received(OK + b"hello")
    await rig.reply.head()
    rig.reply.close()
    assert not rig.transport.closed
    async with asyncio.timeout(5):
        while not rig.transport.closed:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.005)


async def test_unsolicited_bytes_end_an_idle_connection() -> None:
    rig = Rig()
    rig.connection.data_received(OK + b"hello")
    rig.reply.close()
    rig.connection.data_received(b"HTTP/1.1 200 OK\r\n")
    assert rig.transport.aborted


async def test_a_whole_answer_above_the_limit_is_an_error() -> None:
    rig = Rig()
    rig.reply.expect_whole(4)
    rig.connection.data_received(OK + b"hello")
    with pytest.raises(TooLargeError):
        await rig.reply.body(4)


async def test_reading_pauses_while_the_chunks_are_not_taken() -> None:
    rig = Rig()
    big = b"a" * 300_000
    rig.connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n" + big)
    assert not rig.transport.reading
    assert await rig.reply.next_chunk() == big
    waiting = asyncio.ensure_future(rig.reply.next_chunk())
    await asyncio.sleep(0)
    assert rig.transport.reading
    rig.connection.data_received(big)
    assert await waiting == big
    assert await rig.reply.next_chunk() is None


class Receiver:
    """Keeps pieces. It has no room after the piece ``full``, and fails at ``bad``."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.has_room = asyncio.Event()
        self.has_room.set()

    def take(self, chunk: bytes) -> bool:
        if chunk == b"bad":
            raise ValueError("a defect")
        self.taken.append(chunk)
        if chunk == b"full":
            self.has_room.clear()
        return not self.has_room.is_set()

    async def room(self) -> None:
        await self.has_room.wait()


async def test_pieces_are_passed_on_as_they_arrive_until_the_receiver_is_full() -> None:
    rig, receiver = Rig(), Receiver()
    rig.connection.data_received(OK.replace(b"5", b"400014") + b"early")
    passing = asyncio.ensure_future(rig.reply.pass_on(receiver.take, receiver.room))
    await asyncio.sleep(0)
    rig.connection.data_received(b"late.")
    assert receiver.taken == [b"early", b"late."], "no task ran"
    rig.connection.data_received(b"full")
    rig.connection.data_received(b"a" * 400_000)
    await asyncio.sleep(0)
    assert receiver.taken[2:] == [b"full"]
    assert not rig.transport.reading
    receiver.has_room.set()
    await passing
    assert receiver.taken[3:] == [b"a" * 400_000]


async def test_a_failing_receiver_and_a_broken_answer_end_the_passing_on() -> None:
    for broken, error in ((False, ValueError), (True, BrokenError)):
        rig, receiver = Rig(), Receiver()
        rig.connection.data_received(OK)
        passing = asyncio.ensure_future(rig.reply.pass_on(receiver.take, receiver.room))
        await asyncio.sleep(0)
        if broken:
            rig.connection.connection_lost(None)
        else:
            rig.connection.data_received(b"bad")
        with pytest.raises(error):
            await passing


async def test_a_whole_body_is_read_although_reading_had_paused_before() -> None:
    rig = Rig()
    rig.connection.data_received(OK.replace(b"5", b"300005") + b"a" * 300_000)
    assert not rig.transport.reading
    waiting = asyncio.ensure_future(rig.reply.body(400_000))
    await asyncio.sleep(0)
    assert rig.transport.reading
    rig.connection.data_received(b"hello")
    assert await waiting == b"a" * 300_000 + b"hello"


@cases(
    "timeouts, received",
    case("no answer in time", Timeouts(total_s=0), b""),
    case("half an answer in time", Timeouts(total_s=0), OK),
    case("no first byte in time", Timeouts(total_s=60, first_byte_s=0), b""),
)
async def test_deadlines(timeouts: Timeouts, received: bytes) -> None:
    rig = Rig(timeouts)
    rig.connection.data_received(received)
    with pytest.raises(DeadlineError):
        await rig.reply.body(100)
    assert rig.transport.aborted, "however long its reader takes to close it"
    rig.reply.close()


async def test_the_limit_for_the_first_byte_ends_with_it() -> None:
    rig = Rig(Timeouts(total_s=60, first_byte_s=0))
    rig.connection.data_received(OK)
    await asyncio.sleep(0)
    assert rig.reply.phase is ReplyPhase.HEAD
    rig.connection.data_received(b"hello")
    assert await rig.reply.body(100) == b"hello"


def second_request(rig: Rig) -> Reply:
    rig.connection.data_received(OK + b"hello")
    rig.reply.close()
    return rig.connection.send(REQUEST, LONG)


def first_request(rig: Rig) -> Reply:
    return rig.reply


def question(rig: Rig) -> Reply:
    second_request(rig)
    return rig.connection.send((b"GET /internal/health HTTP/1.1\r\n\r\n", b""), LONG)


def answered_a_little(rig: Rig) -> Reply:
    reply = second_request(rig)
    rig.connection.data_received(b"H")
    return reply


@cases(
    "loss, acked_bytes, proven",
    case("it closed before the first byte", None, 100, True),
    case("and what came then was thrown back", BrokenPipeError(), 100, True),
    case("it had a byte", None, 101, False),
    case("it had the request", BrokenPipeError(), 150, False),
    case("a reset by who had the request", ConnectionResetError(), 150, False),
    case("a reset, which acknowledges nothing", ConnectionResetError(), 100, False),
    case("the kernel does not tell", None, None, False),
)
def test_what_proves_that_a_request_was_never_read(
    loss: Exception | None, acked_bytes: int | None, proven: bool
) -> None:
    assert never_read(loss, acked_bytes, sent_before_bytes=100) is proven


@cases(
    "request_on_the_line, loss, repeated",
    case("not a fresh connection", first_request, ConnectionResetError(), False),
    case("not after a reset", second_request, ConnectionResetError(), False),
    case("not what the kernel does not vouch for", second_request, None, False),
    case("but what changes nothing twice", question, ConnectionResetError(), True),
    case("nor one that answered", answered_a_little, ConnectionResetError(), False),
)
async def test_what_may_be_sent_again(
    request_on_the_line: Callable[[Rig], Reply], loss: Exception | None, repeated: bool
) -> None:
    rig = Rig()
    reply = request_on_the_line(rig)
    rig.connection.connection_lost(loss)
    with pytest.raises(UpstreamError):
        await reply.head()
    assert rig.connection.may_repeat is repeated


@given(st.lists(st.tuples(st.integers(0, len(CHUNKED) - 1), st.binary(max_size=3)), max_size=4))
def test_mutated_answers_end_whole_or_broken_and_nothing_else(
    edits: list[tuple[int, bytes]],
) -> None:
    mutated = bytearray(CHUNKED)
    for at, piece in edits:
        mutated[at : at + 1] = piece

    async def scenario() -> None:
        rig = Rig()
        for at in range(0, len(mutated), 37):
            if rig.connection.usable:
                rig.connection.data_received(bytes(mutated[at : at + 37]))
        rig.connection.connection_lost(None)
        with contextlib.suppress(BrokenError):
            await rig.reply.body(10_000)
        assert rig.reply.phase in (ReplyPhase.WHOLE, ReplyPhase.FAILED)
        rig.reply.close()

    asyncio.run(scenario())
