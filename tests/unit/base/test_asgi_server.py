"""The server of the platform's own processes: its end."""

import asyncio

from starlette.responses import PlainTextResponse

from hostelry.base.asgi_server import HOST, asgi_server, listening
from hostelry.base.ports import free_port


async def test_a_server_answers_until_it_is_asked_to_end() -> None:
    server, port = asgi_server(PlainTextResponse("here")), free_port()
    with listening(port) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        server.end()
        await serving
