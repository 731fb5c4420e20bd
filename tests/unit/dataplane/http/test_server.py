"""The HTTP server with a certificate for clients."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import uvloop
from tests.https_rig import HostAuthority

from hostelry.base.clock import SystemClock
from hostelry.base.http import HttpResponse
from hostelry.base.https import ServerCertificate
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import HttpLimits
from hostelry.dataplane.http.server import HttpServer
from hostelry.home.ports import bind

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG_S = 100.0  # beyond the limit of a case


async def answer(exchange: Exchange) -> None:
    exchange.respond(HttpResponse(200, {}, b"answered"))


@asynccontextmanager
async def served(root: Path) -> AsyncIterator[tuple[HttpServer, int, ssl.SSLContext]]:
    """A server with a certificate, its port, and the authority that a client trusts."""
    authority = HostAuthority(root)
    held = ServerCertificate(*authority.pair("host", "localhost"))
    limits = HttpLimits(write_stall_s=LONG_S)
    server = HttpServer(answer, lambda _: HttpResponse(400, {}, b""), limits, SystemClock())
    listening = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    await server.start(listening, held)
    yield server, port, ssl.create_default_context(cafile=str(authority.ca))


async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(REQUEST)
    await reader.readuntil(b"\r\n\r\n")
    return await reader.readexactly(len(b"answered"))


def test_tls_and_plain_clients_of_this_machine_are_answered(tmp_path: Path) -> None:
    async def case() -> None:
        async with served(tmp_path) as (server, port, trusting):
            for context, name in ((trusting, "localhost"), (None, None)):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=context, server_hostname=name
                )
                assert await asked(reader, writer) == b"answered"
                assert await asked(reader, writer) == b"answered", "the connection is kept"
                writer.close()
            await server.stop(LONG_S)

    uvloop.run(asyncio.wait_for(case(), 60))


def test_a_server_that_stops_waits_for_no_idle_client(tmp_path: Path) -> None:
    async def case() -> None:
        async with served(tmp_path) as (server, port, trusting):
            silent, silent_writer = await asyncio.open_connection("127.0.0.1", port)
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=trusting, server_hostname="localhost"
            )
            assert await asked(reader, writer) == b"answered"
            # A pool looks at its connections when it needs one.
            cast(asyncio.Transport, writer.transport).pause_reading()
            await server.stop(LONG_S)
            assert await silent.read() == b""
            writer.close()
            silent_writer.close()

    uvloop.run(asyncio.wait_for(case(), 60))
