"""This host's certificates on disk: made at first need, renewed, or taken from the operator's."""

import os
import re
from pathlib import Path

import msgspec

from hostelry.base.certificates import Pair, check_pair, read_facts
from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.base.peers import PeerName, PeerRole
from hostelry.base.tls import TlsFolder
from hostelry.cluster.authority import Authority

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")


class OperatorFiles(msgspec.Struct, frozen=True):
    """Paths of an operator's certificate, its key, and the cluster's authority."""

    authority: Path
    certificate: Path
    key: Path


class HostFiles:
    """The files of a `TlsFolder`, written whole or not at all."""

    def __init__(self, folder: TlsFolder, cluster: str) -> None:
        self.folder = folder
        self._cluster = cluster

    def authority(self) -> Authority | None:
        """The stored authority. None on hosts that do not issue. Raises TerminalError."""
        try:
            return Authority.parse(self.folder.authority.read_bytes())
        except FileNotFoundError:
            return None

    def make(self, role: PeerRole, name: str, now: float) -> None:
        """Make an authority, and a certificate for this host, unless they exist."""
        self._open()
        authority = self.authority()
        if authority is None:
            authority = Authority.make(self._cluster, now)
            self.save_authority(authority)
        if self.own(now) is None:
            self.issue_own(authority, role, name, now)

    def own(self, now: float) -> PeerName | None:
        """The name in this host's certificate. None if peers would refuse it."""
        try:
            return _check_files(self.folder.identity.read_bytes(), self.folder.trusted, now)
        except (OSError, TerminalError):
            return None

    def is_due(self, authority: Authority | None, now: float) -> bool:
        """Whether this host's certificate must be renewed. Raises OSError without a certificate."""
        pem = self.folder.identity.read_bytes()
        late = now >= read_facts(pem).renew_at()
        return late or (authority is not None and not authority.has_signed(pem))

    def issue_own(self, authority: Authority, role: PeerRole, name: str, now: float) -> None:
        """Sign this host's own certificate."""
        self.save(authority.identity(role, safe_name(name), now), authority.trusted)

    def save(self, identity: bytes, trusted: bytes) -> None:
        """Write the trusted certificates, then this host's."""
        self._open()
        for path, data in ((self.folder.trusted, trusted), (self.folder.identity, identity)):
            if not path.exists() or path.read_bytes() != data:
                write_whole(path, data)

    def save_authority(self, authority: Authority) -> None:
        """Write the authority."""
        write_whole(self.folder.authority, msgspec.json.encode(authority))

    def take(self, files: OperatorFiles, now: float) -> PeerName:
        """Take over the operator's files. Raises TerminalError naming the file and the fault."""
        trusted, certificate = _read_file(files.authority), _read_file(files.certificate)
        key = _read_file(files.key)
        try:
            name = check_pair(Pair(certificate, key), trusted, now)
        except TerminalError as error:
            raise TerminalError(f"{files.certificate} with {files.key}: {error}") from None
        self.save(key.rstrip() + b"\n" + certificate, trusted)
        return name

    def _open(self) -> None:
        self.folder.root.mkdir(mode=0o700, parents=True, exist_ok=True)


def find_operator_files(
    ca: str | None, certificate: str | None, key: str | None
) -> OperatorFiles | None:
    """The operator's files. None if none is named. Raises TerminalError if some are missing."""
    given = {"--tls-ca": ca, "--tls-cert": certificate, "--tls-key": key}
    if not any(given.values()):
        return None
    if ca is None or certificate is None or key is None:
        missing = ", ".join(flag for flag, value in given.items() if not value)
        raise TerminalError(f"{missing}: name all three of --tls-ca, --tls-cert and --tls-key")
    return OperatorFiles(*(Path(os.path.abspath(it)) for it in (ca, certificate, key)))


def safe_name(text: str) -> str:
    """`text` as the name of a certificate's holder."""
    return NOT_IN_NAMES.sub("-", text).lstrip("-._")[:63] or "host"


def _check_files(identity: bytes, trusted: Path, now: float) -> PeerName:
    return check_pair(Pair(identity, identity), trusted.read_bytes(), now)


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TerminalError(f"{path} cannot be read: {error.strerror}") from None
