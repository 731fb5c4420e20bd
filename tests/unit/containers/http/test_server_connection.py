"""Connections to a server: reused where that is safe, and every broken answer is an error."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import pytest
from tests.cases import case, cases

from hostelry.containers.http.server_connection import (
    MAX_HEAD_BYTES,
    ServerLostError,
    ServerPool,
)

HEAD = b"POST / HTTP/1.1\r\n\r\n"
MIB = 1 << 20


def answer(body: bytes, length: int | None = None, more: str = "") -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n{more}\r\n".encode() + body


def run(answers: Sequence[bytes], asking: Callable[[ServerPool], Awaitable[None]]) -> list[int]:
    """Ask a gateway that has these answers, in turn; the connection of each request by number.

    A gateway out of answers closes its connections.
    """
    left = list(answers)
    asked: list[int] = []
    served: list[asyncio.Future[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.append(task)
        number = len(served)
        with suppress(ConnectionError):
            while left and await reader.read(1024):
                asked.append(number)
                writer.write(left.pop(0))
            writer.close()
            await writer.wait_closed()

    async def scenario() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        pool = ServerPool(
            lambda made: asyncio.get_running_loop().create_connection(made, host, port),
            "the gateway",
        )
        async with server, asyncio.timeout(20):
            await asking(pool)
            pool.close()
            await asyncio.gather(*served)

    asyncio.run(scenario())
    return asked


async def body_from(pool: ServerPool) -> bytes:
    found = await pool.send(HEAD, b"")
    try:
        return await found.body(16 * MIB)
    finally:
        found.close()


def test_a_connection_is_reused_after_a_whole_answer() -> None:
    async def asking(pool: ServerPool) -> None:
        assert [await body_from(pool) for _ in range(3)] == [b"a", b"b", b"c"]

    assert run([answer(b"a"), answer(b"b"), answer(b"c"), b""], asking) == [1, 1, 1]


def test_an_answer_that_was_closed_unread_is_not_the_next_ones() -> None:
    async def asking(pool: ServerPool) -> None:
        (await pool.send(HEAD, b"")).close()
        assert await body_from(pool) == b"second"

    run([answer(b"first"), answer(b"second"), b""], asking)


def test_a_connection_that_closes_after_its_answer_is_not_reused() -> None:
    async def asking(pool: ServerPool) -> None:
        assert await body_from(pool) == b"a"
        assert await body_from(pool) == b"b"

    asked = run([answer(b"a", more="Connection: close\r\n"), answer(b"b"), b""], asking)
    assert asked == [1, 2]


def test_a_body_that_is_read_slowly_comes_whole() -> None:
    body = bytes(range(256)) * (MIB // 64)

    async def asking(pool: ServerPool) -> None:
        found = await pool.send(HEAD, b"")
        read = bytearray()
        async for piece in found.pieces():
            read += piece
            await asyncio.sleep(0)
        found.close()
        assert bytes(read) == body

    run([answer(body), b""], asking)


@cases(
    "sent, reason",
    case("no answer", b"", "closed the connection before"),
    case("half a head", b"HTTP/1.1 200", "closed the connection before"),
    case("half a body", answer(b"ab", 3), "closed the connection before"),
    case("another protocol", b"SSH-2.0\r\n", "is no HTTP"),
    case("a head without end", b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES * 2,
        "head has more than"),
    case("too large a body", answer(b"x" * 17 * MIB), "more than 16777216 bytes"),
)  # fmt: skip
def test_a_broken_answer_is_an_error(sent: bytes, reason: str) -> None:
    async def asking(pool: ServerPool) -> None:
        with pytest.raises(ServerLostError, match=reason):
            await body_from(pool)

    run([sent], asking)


def test_a_second_answer_to_one_request_ends_the_connection() -> None:
    async def asking(pool: ServerPool) -> None:
        assert await body_from(pool) == b"a"
        assert await body_from(pool) == b"b"

    assert run([answer(b"a") + answer(b"evil"), answer(b"b"), b""], asking) == [1, 2]
