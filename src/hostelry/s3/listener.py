"""The S3 port's listening socket: plain, or with TLS for clients (`base/https.py`)."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from hostelry.base.errors import TerminalError
from hostelry.base.https import HANDSHAKE_S, ServerCertificate, choose_context
from hostelry.home.ports import bind
from hostelry.s3.head import MAX_HEAD_BYTES

LOG = logging.getLogger(__name__)
MAX_OPENING = 1024  # connections that are being opened: beyond this limit, the oldest is cut
ACCEPT_PAUSE_S = 0.1
Served = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class SecuredListener:
    """Accepts clients of a socket, as an `asyncio.Server` does, and passes each to `served`."""

    def __init__(
        self, listening: socket.socket, served: Served, certificate: ServerCertificate
    ) -> None:
        self._listening = listening
        self._served = served
        self._certificate = certificate
        self._opening: dict[asyncio.Task[None], None] = {}  # the oldest first

    async def __aenter__(self) -> "SecuredListener":
        """Return the listener itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Accept no more clients, and cut the connections that are being opened."""
        self._listening.close()
        for task in tuple(self._opening):
            task.cancel()

    async def serve_forever(self) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listening)
            except OSError as error:  # no file descriptor is left, or the client has gone
                LOG.warning("no connection is accepted: %s", error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            if len(self._opening) >= MAX_OPENING:
                oldest = next(iter(self._opening))
                del self._opening[oldest]
                oldest.cancel()
            task = loop.create_task(self._open(accepted))
            self._opening[task] = None
            task.add_done_callback(lambda done: self._opening.pop(done, None))

    async def _open(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(MAX_HEAD_BYTES, loop)
        try:
            context = await choose_context(accepted, self._certificate)
            await loop.connect_accepted_socket(
                lambda: asyncio.StreamReaderProtocol(reader, self._served, loop),
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
            )
        except (OSError, TimeoutError, TerminalError) as error:
            accepted.close()
            LOG.info("a connection was lost while it was opened: %s", error)
        except asyncio.CancelledError:
            accepted.close()
            raise


async def listened(
    host: str, port: int, served: Served, certificate: ServerCertificate | None
) -> asyncio.Server | SecuredListener:
    """Listen on `host`:`port`, with TLS if there is a certificate. Raises OSError."""
    if certificate is None:
        return await asyncio.start_server(served, host, port, limit=MAX_HEAD_BYTES)
    return SecuredListener(bind(host, port), served, certificate)
