"""The status that any server answers: it counts once the answer is whole, in time and HTTP."""

import asyncio
import contextlib
from collections.abc import Iterable

import pytest

from hostelry.base.http_status import MAX_BODY_BYTES, MAX_HEAD_BYTES, http_status
from hostelry.base.ports import free_port
from hostelry.base.proc import LISTENING, tcp_sockets

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = b"x" * (2 * MAX_BODY_BYTES)
ENOUGH_S = 60.0
SHORT_S = 0.05


class Server:
    """Answers one request with `pieces`, one write each, and closes unless it `lingers`."""

    def __init__(self, pieces: Iterable[bytes], *, lingers: bool) -> None:
        self.request = b""
        self._pieces = pieces
        self._lingers = lingers
        self.closed = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.request = await reader.readuntil(b"\r\n\r\n")
            for piece in self._pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)  # the client sees some pieces apart
            if self._lingers:
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):  # the client had enough
            pass
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.closed.set()


def asked(
    *pieces: bytes,
    method: str = "GET",
    lingers: bool = False,
    host: str = "127.0.0.1",
    limit_s: float = ENOUGH_S,
) -> tuple[int | None, bytes]:
    """The status for a server that sends `pieces`, and the request that it got."""

    async def case() -> tuple[int | None, bytes]:
        server = Server(pieces, lingers=lingers)
        async with await asyncio.start_server(server.answer, "127.0.0.1", 0) as listening:
            address = f"http://{host}:{listening.sockets[0].getsockname()[1]}"
            status = await http_status(method, address, "/ping", {"X-Key": "k\xe9"}, limit_s)
            await server.closed.wait()
        return status, server.request

    return asyncio.run(case())


@pytest.mark.parametrize(
    ("pieces", "lingers", "status"),
    [
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], True, 200, id="with its length"
        ),
        pytest.param(
            [b"HTTP/1.1 2", b"00 OK\r", b"\ncontent-LENGTH:2\r\n\r", b"\no", b"k"],
            True,
            200,
            id="in pieces",
        ),
        pytest.param(
            [CHUNKED, b"2;a=b\r\nok\r\n", b"A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"],
            True,
            200,
            id="in chunks",
        ),
        pytest.param([b"HTTP/1.0 200 OK\r\n\r\nok"], False, 200, id="until the end"),
        pytest.param([b"HTTP/1.1 204 No Content\r\n\r\n"], True, 204, id="without a body"),
        pytest.param(
            [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"],
            True,
            200,
            id="announced",
        ),
        pytest.param(
            [b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"],
            True,
            503,
            id="that it is busy",
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LONG), LONG],
            True,
            200,
            id="a long body",
        ),
        pytest.param(
            [CHUNKED, b"%x\r\n" % len(LONG), LONG], True, 200, id="a long body as one chunk"
        ),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\n", LONG], True, 200, id="a long body until the end"),
    ],
)
def test_a_server_answers(pieces: list[bytes], lingers: bool, status: int) -> None:
    """A handler that lingers keeps the connection open. Its output shows that the answer ended."""
    assert asked(*pieces, lingers=lingers)[0] == status


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([], id="nothing"),
        pytest.param([b"SSH-2.0-OpenSSH_9.6\r\n\r\n"], id="another protocol"),
        pytest.param([b"HTTP/1.1 OK\r\n\r\n"], id="no status"),
        pytest.param([b"HTTP/1.1 +20 OK\r\n\r\n"], id="a status with a sign"),
        pytest.param([b"HTTP/1.1 099 Low\r\n\r\n"], id="a status that is too low"),
        pytest.param([b"HTTP/1.1 2000 High\r\n\r\n"], id="a status that is too long"),
        pytest.param([b"HTTP/2.0 200 OK\r\n\r\n"], id="another version"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Le"], id="half a head"),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n"], id="only that it will answer"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"], id="half a body"),
        pytest.param([CHUNKED, b"9\r\nok"], id="half a chunk"),
        pytest.param([CHUNKED, b"2\r\nok\r\n"], id="chunks without the last"),
        pytest.param([CHUNKED, b"-2\r\nok\r\n"], id="a chunk of a negative size"),
        pytest.param([CHUNKED, b"two\r\nok\r\n"], id="a chunk of no size"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"], id="a negative length"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n"],
            id="a length of 5000 digits",
        ),
        pytest.param([b"HTTP/1.0 200\nContent-Length: 0\n\n"], id="bare newlines"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nok"], id="one of two lengths"
        ),
        pytest.param([CHUNKED, LONG], id="a size of a chunk without end"),
        pytest.param([b"HTTP/1.1 200 " + b"K" * (2 * MAX_HEAD_BYTES)], id="a line without end"),
        pytest.param([b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * MAX_HEAD_BYTES], id="a long head"),
        pytest.param([b"HTTP/1.1 102 Wait\r\n\r\n" * MAX_HEAD_BYTES], id="no end of announcements"),
    ],
)
def test_this_is_no_answer(pieces: list[bytes]) -> None:
    assert asked(*pieces)[0] is None


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([], id="nothing"),
        pytest.param([b"HTTP/1.1 200 OK\r\n"], id="half a head"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no"], id="half a body"),
        pytest.param([CHUNKED, b"2\r\nok\r\n"], id="chunks without the last"),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\nok"], id="a body without an end"),
    ],
)
def test_what_is_held_back_beyond_the_limit_is_no_answer(pieces: list[bytes]) -> None:
    assert asked(*pieces, lingers=True, limit_s=SHORT_S)[0] is None


def test_a_refused_connection_is_no_answer() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    assert asyncio.run(http_status("GET", address, "/ping", {}, ENOUGH_S)) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_request_is_whole_and_names_its_server(host: str) -> None:
    status, request = asked(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", host=host)
    first, named, *others = request.decode("latin-1").split("\r\n")
    assert (status, first) == (200, "GET /ping HTTP/1.1")
    assert named.startswith(f"Host: {host}:")
    assert others == ["Connection: close", "X-Key: k\xe9", "", ""]


def test_an_answer_to_head_has_no_body_whatever_length_it_names() -> None:
    head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\n"
    assert asked(head, method="HEAD", lingers=True)[0] == 403


def test_the_kernel_lists_no_connection_that_both_have_closed() -> None:
    async def case() -> list[str]:
        server = Server([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], lingers=False)
        async with await asyncio.start_server(server.answer, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            before = set(tcp_sockets())  # others may have used a port of this number
            for _ in range(3):
                await http_status("GET", f"http://127.0.0.1:{port}", "/ping", {}, ENOUGH_S)
                await server.closed.wait()
            new = set(tcp_sockets()) - before
        of_port = [it for it in new if port in (it.local_port, it.remote_port)]
        return [it.state for it in of_port if it.state != LISTENING]

    assert asyncio.run(case()) == []
