"""Links from a node's loopback to control's host."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from tests.cases import case, cases
from tests.cluster_rig import identity, proxied

from hostelry.base import tls
from hostelry.base.peers import PeerRole
from hostelry.base.tls import ClusterTls
from hostelry.cluster.host_link import HostLink, LinkLimits, refusal

BODY_BYTES = 3_000_000
HEAD = b"PUT /bucket/key HTTP/1.1\r\nHost: 127.0.0.1:1\r\nAuthorization: signed\r\n\r\n"


@pytest.fixture(autouse=True)
def no_certificate_is_left() -> Iterator[None]:
    yield
    tls._Process.tls = None


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that echoes, slower than a client sends."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(10_000):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def linked(
    root: Path, controls: Sequence[str], limits: LinkLimits | None = None
) -> AsyncIterator[int]:
    """The port of a link to ``s3`` with an agent's certificate."""
    folder = identity(root / "node", PeerRole.AGENT, "i-1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = HostLink("s3", ClusterTls(folder), lambda: controls, limits)
        serving = asyncio.create_task(link.serve(listener.dup()))
        try:
            yield listener.getsockname()[1]
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def asked(port: int, request: bytes) -> bytes:
    """All that a client gets that sends `request`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    finally:
        writer.close()


def test_bytes_pass_unchanged_and_in_order(tmp_path: Path) -> None:
    sent = HEAD + bytes(range(256)) * (BODY_BYTES // 256) + bytes(9)

    async def scenario() -> None:
        async with (
            proxied(identity(tmp_path / "further"), echo, without="s3") as further,
            proxied(identity(tmp_path / "host"), echo) as host,
            linked(
                tmp_path,
                [
                    "https://control@127.0.0.1:1",
                    further.address("control"),
                    host.address("control"),
                ],
            ) as port,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert await reader.readexactly(len(sent)) == sent, "one is gone, one has none"
            writer.close()

    uvloop.run(asyncio.wait_for(scenario(), 60))


def test_the_end_of_either_side_reaches_the_other(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def until_ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline() == b"answer\n":
            writer.write(b"answered\0")
        else:
            await reader.read()
            ended.set()
        writer.close()

    async def scenario() -> None:
        async with (
            proxied(identity(tmp_path / "host"), until_ended) as host,
            linked(tmp_path, [host.address("control")]) as port,
        ):
            assert await asked(port, b"answer\n") == b"answered\0", "and no word of the proxy's"
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"wait\n")
            writer.close()
            await ended.wait()

    uvloop.run(asyncio.wait_for(scenario(), 60))


@cases(
    "role, text",
    case("a server that is another agent", PeerRole.AGENT, b"which it may not be"),
    case("a host of control without it", PeerRole.CONTROL, b"it is not there"),
    case("no host of control", None, b"no host of control is known"),
)
def test_a_request_that_reaches_nothing_is_refused_with_the_reason(
    tmp_path: Path, role: PeerRole | None, text: bytes
) -> None:
    async def scenario() -> None:
        folder = identity(tmp_path / "host", role or PeerRole.CONTROL)
        async with proxied(folder, echo, without="s3") as host:
            known = [] if role is None else [host.address("control")]
            async with linked(tmp_path, known) as port:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(HEAD + bytes(BODY_BYTES))
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
                assert text in await reader.readuntil(b"</Error>")
                writer.close()

    uvloop.run(asyncio.wait_for(scenario(), 60))


def test_connections_over_the_limit_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        limits = LinkLimits(connections=1)
        async with (
            proxied(identity(tmp_path / "host"), echo) as host,
            linked(tmp_path, [host.address("control")], limits) as port,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            second, second_writer = await asyncio.open_connection("127.0.0.1", port)
            assert b"1 connections are open" in await second.readuntil(b"</Error>")
            writer.write(b"y")
            assert await reader.readexactly(1) == b"y"
            second_writer.close()
            writer.close()

    uvloop.run(asyncio.wait_for(scenario(), 60))


def test_a_refusal_is_an_error_that_aws_clients_parse() -> None:
    head, _, body = refusal("s3", "<no & answer>").partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(body) in head
    assert b"s3 of the platform is not reached from this node: &lt;no &amp; answer&gt;" in body
