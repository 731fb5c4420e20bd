"""Requests of jobs to copies: answers that are passed on in pieces."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.recommendations.jobs import SCOPE

from hostelry.base.clock import SystemClock
from hostelry.dataplane.metering.meter import Meter
from hostelry.domain.load import LoadKey
from hostelry.domain.routes import CopyRoute
from hostelry.http1.reply import BrokenError
from hostelry.http1.upstream import UpstreamPool
from hostelry.jobs.copy_requests import CopyRequests

PIECE = bytes(1024 * 1024)
KEY = LoadKey(scope=SCOPE, endpoint_name="transform-job/nightly", variant_name="all")


@asynccontextmanager
async def asked(
    promised_bytes: int, num_pieces: int
) -> AsyncIterator[tuple[CopyRequests, CopyRoute]]:
    """Requests to a server whose answers have this length, of which it sends some pieces."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {promised_bytes}\r\n\r\n".encode())
            for _ in range(num_pieces):
                writer.write(PIECE)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server, pool = await asyncio.start_server(serve, "127.0.0.1"), UpstreamPool()
    port = server.sockets[0].getsockname()[1]
    requests = CopyRequests(KEY, None, 10.0, pool, Meter(SystemClock().now))
    try:
        yield requests, CopyRoute(id="c", address=f"http://127.0.0.1:{port}", key=None)
    finally:
        pool.close()
        server.close()


def test_a_large_answer_is_passed_on_in_pieces() -> None:
    async def main() -> tuple[int, list[int]]:
        async with asked(32 * len(PIECE), 32) as (requests, copy):
            sizes: list[int] = []
            return await requests.stream(copy, b"", None, lambda it: sizes.append(len(it))), sizes

    status, sizes = asyncio.run(main())
    assert (status, sum(sizes)) == (200, 32 * len(PIECE))
    assert max(sizes) <= len(PIECE)


def test_an_answer_that_breaks_off_raises() -> None:
    async def main() -> None:
        async with asked(32 * len(PIECE), 1) as (requests, copy):
            await requests.stream(copy, b"", None, lambda _: None)

    with pytest.raises(BrokenError):
        asyncio.run(main())
