"""TCP proxy into a container without a network, run as a module by the container launcher.

Listens on this machine's loopback, enters the container's network namespace, which has only a
separate loopback, and copies bytes both ways. The container can answer requests, but not call out.
With a copy's key it forwards only requests that carry the key, without the key. Ends with the
container's first process.

Source: setns(2), pidfd_open(2). A socket belongs to the namespace it was created in, so the
listener, created first, stays outside.
"""

import argparse
import asyncio
import ctypes
import os
import socket
import sys

import httptools
import uvloop

from hostelry.base.guards import COPY_KEY_HEADER, MISSING_COPY_KEY, has_key, take_key
from hostelry.base.proc import PROC
from hostelry.base.splice import SpliceEnd
from hostelry.http1.heads import build_answer

NAME = COPY_KEY_HEADER.lower().encode()
MAX_HEAD_BYTES = 64 * 1024
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
BACKLOG = 1024
CONNECT_TIMEOUT_S = 5.0
DRAIN_S = 1.0
MAX_KEPT_BYTES = 64 * 1024
PORT_TAKEN = 3  # this program's exit codes
NOT_ENTERED = 4


class KeyRefusedError(Exception):
    """The connection must be closed after sending `answer`."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        headers = {"Content-Type": "text/plain", "Connection": "close"}
        self.answer = build_answer(status, headers, f"{text}\n".encode())


class KeyedRequests:
    """Filter of a client's bytes: forwards requests with the copy's key, without the key.

    Accepts the platform's own requests, which are HTTP/1.1 with bodies of known length.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._in_head = True
        self._passed: list[bytes] = []
        self._refusal: KeyRefusedError | None = None

    def feed(self, data: bytes) -> bytes:
        """The bytes to forward. After KeyRefusedError the connection cannot be used any more."""
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise self._refusal or KeyRefusedError(400, str(error)) from None
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            text = f"the head has more than {MAX_HEAD_BYTES} bytes"
            raise KeyRefusedError(431, text)
        passed, self._passed = b"".join(self._passed), []
        return passed

    def on_message_begin(self) -> None:
        """Start a request."""
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        """Add a piece of the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header of the request."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the key and forward the head without it, or refuse the request."""
        self._in_head = False
        given = [value.decode("latin-1") for name, value in self._headers if name.lower() == NAME]
        if not has_key(self._key, given):
            self._refuse(403, MISSING_COPY_KEY)
        if any(name.lower() == b"transfer-encoding" for name, _ in self._headers):
            self._refuse(411, "send the body's length in Content-Length")
        version = self._parser.get_http_version().encode()
        first = b"%b %b HTTP/%b\r\n" % (self._parser.get_method(), self._url, version)
        lines = [b"%b: %b\r\n" % it for it in self._headers if it[0].lower() != NAME]
        self._passed.append(b"%b%b\r\n" % (first, b"".join(lines)))

    def on_body(self, part: bytes) -> None:
        """Forward a piece of the request's body."""
        self._passed.append(part)

    def on_message_complete(self) -> None:
        """End the request. The head of the next request follows."""
        self._head_bytes, self._in_head = 0, True

    def _refuse(self, status: int, text: str) -> None:
        self._refusal = KeyRefusedError(status, text)
        raise self._refusal


class ClientEnd(SpliceEnd):
    """The client's end. Buffers its bytes until the server inside is connected.

    With `key` the server is not connected before a request carries the key.
    """

    def __init__(
        self, port: int, connecting: "set[asyncio.Task[None]]", key: str | None = None
    ) -> None:
        super().__init__()
        self._port = port
        self._connecting = connecting
        self._requests = None if key is None else KeyedRequests(key)
        self._is_connecting = False
        self._kept = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the server inside, unless a request must carry a key first."""
        super().connection_made(transport)
        if self._requests is None:
            self._start_connecting()

    def data_received(self, data: bytes) -> None:
        """Forward the bytes that the key allows, or buffer them until the server is connected."""
        if self._requests is not None:
            try:
                data = self._requests.feed(data)
            except KeyRefusedError as refusal:
                assert self.transport is not None
                self.transport.write(refusal.answer)
                self.transport.close()
                return
            if not data:
                return
            self._start_connecting()
        if self.other is not None:
            super().data_received(data)
            return
        self._kept += data
        if len(self._kept) >= MAX_KEPT_BYTES and self.transport is not None:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """Forward the half-close. Close a connection whose requests carried no key."""
        return super().eof_received() if self._is_connecting else False

    def _start_connecting(self) -> None:
        """Connect to the server inside, once."""
        if self._is_connecting:
            return
        self._is_connecting = True
        task = asyncio.get_running_loop().create_task(self._connect())
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        assert self.transport is not None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, inner = await loop.create_connection(
                    lambda: SpliceEnd(self), "127.0.0.1", self._port
                )
        except (OSError, TimeoutError):
            # No listener inside yet. To the client it looks like a closed port.
            self.transport.abort()
            return
        self.other = inner
        if self.transport.is_closing():
            self.connection_lost(None)
            return
        super().data_received(bytes(self._kept))
        if self.ended:
            super().eof_received()
        if len(self._kept) >= MAX_KEPT_BYTES:
            self.transport.resume_reading()
        self._kept.clear()


def enter_network(pid: int) -> None:
    """Move this process into the network namespace of `pid`. Raises OSError.

    Without root it first enters the user namespace that owns it, which needs a single thread.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    namespaces = PROC / str(pid) / "ns"
    user, network = namespaces / "user", namespaces / "net"
    foreign = os.stat(user).st_ino != os.stat(PROC / "self/ns/user").st_ino
    opened = [(os.open(network, os.O_RDONLY), CLONE_NEWNET)]
    if foreign:
        opened.insert(0, (os.open(user, os.O_RDONLY), CLONE_NEWUSER))
    try:
        for descriptor, kind in opened:
            if libc.setns(descriptor, kind) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(namespaces))
    finally:
        for descriptor, _ in opened:
            os.close(descriptor)


async def serve(listener: socket.socket, container: int, port: int, key: str | None = None) -> None:
    """Proxy connections to `port` inside until the process of the pidfd `container` ends.

    With `key` only requests that carry it are forwarded.
    """
    loop = asyncio.get_running_loop()
    connecting: set[asyncio.Task[None]] = set()
    gone = asyncio.Event()
    loop.add_reader(container, gone.set)
    server = await loop.create_server(
        lambda: ClientEnd(port, connecting, key), sock=listener, backlog=BACKLOG
    )
    await gone.wait()
    loop.remove_reader(container)
    server.close()
    await asyncio.sleep(DRAIN_S)  # the server's last bytes may still be in flight


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="container_proxy", description=__doc__)
    parser.add_argument("--pid", type=int, required=True, help="the container's first process")
    parser.add_argument("--port", type=int, required=True, help="on this machine's loopback")
    parser.add_argument("--inner-port", type=int, required=True, help="of the server inside")
    arguments = parser.parse_args()
    key = take_key(os.environ)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", arguments.port))
        listener.listen(BACKLOG)
    except OSError as error:
        print(f"[proxy] port {arguments.port}: {error}", file=sys.stderr)
        sys.exit(PORT_TAKEN)
    try:
        container = os.pidfd_open(arguments.pid)
        enter_network(arguments.pid)
    except OSError as error:
        print(f"[proxy] the container cannot be entered: {error}", file=sys.stderr)
        sys.exit(NOT_ENTERED)
    uvloop.run(serve(listener, container, arguments.inner_port, key))


if __name__ == "__main__":
    main()
