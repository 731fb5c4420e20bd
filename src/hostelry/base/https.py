"""TLS for clients, on a port that programs on this machine also use without it.

a connection that begins with   from this machine   from elsewhere
-----------------------------   -----------------   --------------
a TLS handshake                 TLS                 TLS
anything else                   plain HTTP          closed

From this machine come connections of loopback, or of the very address that they are made to: their
bytes are on no network.
"""

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.files import Stamp, get_stamp

LOG = logging.getLogger(__name__)
HANDSHAKE = b"\x16"  # the first byte of a TLS record of a handshake, RFC 8446 section 5.1
HANDSHAKE_S = 10.0
LOOK_EVERY_S = 1.0


class ServerCertificate:
    """The operator's certificate with its chain, and its key: read again when a file changes.

    A changed file that does not fit is logged, and the last good one stays in use.
    """

    def __init__(
        self, certificate: Path, key: Path, now_s: Callable[[], float] = monotonic_s
    ) -> None:
        self._files = (certificate, key)
        self._now_s = now_s
        self._looked_at = float("-inf")
        self._stamps: tuple[Stamp | None, ...] = ()
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context of new connections. Raises TerminalError without a valid pair."""
        now = self._now_s()
        if self._context is not None and now - self._looked_at < LOOK_EVERY_S:
            return self._context
        self._looked_at = now
        stamps = tuple(get_stamp(it) for it in self._files)
        if self._context is not None and stamps == self._stamps:
            return self._context
        try:
            made = server_context(*self._files)
        except TerminalError as error:
            if self._context is None:
                raise
            # Said once for each change.
            LOG.error("the changed certificate for clients is not used: %s", error)  # noqa: TRY400
            made = self._context
        self._context, self._stamps = made, stamps
        return made


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 or later, for HTTP/1.1. Raises TerminalError naming the invalid file."""
    for path in (certificate, key):
        try:
            path.read_bytes()
        except OSError as error:
            raise TerminalError(f"{path} cannot be read: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password an encrypted key would be asked for on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise TerminalError(
            f"{certificate} and {key} are no certificate with its key, both PEM, the key without a "
            f"password: {error}"
        ) from None
    return context


async def choose_context(accepted: socket.socket, held: ServerCertificate) -> ssl.SSLContext | None:
    """Choose the TLS context of a new connection, or None if it is plain HTTP of this machine.

    Raises OSError, TimeoutError where a client sends nothing, and TerminalError.
    """
    if not is_from_this_machine(accepted):
        return held.context()
    loop = asyncio.get_running_loop()
    came: asyncio.Future[None] = loop.create_future()

    def readable() -> None:
        if not came.done():
            came.set_result(None)

    loop.add_reader(accepted.fileno(), readable)
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            await came
    finally:
        loop.remove_reader(accepted.fileno())
    return held.context() if accepted.recv(1, socket.MSG_PEEK) == HANDSHAKE else None


def is_from_this_machine(accepted: socket.socket) -> bool:
    """True if the connection is local to this machine. Raises OSError if it is closed."""
    return is_local(accepted.getpeername()[0], accepted.getsockname()[0])


def is_local(peer: str, own: str) -> bool:
    """True if `peer`, the remote address of a connection to `own`, is on this machine."""
    address = ipaddress.ip_address(peer.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return peer == own or (mapped or address).is_loopback
