"""The proxy of a container without a network: bytes pass both ways, until the container ends."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from hostelry.fleet.launch import container_proxy
from hostelry.fleet.launch.container_proxy import NOT_ENTERED, PORT_TAKEN, serve

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
BIG = bytes(range(256)) * 8192  # 2 MiB: more than any buffer on the way


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read to the end of the input, then send everything back."""
    writer.write(await reader.read())
    await writer.drain()
    writer.close()


@asynccontextmanager
async def proxy(
    inner_port: int, sleeper: "subprocess.Popen[bytes]", key: str | None = None
) -> AsyncIterator[int]:
    """The port of a proxy to `inner_port`. It ends with `sleeper`."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    container = os.pidfd_open(sleeper.pid)
    serving = asyncio.create_task(serve(listener, container, inner_port, key))
    try:
        yield listener.getsockname()[1]
        sleeper.kill()
        sleeper.wait()
        async with asyncio.timeout(10):
            await serving
    finally:
        serving.cancel()
        os.close(container)


@asynccontextmanager
async def through(handler: Handler | None, key: str | None = None) -> AsyncIterator[int]:
    """The port of a proxy to a server with `handler`. Without a handler no server listens."""
    server = await asyncio.start_server(handler or echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if handler is None:
        server.close()
        await server.wait_closed()
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])  # noqa: ASYNC220
    try:
        async with proxy(port, sleeper, key) as outer:
            yield outer
    finally:
        sleeper.kill()
        sleeper.wait()
        server.close()
        await server.wait_closed()


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_proxy, "DRAIN_S", 0.0)


@pytest.mark.parametrize("sent", [b"hello", b"", BIG], ids=["a word", "nothing", "2 MiB"])
async def test_what_goes_in_comes_out_after_its_end(sent: bytes) -> None:
    async with through(echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == sent
        writer.close()


async def test_a_conversation_goes_on_both_ways_at_once() -> None:
    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(b"you said " + line)
        writer.close()

    async with through(answers) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for word in (b"one\n", b"two\n"):
            writer.write(word)
            assert await reader.readline() == b"you said " + word
        writer.close()


async def test_while_no_server_listens_inside_the_client_is_cut_off() -> None:
    async with through(None) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"is there anybody")
        try:
            assert await reader.read() == b""
        except ConnectionResetError as error:
            assert error.errno is not None  # noqa: PT017 - either way the connection has ended
        writer.close()


async def test_a_caller_that_leaves_is_noticed_inside() -> None:
    left = asyncio.Event()

    async def notices(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        left.set()
        writer.close()

    async with through(notices) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        writer.close()
        async with asyncio.timeout(10):
            await left.wait()


KEY = "c0ffee" * 10
PING = b"GET /ping HTTP/1.1\r\nHost: h\r\n"
SHOWN = f"X-Hostelry-Copy-Key: {KEY}\r\n".encode()


async def test_with_a_key_only_what_shows_it_is_passed_on() -> None:
    called: list[bytes] = []

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        writer.close()

    async def exchange(port: int, *sent: bytes) -> list[bytes]:
        """The first line of each answer. Asserts that no request with answer 403 is forwarded."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines = []
        for piece in sent:
            writer.write(piece)
            lines.append((await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0])
        writer.close()
        return lines

    async with through(answers, KEY) as port:
        refused = [b"HTTP/1.1 403 Forbidden"]
        assert await exchange(port, PING + b"\r\n") == refused
        assert await exchange(port, PING + SHOWN[:-3] + b"\r\n\r\n") == refused
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write_eof()
        assert await reader.read() == b"", "who says nothing hears nothing"
        writer.close()
        assert called == [], "nobody inside is called for them"
        assert await exchange(port, PING + SHOWN + b"\r\n") == [b"HTTP/1.1 200 OK"]
        assert called == [PING + b"\r\n"]
        first, second = await exchange(port, PING + SHOWN + b"\r\n", PING + b"\r\n")
        assert (first, second) == (b"HTTP/1.1 200 OK", *refused)


def program(*arguments: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "hostelry.fleet.launch.container_proxy", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_a_port_that_is_taken_and_a_container_that_is_gone_have_their_own_codes() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = program("--pid=1", f"--port={port}", "--inner-port=1")
        assert done.returncode == PORT_TAKEN
        assert f"port {port}" in done.stderr
    done = program(f"--pid={2**22 + 1}", "--port=0", "--inner-port=1")
    assert done.returncode == NOT_ENTERED
    assert "cannot be entered" in done.stderr
