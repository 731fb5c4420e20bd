import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from tests.cases import case, cases
from tests.cluster_rig import AUTHORITY, NOW, ProxyRig, as_process, identity, proxied

from hostelry.base import tls
from hostelry.base.certificates import bundle, new_authority
from hostelry.base.peer_http import peer_client
from hostelry.base.peers import PeerName, PeerRole
from hostelry.base.tls import JOIN, ClusterTls, TlsFolder
from hostelry.cluster.proxy import ProxyLimits
from hostelry.http1.reply import BrokenError, ConnectError
from hostelry.http1.upstream import Timeouts, UpstreamPool

LIMITS = Timeouts(total_s=20, connect_s=5)
REQUEST = (b"POST /invocations HTTP/1.1\r\nContent-Length: 4\r\n\r\n", b"body")
OTHER = new_authority("one", NOW)


@pytest.fixture(autouse=True)
def no_certificate_is_left() -> Iterator[None]:
    yield
    tls._Process.tls = None


async def answer_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that answers each request, whose body has 4 bytes, until its peer ends."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(4)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + body)
    writer.close()


def in_uvloop(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    uvloop.run(bounded())


def context_without_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Wire:
    """A network in front of a node proxy. Records bytes, and holds them until `passes` is set."""

    def __init__(self, rig: ProxyRig) -> None:
        self._rig = rig
        self.sent, self.received = bytearray(), bytearray()
        self.came = asyncio.Event()  # bytes of the peer
        self.passes = asyncio.Event()
        self.passes.set()

    async def __aenter__(self) -> "Wire":
        self._server = await asyncio.start_server(self._between, "127.0.0.1", 0)
        self.address = f"https://c-1@127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _between(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, onward_writer = await asyncio.open_connection(self._rig.host, self._rig.port)
        await asyncio.gather(
            self._carry(reader, onward_writer, self.sent),
            self._carry(onward, writer, self.received),
        )

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                record.extend(data)
                if record is self.sent:
                    self.came.set()
                await self.passes.wait()
                writer.write(data)
        writer.close()


async def what_comes(rig: ProxyRig, context: ssl.SSLContext, name: str | None = "c-1") -> bytes:
    """The answer to a peer's request. Empty if it is refused in any way."""
    try:
        reader, writer = await rig.connect(context, name)
        writer.write(b"".join(REQUEST))
        got = await reader.read(100)
        writer.close()
    except (OSError, ssl.SSLError):
        return b""
    return got


def test_a_request_passes_by_the_pool_and_by_plain_http_clients(tmp_path: Path) -> None:
    async def scenario() -> None:
        as_process(identity(tmp_path / "gateway", PeerRole.GATEWAY))
        host = identity(tmp_path / "node", PeerRole.AGENT, "i-1")
        async with proxied(host, answer_each) as rig:
            pool = UpstreamPool()
            for _ in range(3):
                reply = await pool.send(rig.address(), REQUEST, LIMITS)
                assert (reply.status, await reply.body(100)) == (200, b"body")
                reply.close()
            assert len(pool._idle[rig.address()]) == 1  # one connection carried all three
            pool.close()
            async with peer_client(rig.address("i-1")) as http:
                answer = await http.post("/x", content=b"four")
                assert answer.content == b"four"

    in_uvloop(scenario)


def test_what_is_not_there_is_no_connection_rather_than_a_broken_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        as_process(identity(tmp_path / "gateway", PeerRole.GATEWAY))
        host = identity(tmp_path / "node", PeerRole.AGENT, "i-1")
        async with proxied(host, answer_each) as rig:
            for name in ("c-gone", "c-unknown", "join"):  # a process that is gone, or never ran
                with pytest.raises(ConnectError):
                    await UpstreamPool().send(rig.address(name), REQUEST, LIMITS)

    in_uvloop(scenario)


@cases(
    "role, name, asked, passes",
    case("control is asked for control", PeerRole.CONTROL, "first", "control", True),
    case("an agent is asked for itself", PeerRole.AGENT, "i-1", "i-1", True),
    case("another agent is not", PeerRole.AGENT, "i-2", "i-1", False),
    case("an agent is not control", PeerRole.AGENT, "i-1", "control", False),
    case("control has the object store", PeerRole.CONTROL, "first", "s3", True),
    case("an agent has no object store", PeerRole.AGENT, "i-1", "s3", False),
    case("a gateway has no copies", PeerRole.GATEWAY, "g", "c-1", False),
)
def test_a_server_must_be_allowed_to_be_what_is_asked_for(
    tmp_path: Path, role: PeerRole, name: str, asked: str, passes: bool
) -> None:
    async def scenario() -> None:
        as_process(identity(tmp_path / "me", PeerRole.CONTROL))
        async with proxied(identity(tmp_path / "host", role, name), answer_each) as rig:
            if passes:
                (await UpstreamPool().send(rig.address(asked), REQUEST, LIMITS)).close()
            else:
                with pytest.raises(ConnectError, match="which it may not be"):
                    await UpstreamPool().send(rig.address(asked), REQUEST, LIMITS)

    in_uvloop(scenario)


def peers(root: Path) -> dict[str, tuple[ssl.SSLContext, str | None]]:
    """Peers that must reach nothing, and the name that each asks for."""
    both = bundle([AUTHORITY.certificate, OTHER.certificate])
    month = 40 * 86400

    def shown(folder: TlsFolder) -> ssl.SSLContext:
        context = context_without_certificate()
        context.load_cert_chain(folder.identity)
        return context

    old = context_without_certificate()
    old.load_cert_chain(identity(root / "tls12").identity)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    return {
        "no certificate": (context_without_certificate(), "c-1"),
        "another authority": (shown(identity(root / "a", authority=OTHER, trusted=both)), "c-1"),
        "an expired certificate": (shown(identity(root / "b", now=NOW - month)), "c-1"),
        "another cluster": (shown(identity(root / "c", cluster="two")), "c-1"),
        "TLS 1.2": (old, "c-1"),
        "an agent, a neighbour's copy": (shown(identity(root / "d", PeerRole.AGENT, "i-2")), "c-1"),
        "an agent, control": (shown(identity(root / "d", PeerRole.AGENT, "i-2")), "control"),
        "no name": (shown(identity(root / "e")), None),
        "an unknown name": (shown(identity(root / "e")), "c-2"),
        "a name of 250 bytes": (shown(identity(root / "e")), ".".join(["c" * 49] * 5)),
        "without one, joining": (context_without_certificate(), "join"),
    }


@pytest.mark.parametrize(
    "who",
    [
        "no certificate",
        "another authority",
        "an expired certificate",
        "another cluster",
        "TLS 1.2",
        "an agent, a neighbour's copy",
        "an agent, control",
        "no name",
        "an unknown name",
        "a name of 250 bytes",
        "without one, joining",
    ],
)
@pytest.mark.parametrize("issues", [True, False], ids=["a host that issues", "another host"])
def test_a_peer_that_may_not_reaches_no_server(tmp_path: Path, who: str, issues: bool) -> None:
    reached: list[str] = []

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append("reached")
        writer.close()

    async def scenario() -> None:
        host = identity(tmp_path / "host")
        if issues:
            host.authority.write_bytes(b"")
        context, name = peers(tmp_path)[who]
        async with proxied(host, note) as rig:
            assert await what_comes(rig, context, name) == b""
            assert not reached

    in_uvloop(scenario)


def test_unknown_connections_take_no_place_from_peers(tmp_path: Path) -> None:
    """Connections that say nothing, speak HTTP or send rubbish. The oldest give way."""

    async def scenario() -> None:
        as_process(identity(tmp_path / "gateway", PeerRole.GATEWAY))
        limits = ProxyLimits(unverified=50, handshake_s=60.0)
        async with proxied(identity(tmp_path / "host"), answer_each, limits) as rig:
            idle = [await asyncio.open_connection(rig.host, rig.port) for _ in range(200)]
            reader, writer = await asyncio.open_connection(rig.host, rig.port)
            writer.write(b"GET /internal/state HTTP/1.1\r\nHost: x\r\n\r\n")
            got = await reader.read()
            assert b"HTTP" not in got
            writer.close()
            _, rubbish = await asyncio.open_connection(rig.host, rig.port)
            rubbish.write(b"\x16\x03\x01\x40\x00" + b"\xff" * 0x4000)
            half, half_writer = await asyncio.open_connection(rig.host, rig.port)
            half_writer.write_eof()
            assert await half.read() == b""
            half_writer.close()
            rubbish.close()
            (await UpstreamPool().send(rig.address(), REQUEST, LIMITS)).close()
            assert await idle[0][0].read() == b""  # the oldest was cut
            for _, one in idle:
                one.close()

    in_uvloop(scenario)


def test_connections_without_a_certificate_have_a_few_places_of_their_own(tmp_path: Path) -> None:
    """They ask to join and say nothing more. The oldest give way, and no peer waits for them."""

    async def join(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: PeerName | None
    ) -> None:
        await reader.read()

    async def scenario() -> None:
        as_process(identity(tmp_path / "gateway", PeerRole.GATEWAY))
        limits = ProxyLimits(connections=2, unverified=10, anonymous=3)
        folder = identity(tmp_path / "host")
        folder.authority.write_bytes(AUTHORITY.certificate)  # this host lets others join
        async with proxied(folder, answer_each, limits, {JOIN: join}) as rig:
            context = context_without_certificate()
            idle = [
                await asyncio.open_connection(rig.host, rig.port, ssl=context, server_hostname=JOIN)
                for _ in range(8)
            ]
            assert [await it.read() for it, _ in idle[:5]] == [b""] * 5
            assert not any(it.at_eof() for it, _ in idle[5:])
            (await UpstreamPool().send(rig.address(), REQUEST, LIMITS)).close()
            for _, one in idle:
                one.close()

    in_uvloop(scenario)


def test_a_handshake_has_a_time_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        limits = ProxyLimits(handshake_s=0.2)
        async with proxied(identity(tmp_path / "host"), answer_each, limits) as rig:
            reader, writer = await asyncio.open_connection(rig.host, rig.port)
            writer.write(b"\x16\x03\x01")  # the head of a handshake, and no more
            assert await reader.read() == b""
            writer.close()

    in_uvloop(scenario)


def test_a_stream_arrives_piece_by_piece_and_a_large_body_whole(tmp_path: Path) -> None:
    large = bytes(range(256)) * 40_000  # 10 MB, more than any buffer on the way
    step = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(len(large)) == large
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number in range(5):
            step.clear()
            writer.write(b"data: %d\n\n" % number)
            await step.wait()  # the next event is not sent before this one has arrived
        writer.write(large)
        writer.close()

    async def scenario() -> None:
        as_process(identity(tmp_path / "gateway", PeerRole.GATEWAY))
        async with proxied(identity(tmp_path / "host"), stream) as rig:
            head = b"POST /s HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(large)
            reply = await UpstreamPool().send(rig.address(), (head, large), LIMITS)
            for number in range(5):
                assert await reply.next_chunk() == b"data: %d\n\n" % number
                step.set()
            rest = b""
            while (piece := await reply.next_chunk()) is not None:
                rest += piece
            assert rest == large
            reply.close()

    in_uvloop(scenario)


async def end_after_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that answers one request of a connection, reads the second, and ends."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + await reader.readexactly(4))
    with contextlib.suppress(asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
    writer.close()


def test_a_request_that_was_read_is_not_sent_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        as_process(identity(tmp_path / "gateway", PeerRole.GATEWAY))
        async with proxied(identity(tmp_path / "host"), end_after_one) as rig:
            pool = UpstreamPool()
            (await pool.send(rig.address(), REQUEST, LIMITS)).close()
            with pytest.raises(BrokenError):
                await pool.send(rig.address(), REQUEST, LIMITS)

    in_uvloop(scenario)


def test_a_request_that_meets_the_end_of_a_kept_connection_is_sent_again(tmp_path: Path) -> None:
    ending = asyncio.Event()

    async def end_when_idle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(4)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + body)
        await ending.wait()
        writer.close()

    async def scenario() -> None:
        as_process(identity(tmp_path / "gateway", PeerRole.GATEWAY))
        async with proxied(identity(tmp_path / "host"), end_when_idle) as rig, Wire(rig) as wire:
            pool = UpstreamPool()
            (await pool.send(wire.address, REQUEST, LIMITS)).close()
            wire.passes.clear()
            wire.came.clear()
            ending.set()
            second = asyncio.create_task(pool.send(wire.address, REQUEST, LIMITS))
            await wire.came.wait()  # the request is on its way, and so is the end
            wire.passes.set()
            reply = await second
            assert await reply.body(10) == b"body"
            reply.close()
            pool.close()

    in_uvloop(scenario)


def test_a_proxy_that_ends_is_left_by_each_kept_connection_at_its_next_request(
    tmp_path: Path,
) -> None:
    connections = []

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await answer_each(reader, writer)

    async def scenario() -> None:
        as_process(identity(tmp_path / "gateway", PeerRole.GATEWAY))
        async with proxied(identity(tmp_path / "host"), counted) as rig:
            pool = UpstreamPool()
            (await pool.send(rig.address(), REQUEST, LIMITS)).close()
            ending = asyncio.create_task(rig.proxy.drain(60))
            await asyncio.sleep(0)
            reply = await pool.send(rig.address(), REQUEST, LIMITS)
            assert await reply.body(10) == b"body"
            reply.close()
            assert len(connections) == 2, "the first ended, and its request was sent again"
            pool.close()
            await ending

    in_uvloop(scenario)


def test_an_answer_that_ends_with_its_connection_is_whole(tmp_path: Path) -> None:
    """Although its last byte is also a byte that a node proxy sends."""

    async def unframed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it\0")
        writer.close()

    async def scenario() -> None:
        as_process(identity(tmp_path / "gateway", PeerRole.GATEWAY))
        async with proxied(identity(tmp_path / "host"), unframed) as rig:
            parts = (b"GET / HTTP/1.1\r\n\r\n", b"")
            reply = await UpstreamPool().send(rig.address(), parts, LIMITS)
            assert await reply.body(100) == b"all of it\0"
            reply.close()

    in_uvloop(scenario)


def test_no_request_fails_while_certificates_and_their_authority_change(tmp_path: Path) -> None:
    async def scenario() -> None:
        gateway, host = tmp_path / "gateway", tmp_path / "host"
        as_process(identity(gateway, PeerRole.GATEWAY))
        both = bundle([OTHER.certificate, AUTHORITY.certificate])
        async with proxied(identity(host), answer_each) as rig:
            stop, served = asyncio.Event(), asyncio.Event()
            num_served = 0

            async def traffic() -> None:
                nonlocal num_served
                while not stop.is_set():
                    pool = UpstreamPool()  # each request has its own handshake
                    reply = await pool.send(rig.address(), REQUEST, LIMITS)
                    assert await reply.body(10) == b"body"
                    reply.close()
                    pool.close()
                    num_served += 1
                    served.set()

            running = asyncio.create_task(traffic())
            new = OTHER.certificate
            for change in (
                lambda: (gateway / "ca.pem").write_bytes(both),
                lambda: (host / "ca.pem").write_bytes(both),
                lambda: identity(host, authority=OTHER, trusted=both),
                lambda: identity(gateway, PeerRole.GATEWAY, authority=OTHER, trusted=both),
                lambda: (host / "ca.pem").write_bytes(new),
                lambda: (gateway / "ca.pem").write_bytes(new),
            ):
                change()
                seen = num_served
                for known in (tls.in_use(), rig.proxy._tls):
                    known._looked_at = float("-inf")  # as if a second had passed
                while num_served < seen + 3 and not running.done():
                    await asyncio.wait_for(served.wait(), 20)
                    served.clear()
            stop.set()
            await running
            assert ClusterTls(TlsFolder(gateway)).identity.role is PeerRole.GATEWAY

    in_uvloop(scenario)


def test_neither_key_nor_body_is_in_clear_on_the_wire(tmp_path: Path) -> None:
    async def scenario() -> None:
        as_process(identity(tmp_path / "gateway", PeerRole.GATEWAY))
        async with proxied(identity(tmp_path / "host"), answer_each) as rig, Wire(rig) as wire:
            head = b"POST /invocations HTTP/1.1\r\nX-Hostelry-Key: secret-key\r\n"
            parts = (head + b"Content-Length: 4\r\n\r\n", b"body")
            pool = UpstreamPool()
            reply = await pool.send(wire.address, parts, LIMITS)
            assert await reply.body(10) == b"body"
            reply.close()
            pool.close()
            seen = bytes(wire.sent + wire.received)
        assert len(seen) > 1000
        for clear in (b"secret-key", b"invocations", b"body", b"HTTP/1.1", b"spiffe://one/gateway"):
            assert clear not in seen

    in_uvloop(scenario)
