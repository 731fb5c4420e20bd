"""The proxy of a program's HTTPS: which hosts go where."""

import asyncio
import contextlib
import gc
import socket
import struct

import pytest
from tests.cases import case, cases

from hostelry.cli.program.proxy import (
    UNREACHABLE,
    Proxy,
    UsersProxy,
    basic_credentials,
    connect_authority,
    through,
    users_proxy,
)

PROOF = b"Proxy-Authorization: " + basic_credentials("hostelry", "s") + b"\r\n"


@pytest.mark.parametrize(
    ("head", "authority"),
    [
        (b"CONNECT pypi.org:443 HTTP/1.1\r\n\r\n", ("pypi.org", 443)),
        (b"CONNECT [::1]:8443 HTTP/1.1\r\n\r\n", ("::1", 8443)),
        (b"GET http://pypi.org/ HTTP/1.1\r\n\r\n", None),
        (b"CONNECT pypi.org HTTP/1.1\r\n\r\n", None),
        (b"CONNECT pypi.org:https HTTP/1.1\r\n\r\n", None),
        (b"\r\n\r\n", None),
    ],
)
def test_connect_names_host_and_port(head: bytes, authority: tuple[str, int] | None) -> None:
    assert connect_authority(head) == authority


@cases(
    "environment, host, proxy",
    case("no proxy", {}, "pypi.org", ""),
    case("lower case", {"https_proxy": "http://p:1"}, "pypi.org", "http://p:1"),
    case("upper case", {"HTTPS_PROXY": "http://p:1"}, "pypi.org", "http://p:1"),
    case("a domain", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a, .pypi.org"}, "x.pypi.org", ""),
    case(
        "the end of another name",
        {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "pi.org"},
        "pypi.org",
        "http://p:1",
    ),
    case("all", {"HTTPS_PROXY": "http://p:1", "no_proxy": "*"}, "pypi.org", ""),
    case("all, after a name", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a, *"}, "pypi.org", ""),
)
def test_the_users_own_proxy_is_minded(environment: dict[str, str], host: str, proxy: str) -> None:
    assert users_proxy(environment).for_host(host) == proxy


@pytest.mark.parametrize("through_users_proxy", [False, True])
def test_another_host_is_tunnelled(through_users_proxy: bool) -> None:
    """The far end is a server of this test. The user's proxy is a second Proxy."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())
        writer.close()
        await writer.wait_closed()

    async def talked() -> tuple[bytes, bytes]:
        far = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = far.sockets[0].getsockname()[1]
        users = await asyncio.start_server(Proxy(1, UsersProxy(), "s").serve, "127.0.0.1", 0)
        url = f"http://hostelry:s@127.0.0.1:{users.sockets[0].getsockname()[1]}"
        own = Proxy(1, UsersProxy(url=url if through_users_proxy else ""), "s")
        near = await asyncio.start_server(own.serve, "127.0.0.1", 0)
        async with far, users, near:
            reader, writer = await asyncio.open_connection(*near.sockets[0].getsockname())
            writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n".encode() + PROOF + b"\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"hello")
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return head, answer

    head, answer = asyncio.run(talked())
    assert b" 200 " in head
    assert answer == b"hello"


async def answered(head: bytes, target: bytes = b"sts.us-east-1.amazonaws.com:443") -> bytes:
    """The proxy's answer to a request. The server for AWS's hosts is away."""
    server = await asyncio.start_server(Proxy(1, UsersProxy(), "s").serve, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"CONNECT " + target + b" HTTP/1.1\r\n" + head + b"\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer


@cases(
    "target",
    case("its server is away", b"sts.us-east-1.amazonaws.com:443"),
    case("a name that no host can have", b"x" * 64 + b".example:443"),
    case("a port beyond 65535", b"127.0.0.1:99999"),
)
def test_a_host_that_cannot_be_reached_is_an_error(target: bytes) -> None:
    assert asyncio.run(answered(PROOF, target)).startswith(b"HTTP/1.1 502 ")


@cases(
    "head",
    case("nothing", b""),
    case("no secret", b"Proxy-Authorization: Basic\r\n"),
    case("another secret", b"Proxy-Authorization: " + basic_credentials("hostelry", "t") + b"\r\n"),
    case("the header of servers", PROOF.replace(b"Proxy-Auth", b"Auth")),
    case("no text", b"Proxy-Authorization: \xff\r\n"),
)
def test_only_the_program_that_has_the_secret_is_served(head: bytes) -> None:
    assert head != PROOF
    assert asyncio.run(answered(head)).startswith(b"HTTP/1.1 407 ")


def test_no_connection_outlives_the_program() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def left() -> bytes:
        far = await asyncio.start_server(silent, "127.0.0.1", 0)
        proxy = Proxy(far.sockets[0].getsockname()[1], UsersProxy(), "s")
        near = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        async with far, near:
            reader, writer = await asyncio.open_connection(*near.sockets[0].getsockname())
            writer.write(b"CONNECT sts.us-east-1.amazonaws.com:443 HTTP/1.1\r\n%b\r\n" % PROOF)
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            await proxy.close()
            rest = await reader.read()
            writer.close()
            return rest

    assert asyncio.run(left()) == b""


def test_a_tunnel_that_breaks_off_ends_without_an_answer() -> None:
    """The far end resets the connection while the client sends."""
    faults: list[dict[str, object]] = []

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        own = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def get_rest() -> bytes:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        far = await asyncio.start_server(reset, "127.0.0.1", 0)
        proxy = Proxy(far.sockets[0].getsockname()[1], UsersProxy(), "s")
        near = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        async with far, near:
            reader, writer = await asyncio.open_connection(*near.sockets[0].getsockname())
            writer.write(b"CONNECT sts.us-east-1.amazonaws.com:443 HTTP/1.1\r\n%b\r\n" % PROOF)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"x" * (1 << 20))
            rest = await reader.read()
            writer.close()
            if proxy._open:
                await asyncio.wait(proxy._open, timeout=5)
            gc.collect()
            return rest

    assert asyncio.run(get_rest()) == b""
    assert not [it for it in faults if "never retrieved" in str(it["message"])]


@cases(
    "answer",
    case("the proxy ends within its head", b"HTTP/1.1 200"),
    case("the proxy's head is too long", b"x" * (1 << 17)),
    case("the proxy refuses", b"HTTP/1.1 403 no\r\n\r\n"),
)
def test_the_connection_to_a_proxy_that_refuses_is_closed(answer: bytes) -> None:
    async def is_closed() -> bool:
        ended = asyncio.Event()

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            writer.write_eof()
            await reader.readuntil(b"\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                await reader.read()
            ended.set()
            writer.close()

        users = await asyncio.start_server(refuse, "127.0.0.1", 0)
        async with users:
            port = users.sockets[0].getsockname()[1]
            with pytest.raises(UNREACHABLE) as failure:
                await through(f"http://127.0.0.1:{port}", "pypi.org", 443)
            async with asyncio.timeout(2):
                await ended.wait()
            # The traceback kept the connection until here, so that no collection closed it.
            return failure.value.__traceback__ is not None

    assert asyncio.run(is_closed())
