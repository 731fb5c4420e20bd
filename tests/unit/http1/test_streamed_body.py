import asyncio
from collections.abc import AsyncGenerator

import pytest
from tests.cases import case, cases

from hostelry.dataplane.fake import FakeTransport
from hostelry.http1.reply import BrokenError, ReplyPhase
from hostelry.http1.streamed_body import BodyBrokenError, StreamedBody
from hostelry.http1.upstream import Timeouts, UpstreamConnection, UpstreamPool

LONG = Timeouts(total_s=60)
HEAD = b"POST / HTTP/1.1\r\nContent-Length: 6\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Source:
    """Pieces that a test provides singly."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = False

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            while (piece := await self.pieces.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.closed = True

    def give(self, *pieces: bytes | Exception | None) -> None:
        for piece in pieces:
            self.pieces.put_nowait(piece)


class StreamRig:
    """A connection to a copy over a recorded transport, with a streamed request on the line."""

    def __init__(self, length_bytes: int = 6) -> None:
        self.source = Source()
        self.transport = FakeTransport()
        self.connection = UpstreamConnection(UpstreamPool(), "http://127.0.0.1:1")
        self.connection.connection_made(self.transport)
        body = StreamedBody(self.source.chunks(), length_bytes)
        self.reply = self.connection.stream(HEAD, body, LONG)

    @property
    def sent(self) -> bytes:
        return self.transport.written.removeprefix(HEAD)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_body_is_written_as_it_comes_and_its_connection_is_kept() -> None:
    rig = StreamRig()
    rig.source.give(b"abc")
    await settle()
    assert rig.sent == b"abc"
    rig.source.give(b"def", None)
    await settle()
    rig.connection.data_received(OK)
    assert await rig.reply.body(10) == b"ok"
    rig.reply.close()
    assert (rig.sent, rig.transport.aborted) == (b"abcdef", False)


async def test_nothing_is_written_while_the_transport_is_full() -> None:
    rig = StreamRig()
    rig.connection.pause_writing()
    rig.source.give(b"abc", b"def", None)
    await settle()
    assert rig.sent == b""
    rig.connection.resume_writing()
    await settle()
    assert rig.sent == b"abcdef"
    rig.reply.close()


@cases(
    "pieces, reason",
    case("the source fails", (b"ab", OSError("disk")), "broke off: disk"),
    case("the source ends early", (b"ab", None), "ended 4 bytes before"),
    case("the source has too much", (b"abcd", b"efgh"), "has more than the 6"),
)
async def test_a_body_that_breaks_cuts_the_connection(
    pieces: tuple[bytes | Exception | None, ...], reason: str
) -> None:
    rig = StreamRig()
    rig.source.give(*pieces)
    await settle()
    with pytest.raises(BodyBrokenError, match=reason):
        await rig.reply.head()
    rig.reply.close()
    assert rig.transport.aborted
    assert len(rig.sent) < 6
    assert rig.source.closed


async def test_an_answer_before_the_bodys_end_is_taken_and_ends_the_connection() -> None:
    rig = StreamRig()
    rig.source.give(b"abc")
    await settle()
    rig.connection.data_received(OK)
    assert await rig.reply.body(10) == b"ok"
    assert not rig.reply.reusable
    rig.reply.close()
    await settle()
    assert (rig.transport.aborted, rig.source.closed) == (True, True)


async def test_a_copy_that_dies_ends_the_source() -> None:
    rig = StreamRig()
    rig.source.give(b"abc")
    await settle()
    rig.connection.connection_lost(ConnectionResetError())
    await settle()
    with pytest.raises(BrokenError):
        await rig.reply.head()
    assert (rig.reply.phase, rig.source.closed) == (ReplyPhase.FAILED, True)
    rig.reply.close()
