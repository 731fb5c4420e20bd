"""The server of the platform's own processes: its end."""

import asyncio

from starlette.responses import PlainTextResponse

from hostelry.base.clock import monotonic_s
from hostelry.base.ports import free_port
from hostelry.server.asgi_server import DATE_EVERY_S, HOST, asgi_server, listening


def test_a_server_ends_when_it_is_asked_to_and_not_at_its_next_look() -> None:
    async def serve() -> float:
        server, port = asgi_server(PlainTextResponse("here")), free_port()
        with listening(port) as listener:
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 200")
            assert b"date: " in answer.lower()
            asked_at = monotonic_s()
            server.end()
            await serving
            return monotonic_s() - asked_at

    assert asyncio.run(serve()) < DATE_EVERY_S
