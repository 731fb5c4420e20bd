"""Mutual TLS 1.3 between the hosts of a cluster.

A handshake succeeds only with a peer whose certificate is signed by an authority that this host
trusts, names the same cluster, and has a role that the server name allows:

server name            role of the server's certificate
--------------------   -------------------------------------------------
control, jobs, s3      control
join, certificates     control
gateway, gateway-peer  control or gateway
i-..., an instance     agent of exactly that instance, or control
any other, a copy      agent or control

A host that joins a cluster has no certificate yet, so only ``join`` is reached without a
certificate. The server decides which names a client may reach (`services/node_proxy.py`). A client
that speaks `PEER_PROTOCOL` gets one byte once the target is connected, before it sends anything. It
gets another byte when the target has ended, unless the target may have read a request that it did
not answer. So a request whose answer is this byte was never read. A client of `LINK_PROTOCOL` gets
only the first byte, so that the server's bytes end unchanged. Clients of other protocols get
neither.
"""

import logging
import ssl
from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.files import Stamp, get_stamp
from hostelry.base.peers import PeerName, PeerRole

PEER_PROTOCOL, LINK_PROTOCOL = "hostelry/1", "hostelry-link/1"  # by ALPN
HTTP = "http/1.1"
CONNECTED, UNREAD = b"\x01", b"\x00"  # neither can be the first byte of an HTTP answer
JOIN, CERTIFICATES = "join", "certificates"  # a node proxy answers these itself
LOOK_EVERY_S = 1.0
SERVER_ROLES = {
    "control": (PeerRole.CONTROL,),
    "jobs": (PeerRole.CONTROL,),
    JOIN: (PeerRole.CONTROL,),
    CERTIFICATES: (PeerRole.CONTROL,),
    "s3": (PeerRole.CONTROL,),
    "gateway": (PeerRole.CONTROL, PeerRole.GATEWAY),
    "gateway-peer": (PeerRole.CONTROL, PeerRole.GATEWAY),
}
LOG = logging.getLogger(__name__)


class TlsFolder(msgspec.Struct, frozen=True):
    """Files of one host's certificates, in its home or an instance's, each with mode 0600."""

    root: Path

    @property
    def identity(self) -> Path:
        """The key and the certificate of this host, in one file, so that both change at once."""
        return self.root / "identity.pem"

    @property
    def trusted(self) -> Path:
        """The certificates of the authorities that peers may be signed by."""
        return self.root / "ca.pem"

    @property
    def authority(self) -> Path:
        """The authority with its keys, on hosts of role control, which issue certificates."""
        return self.root / "authority.json"


class _Made(msgspec.Struct, frozen=True):
    own: PeerName
    client: ssl.SSLContext
    http_client: ssl.SSLContext
    link_client: ssl.SSLContext
    server: ssl.SSLContext


class ClusterTls:
    """The TLS contexts of this host, made again when its files change."""

    def __init__(self, folder: TlsFolder) -> None:
        self.folder = folder
        self._looked_at = float("-inf")
        self._stamps: tuple[Stamp | None, ...] = ()
        self._failed: tuple[Stamp | None, ...] = ()
        self._made: _Made | None = None

    @property
    def identity(self) -> PeerName:
        """The name in this host's certificate. Raises TerminalError, as the contexts do."""
        return self._current().own

    def client(self) -> ssl.SSLContext:
        """The context of connections to peers. Raises TerminalError without certificate files."""
        return self._current().client

    def http_client(self) -> ssl.SSLContext:
        """The same for clients that speak HTTP alone, and not `PEER_PROTOCOL`."""
        return self._current().http_client

    def link_client(self) -> ssl.SSLContext:
        """The same for clients of `LINK_PROTOCOL`, or of HTTP where a server does not know it."""
        return self._current().link_client

    def server(self) -> ssl.SSLContext:
        """The context of connections from peers. Raises TerminalError without certificate files."""
        return self._current().server

    def _current(self) -> "_Made":
        now = monotonic_s()
        if self._made is not None and now - self._looked_at < LOOK_EVERY_S:
            return self._made
        self._looked_at = now
        stamps = tuple(get_stamp(it) for it in (self.folder.identity, self.folder.trusted))
        if self._made is not None and stamps == self._stamps:
            return self._made
        try:
            made = self._made = _contexts(self.folder)
            self._stamps = stamps
        except TerminalError as error:
            if self._made is None:
                raise
            if stamps != self._failed:
                LOG.error("the changed certificate is not used: %s", error)  # noqa: TRY400
            self._failed = stamps
            return self._made
        return made


