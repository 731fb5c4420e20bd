"""Takes an adapter's files out of a tar archive that nobody vouches for."""

import gzip
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Self

from hostelry.engine.lora.errors import AdapterError

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
MAX_MEMBERS = 10_000
MAX_HEADER_BYTES = 1 << 20
UNREADABLE = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError),
    *(ValueError, OverflowError, RecursionError),
)
EXTENDED = frozenset(
    {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE}
    | {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
)


class BoundedInfo(tarfile.TarInfo):
    """A header, refused where tarfile would read one of any length into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """The header in a block."""
        info = super().frombuf(buf, encoding, errors)
        if info.type in EXTENDED and info.size > MAX_HEADER_BYTES:
            raise AdapterError(f"the archive has a header of {info.size} bytes")
        return info


def unpack_adapter(archive: Path, into: Path, *, max_bytes: int) -> None:
    """Write the files of the one adapter in a .tar.gz into `into`, at its top.

    They may lie in a folder of the archive. Nothing else is written, links and names that lead out
    of the archive are refused, and no more than `max_bytes` are unpacked. Raises AdapterError.
    """
    left = max_bytes
    folders = set()
    try:
        # Not tarfile's own reader of gzip, which raises anything for a header that is cut off.
        with (
            gzip.open(archive) as plain,
            tarfile.open(fileobj=plain, mode="r|", tarinfo=BoundedInfo) as tar,
        ):
            for number, member in enumerate(tar, 1):
                left -= max(0, member.size)
                check_member(member, number, left, max_bytes)
                path = PurePosixPath(member.name)
                if member.isfile() and path.name in ADAPTER_FILES:
                    folders.add(path.parent)
                    take(tar, member, into / path.name)
                tar.members.clear()  # type: ignore[attr-defined]  # tarfile keeps every header
    except UNREADABLE as error:
        if isinstance(error, AdapterError):
            raise
        raise AdapterError(f"the archive is cut off or no .tar.gz: {error}") from error
    if len(folders) != 1:
        where = ", ".join(sorted(str(it) for it in folders)) or "none"
        raise AdapterError(f"the archive must hold one adapter; folders with files of one: {where}")


def check_member(member: tarfile.TarInfo, number: int, left: int, max_bytes: int) -> None:
    """Raise AdapterError for what does not belong into an archive of plain files."""
    shown = member.name[:80]
    if number > MAX_MEMBERS:
        raise AdapterError(f"the archive has more than {MAX_MEMBERS} members")
    if left < 0:
        raise AdapterError(f"the archive unpacks to more than {max_bytes} bytes, at {shown!r}")
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise AdapterError(f"the archive's member {shown!r} leads out of the archive")
    if member.issparse() or not (member.isfile() or member.isdir()):
        raise AdapterError(f"the archive's member {shown!r} is neither a file nor a folder")


def take(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """Write one member, which must be whole and come once."""
    source = tar.extractfile(member)
    assert source is not None, "a regular file can be read"
    try:
        with source, path.open("xb") as file:
            shutil.copyfileobj(source, file)
    except FileExistsError:
        raise AdapterError(f"the archive has {path.name} twice") from None
    if path.stat().st_size != member.size:
        raise AdapterError(f"the archive is cut off at {path.name}")
