"""Posts to hostile subscribers: redirects, endless answers, forbidden places, slowness."""

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
import pytest
from tests.cases import case, cases

from hostelry.messaging.web_delivery import (
    AddressRefusedError,
    GuardedClient,
    is_own_address,
    refused_target,
)

Result = TypeVar("Result")
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def accepts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def redirects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    place = b"http://127.0.0.1:9/internal/state"
    writer.write(b"HTTP/1.1 307 Go\r\nLocation: " + place + b"\r\nContent-Length: 0\r\n\r\n")


async def never_ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        await writer.drain()


async def endless_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"a: " + b"x" * 65536 + b"\r\n")
        await writer.drain()


async def keeps_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


def posted(answer: Answer, *, own: bool = False, host: str = "127.0.0.1") -> int:
    """The result of a post to a server with this answer. `own`: its port is the platform's."""
    return asked(answer, lambda client, url: client.post(url, {}, b"body"), own=own, host=host)


def got(answer: Answer) -> bytes:
    """The body of a GET of at most 5 bytes."""
    return asked(answer, lambda client, url: client.get(url, 5))


def asked(
    answer: Answer,
    ask: Callable[[GuardedClient, str], Awaitable[Result]],
    *,
    own: bool = False,
    host: str = "127.0.0.1",
) -> Result:
    async def run() -> Result:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.readuntil(b"\r\n\r\n")
                await answer(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        ports = frozenset({port}) if own else frozenset()
        client = GuardedClient(
            lambda it: "not allowed" if "evil" in it else None,
            lambda: ports,
            resolve=lambda *_: ["127.0.0.1"],
            timeout_s=1.0,
        )
        try:
            return await ask(client, f"http://{host}:{port}/x")
        finally:
            await client.close()
            server.close()

    return asyncio.run(run())


@cases(
    "answer, code",
    case("an ordinary one", accepts, 200),
    case("a redirect to loopback is not followed", redirects, 307),
    case("an endless answer is not read", never_ends, 200),
)
def test_the_status_is_all_that_is_read(answer: Answer, code: int) -> None:
    assert posted(answer, host="hook.example") == code


async def is_large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")


async def is_missing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")


def test_a_body_is_read_up_to_a_limit() -> None:
    assert got(accepts) == b"ok"


@cases(
    "answer, text",
    case("a large body", is_large, "more than 5 bytes"),
    case("an endless body", never_ends, "more than 5 bytes"),
    case("another status", is_missing, "answers 404"),
    case("a redirect", redirects, "answers 307"),
)
def test_other_answers_to_a_get_are_refused(answer: Answer, text: str) -> None:
    with pytest.raises(OSError, match=text):
        got(answer)


@pytest.mark.parametrize("answer", [keeps_silent, endless_headers])
def test_an_answer_that_does_not_come_is_given_up(answer: Answer) -> None:
    with pytest.raises((TimeoutError, httpx.HTTPError)):
        posted(answer)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "innocent.example"])
def test_a_port_of_the_platform_is_never_posted_to(host: str) -> None:
    with pytest.raises(AddressRefusedError, match="belongs to this platform"):
        posted(accepts, own=True, host=host)


def test_an_address_that_the_operator_does_not_allow_is_not_posted_to() -> None:
    with pytest.raises(AddressRefusedError, match="not allowed"):
        posted(accepts, host="evil.example")


@cases(
    "address, port, is_refused",
    case("loopback, a port of the platform", "127.0.0.1", 8787, True),
    case("all of 127.0.0.0/8", "127.9.9.9", 8787, True),
    case("IPv6's loopback", "::1", 8787, True),
    case("loopback, mapped into IPv6", "::ffff:127.0.0.1", 8787, True),
    case("the unspecified address", "0.0.0.0", 8787, True),
    case("loopback, another port", "127.0.0.1", 9000, False),
    case("another machine's port of the same number", "203.0.113.9", 8787, False),
    case("a cloud's metadata", "169.254.169.254", 80, True),
    case("link-local of IPv6", "fe80::1", 80, True),
    case("multicast", "224.0.0.1", 80, True),
)
def test_where_connections_may_go(address: str, port: int, is_refused: bool) -> None:
    found = ipaddress.ip_address(address)
    assert (refused_target(found, port, frozenset({8787})) is not None) is is_refused


@cases(
    "fault, is_own",
    case("an address of another machine is not own", errno.EADDRNOTAVAIL, False),
    case("an address that cannot be looked at may be own", errno.ENOBUFS, True),
)
def test_an_address_after_a_failed_look(
    monkeypatch: pytest.MonkeyPatch, fault: int, is_own: bool
) -> None:
    class Refusing(socket.socket):
        def bind(self, address: object) -> None:
            raise OSError(fault, "refused")

    monkeypatch.setattr(socket, "socket", Refusing)
    assert is_own_address(ipaddress.ip_address("198.51.100.7")) is is_own
