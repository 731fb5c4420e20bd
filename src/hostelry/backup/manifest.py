"""Manifest of a backup, which lists its files. Pure.

The manifest is written last, so a folder without a manifest is not a backup. It has a digest of
itself, and the size and digest of each file.
"""

import hashlib
from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.base.peers import is_newer

FORMAT = 1
MANIFEST = "manifest.json"
DATA = "data"  # the folder of the files, whose paths are those in a home
UNFINISHED = "backup.unfinished"  # present until the manifest is written
MAX_VERSION_CHARS = 64
LATEST_S = 253_402_300_799.0  # the last second of the year 9999
MAX_MANIFEST_BYTES = 1024 * 1024 * 1024
# Names that a backup may have at the top of its folder of files. In a home these are its state.
TOP_NAMES = frozenset(
    {
        "actions.toml",
        "audit",
        "audit.1.jsonl",
        "audit.jsonl",
        "capture",
        "config.json",
        "credentials.json",
        "files",
        "https-ca.pem",
        "images.toml",
        "jobs.db",
        "kms.key",
        "logs.db",
        "messages.db",
        "metrics",
        "object-events.db",
        "objects",
        "prices.toml",
        "state.db",
        "tls",
        "topics",
    }
)


class BackedUpFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a backup. `path` is its path in the home, with slashes."""

    path: str
    num_bytes: int
    sha256: str


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a backup. `version` is the version of the program that made it.

    `s3_endpoint` is set if the home uses an external object store, whose objects are not in the
    backup.
    """

    format: int
    version: str
    created_at: float
    s3_endpoint: str | None = None
    files: tuple[BackedUpFile, ...]
    digest: str = ""

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(it.num_bytes for it in self.files)


class _Versions(msgspec.Struct):
    """The part of a manifest that every version of it has."""

    format: int
    version: str


def encode_manifest(manifest: BackupManifest) -> bytes:
    """The manifest as its file, with its digest."""
    signed = msgspec.structs.replace(manifest, digest=_compute_digest(manifest))
    return msgspec.json.format(msgspec.json.encode(signed), indent=1) + b"\n"


def decode_manifest(body: bytes, name: str, own_version: str) -> BackupManifest:
    """Decode a manifest. Raises TerminalError if it is changed, or has a newer version."""
    try:
        check_version(decode(body, _Versions), name, own_version)
        manifest = decode(body, BackupManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TerminalError(f"{name} was changed or cut: {error}") from None
    if manifest.digest != _compute_digest(manifest):
        raise TerminalError(f"{name} was changed: its digest is another one than it says")
    seen = set[str]()
    if not 0 <= manifest.created_at <= LATEST_S or any(it.num_bytes < 0 for it in manifest.files):
        raise TerminalError(f"{name} was changed: it has a time or a size that no backup has")
    for file in manifest.files:
        check_path(file.path, name)
        if file.path in seen:
            raise TerminalError(f"{name} was changed: it names {file.path!r} twice")
        seen.add(file.path)
    return manifest


def check_version(found: "_Versions | BackupManifest", name: str, own_version: str) -> None:
    """Raise TerminalError for a backup that a newer version made."""
    if len(found.version) > MAX_VERSION_CHARS or not found.version.isprintable():
        raise TerminalError(f"{name} was changed: its version is no version")
    if found.format > FORMAT or is_newer(found.version, own_version):
        raise TerminalError(
            f"{name} is of Hostelry {found.version} (format {found.format}), and this is"
            f" {own_version} (format {FORMAT}): use Hostelry {found.version} or a later version"
        )


def check_path(path: str, name: str) -> None:
    """Raise TerminalError for a path that does not belong to a home's state."""
    parts = path.split("/")
    is_plain = path.isprintable() and not any(it in ("", ".", "..") for it in parts)
    if not is_plain or parts[0] not in TOP_NAMES or str(PurePosixPath(path)) != path:
        raise TerminalError(f"{name} was changed: it names {path[:200]!r}, which no backup has")


def problems_text(problems: Sequence[str], most: int = 10) -> str:
    """The problems of a backup in one sentence."""
    more = f", and {len(problems) - most} more" if len(problems) > most else ""
    return "; ".join(problems[:most]) + more


def _compute_digest(manifest: BackupManifest) -> str:
    plain = msgspec.structs.replace(manifest, digest="")
    return hashlib.sha256(msgspec.json.encode(plain)).hexdigest()