class _Process:
    """The files that this process's connections use."""

    tls: ClusterTls | None = None


def use(folder: Path) -> None:
    """Have this process present, and check by, the files in `folder`, once it needs them."""
    _Process.tls = ClusterTls(TlsFolder(folder))


def in_use() -> ClusterTls:
    """The TLS of this process. Raises TerminalError if the process uses none."""
    if _Process.tls is None:
        raise TerminalError("this process has no certificate of the cluster to show")
    return _Process.tls


def check_peer(given: ssl.SSLObject | ssl.SSLSocket, own: PeerName) -> None:
    """Raise SSLCertVerificationError if a peer with a valid chain is not allowed (see above)."""
    if given.server_side and asked_name(given) == JOIN and not given.getpeercert():
        return
    try:
        peer = get_peer(given)
    except ValueError as error:
        raise ssl.SSLCertVerificationError(str(error)) from None
    if peer.cluster != own.cluster:
        fault = f"the peer is of cluster {peer.cluster}, this host of {own.cluster}"
        raise ssl.SSLCertVerificationError(fault)
    if not given.server_side:
        _check_server(peer, given.server_hostname or "")


def asked_name(given: ssl.SSLObject | ssl.SSLSocket) -> str:
    """Return the server name that a client asked for, or ""."""
    return str(getattr(given, "asked_name", None) or "")


def get_peer(given: ssl.SSLObject | ssl.SSLSocket) -> PeerName:
    """Return the name in the peer's certificate. Raises ValueError."""
    shown: dict[str, Any] = given.getpeercert() or {}
    names = shown.get("subjectAltName", ())
    return PeerName.find_in([value for kind, value in names if kind == "URI"])


def _check_server(peer: PeerName, asked: str) -> None:
    allowed = SERVER_ROLES.get(asked, (PeerRole.AGENT, PeerRole.CONTROL))
    other = asked.startswith("i-") and peer.role is PeerRole.AGENT and peer.name != asked
    if peer.role not in allowed or other:
        fault = f"{peer.role.value} {peer.name} answers for {asked!r}, which it may not be"
        raise ssl.SSLCertVerificationError(fault)


def _contexts(folder: TlsFolder) -> _Made:
    # Imported where a cluster is used: a platform of one machine needs none of it.
    from hostelry.base.certificates import read_facts

    try:
        own = PeerName.find_in(read_facts(folder.identity.read_bytes()).uris)
        client = _context(ssl.PROTOCOL_TLS_CLIENT, folder, own)
        http_client = _context(ssl.PROTOCOL_TLS_CLIENT, folder, own)
        link_client = _context(ssl.PROTOCOL_TLS_CLIENT, folder, own)
        server = _context(ssl.PROTOCOL_TLS_SERVER, folder, own)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise TerminalError(f"the certificates in {folder.root} cannot be used: {error}") from None
    client.set_alpn_protocols([PEER_PROTOCOL])
    link_client.set_alpn_protocols([LINK_PROTOCOL, HTTP])
    server.set_alpn_protocols([PEER_PROTOCOL, LINK_PROTOCOL, HTTP])
    if folder.authority.exists():
        server.verify_mode = ssl.CERT_OPTIONAL  # who joins has none: `check_peer` requires others'
    server.sni_callback = _note_name
    server.num_tickets = 0  # bytes that come while a connection is idle mean its end
    return _Made(own, client, http_client, link_client, server)


def _note_name(given: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
    given.asked_name = name  # type: ignore[attr-defined]


def _context(side: int, folder: TlsFolder, own: PeerName) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the name in the certificate is a URI
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder.identity)
    context.load_verify_locations(folder.trusted)
    _have_checked(context, own)
    return context


def _have_checked(context: ssl.SSLContext, own: PeerName) -> None:
    """Make the check a part of each handshake, whichever library carries it out."""

    class CheckedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            check_peer(self, own)

    class CheckedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            check_peer(self, own)

    context.sslobject_class = CheckedObject
    context.sslsocket_class = CheckedSocket
