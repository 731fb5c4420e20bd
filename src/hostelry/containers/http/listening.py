"""The listening socket and the uvicorn server of model servers."""

import asyncio
import ipaddress
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hostelry.base.errors import TerminalError
from hostelry.base.guards import OwnHostsOnly
from hostelry.http1.heads import build_answer

MAX_HEAD_BYTES = 64 * 1024
TOO_LONG = build_answer(431, {"connection": "close"}, b"")
BACKLOG = 1024
KEEP_ALIVE_S = 300  # longer than the gateway's idle timeout, so that the gateway closes first
MAX_JOINED_BYTES = 64 * 1024


class JoinedWrites:
    """A transport that joins the writes of one pass of the event loop, and sends them after it.

    A head and its body leave in one call of the kernel. The tokens of one step leave in a row, for
    which the kernel and the receiver need less time than for tokens with work in between.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._parts: list[bytes] = []
        self._num_bytes = 0

    def __getattr__(self, name: str) -> Any:
        """The transport's other members."""
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Keep `data` for a moment, or send it with all before it if that is much."""
        if len(data) > MAX_JOINED_BYTES:  # joining would copy it
            self.flush()
            if not self._transport.is_closing():
                self._transport.write(data)
            return
        if not self._parts:
            asyncio.get_running_loop().call_soon(self.flush)
        self._parts.append(data)
        self._num_bytes += len(data)
        if self._num_bytes > MAX_JOINED_BYTES:  # the writer must learn that the client is slow
            self.flush()

    def close(self) -> None:
        """Send the rest, then close."""
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Send the kept bytes."""
        parts, self._parts, self._num_bytes = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))


class BoundedHeadProtocol(HttpToolsProtocol):
    """Responds 431 and closes once more than `MAX_HEAD_BYTES` arrived after a head began."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = False
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to serve a connection."""
        super().connection_made(cast(asyncio.Transport, JoinedWrites(transport)))

    def on_message_begin(self) -> None:
        """Called at a request's first byte."""
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Called when the head is complete."""
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Feed bytes to the parser. Counts the bytes of a head."""
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.write(TOO_LONG)
                self.transport.close()
                return
        super().data_received(data)


class DrainingServer(uvicorn.Server):
    """uvicorn without its signal handlers: a model server drains before it stops listening."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Do not capture signals."""
        yield


def http_server(app: ASGIApp) -> DrainingServer:
    """The HTTP server of `app`."""
    return DrainingServer(
        uvicorn.Config(
            app,
            loop="none",
            http=BoundedHeadProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
    )


def served_on(listener: socket.socket, app: ASGIApp) -> ASGIApp:
    """`app`, on loopback with a guard against DNS rebinding. Other hosts' names are unknown."""
    address = ipaddress.ip_address(listener.getsockname()[0])
    return OwnHostsOnly(app) if address.is_loopback else app


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises TerminalError if the address cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise TerminalError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another --port"
        ) from error
