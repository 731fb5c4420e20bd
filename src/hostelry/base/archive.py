"""Unpack an untrusted tar archive into a folder, or refuse it whole.

Plain files and folders only. Every refusal names the member and the limit, and removes everything
that was unpacked. Bytes are counted as they come out of the decompressor, so that an archive is
refused when it passes a limit, not after it filled the disk.
"""

import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

import msgspec
from msgspec.structs import replace

from hostelry.base.files import (
    MAX_DEPTH,
    FileTree,
    UnsafeFilesError,
    check_lengths,
    quote,
)

MIB = 1024 * 1024
GIB = 1024 * MIB
BLOCK_BYTES = MIB
MAX_HEADER_BYTES = MIB
EXTENDED_HEADERS = frozenset(
    {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE}
    | {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
)
KINDS = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a character device",
    tarfile.BLKTYPE: "a block device",
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
    tarfile.CONTTYPE: "a contiguous file",
}


class ArchiveLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of an archive. The ratio is unpacked to packed bytes, past `ratio_floor_bytes`.

    `max_members` bounds its members, and the files and folders that they make. `total_bound` names
    the source of `max_total_bytes` if that is not the archive's own limit. With `gzip_only` a tar
    that is not compressed is refused.
    """

    max_members: int = 100_000
    max_total_bytes: int = 200 * GIB
    total_bound: str = ""
    max_member_bytes: int = 100 * GIB
    max_ratio: float = 200.0
    ratio_floor_bytes: int = 8 * MIB
    max_depth: int = MAX_DEPTH
    gzip_only: bool = False

    def within(self, max_bytes: int, bound: str) -> "ArchiveLimits":
        """These limits, with a total of at most `max_bytes`. `bound` explains a lowered total."""
        if max_bytes >= self.max_total_bytes:
            return self
        return replace(self, max_total_bytes=max_bytes, total_bound=bound)


class Contents(msgspec.Struct):
    """The members unpacked so far."""

    tree: FileTree
    total_bytes: int = 0
    members: int = 0


def unpack(
    archive: Path,
    target: Path,
    limits: ArchiveLimits,
    check_cancelled: Callable[[], None] = lambda: None,
    *,
    takes: Callable[[str], bool] = lambda name: True,
) -> None:
    """Unpack the .tar.gz or .tar file into `target`, which must not exist.

    Files become 0644, or 0755 when their owner may execute them. A member whose path `takes`
    declines is checked like the others, but not written. `check_cancelled` is called between
    blocks and may raise. Raises UnsafeFilesError after it has removed `target` again.
    """
    target.mkdir()
    try:
        with _translate_errors(archive), _plain_tar(archive, limits, check_cancelled) as stream:
            _unpack_members(stream, target, limits, takes)
            stream.drain()
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


class _StrictInfo(tarfile.TarInfo):
    """A header that is refused where tarfile would stop early or read without bound."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """The parsed header block."""
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # typeshed leaves it out
            raise
        except UnicodeDecodeError as error:
            raise UnsafeFilesError(f"a member's name is not UTF-8: {bytes(buf[:100])!r}") from error
        except tarfile.HeaderError as error:
            raise UnsafeFilesError(f"the archive is cut off or corrupt: {error}") from error
        if info.size < 0:
            raise UnsafeFilesError(f"member {quote(info.name)} has a size of {info.size} bytes")
        if info.type in EXTENDED_HEADERS and info.size > MAX_HEADER_BYTES:
            raise UnsafeFilesError(
                f"an extended header of {info.size} bytes; at most {MAX_HEADER_BYTES} are read"
            )
        return info


class _CountedFile:
    """The packed file. It counts the bytes that were read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.bytes_read = 0

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes."""
        block = self._file.read(size)
        self.bytes_read += len(block)
        return block


class _PlainTar:
    """The unpacked stream, held to the limits on size and ratio at every read."""

    def __init__(
        self,
        stream: IO[bytes],
        packed: _CountedFile,
        limits: ArchiveLimits,
        check_cancelled: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._packed = packed
        self._limits = limits
        self._check_cancelled = check_cancelled
        self._bytes = 0

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes. Raises UnsafeFilesError once a limit is passed."""
        self._check_cancelled()
        block = self._stream.read(size)
        self._bytes += len(block)
        limits = self._limits
        # Headers and padding come on top of the members' own bytes.
        if self._bytes > limits.max_total_bytes + 1024 * (limits.max_members + 20):
            raise UnsafeFilesError(
                f"it unpacks to more than {limits.max_total_bytes} bytes{limits.total_bound}"
            )
        ratio = self._bytes / max(1, self._packed.bytes_read)
        if self._bytes > limits.ratio_floor_bytes and ratio > limits.max_ratio:
            raise UnsafeFilesError(
                f"it unpacks to more than {limits.max_ratio:g} times its size "
                f"({self._bytes} bytes out of {self._packed.bytes_read})"
            )
        return block

    def drain(self) -> None:
        """Read to the end, which verifies the checksum of a compressed stream."""
        while self.read(BLOCK_BYTES):
            pass


@contextmanager
def _plain_tar(
    archive: Path, limits: ArchiveLimits, check_cancelled: Callable[[], None]
) -> Iterator[_PlainTar]:
    with archive.open("rb") as file:
        start = file.read(512)
        file.seek(0)
        packed = _CountedFile(file)
        if start[:2] == b"\x1f\x8b":
            source: Any = packed
            with gzip.GzipFile(fileobj=source, mode="rb") as unpacked:
                plain: Any = unpacked
                yield _PlainTar(plain, packed, limits, check_cancelled)
        elif start[257:262] == b"ustar" and not limits.gzip_only:
            counted: Any = packed
            yield _PlainTar(counted, packed, limits, check_cancelled)
        elif start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            raise UnsafeFilesError("it is a zip archive; model data must be a .tar.gz")
        else:
            kinds = "no .tar.gz" if limits.gzip_only else "neither a .tar.gz nor a .tar"
            raise UnsafeFilesError(f"it is {kinds}")


def _unpack_members(
    stream: _PlainTar, target: Path, limits: ArchiveLimits, takes: Callable[[str], bool]
) -> None:
    contents = Contents(FileTree(limits.max_members, limits.max_depth))
    source: Any = stream
    with tarfile.open(
        fileobj=source,
        mode="r|",
        bufsize=BLOCK_BYTES,
        tarinfo=_StrictInfo,
        encoding="utf-8",
        errors="strict",
    ) as tar:
        while (member := tar.next()) is not None:
            path = _check_member(member, contents, limits)
            if takes(path):
                _write(tar, member, target / path)
            # tarfile keeps every header, for a search by name that is never made here.
            tar.members.clear()  # type: ignore[attr-defined]  # typeshed leaves `members` out
    if contents.members == 0:
        raise UnsafeFilesError("the archive is empty")


def _check_member(member: tarfile.TarInfo, contents: Contents, limits: ArchiveLimits) -> str:
    """The member's clean relative path, entered into `contents`. "" for the root folder itself.

    Raises UnsafeFilesError with the member and its fault.
    """
    contents.members += 1
    if contents.members > limits.max_members:
        raise UnsafeFilesError(f"it has more than {limits.max_members} members")
    _check_kind(member)
    parts = _clean_parts(member.name)
    _check_size(member, contents, limits)
    if parts:
        contents.tree.enter(parts, is_folder=member.isdir())
    elif not member.isdir():
        raise UnsafeFilesError(f"member {quote(member.name)} is a file without a name")
    return "/".join(parts)


def _check_kind(member: tarfile.TarInfo) -> None:
    if member.issparse():
        raise UnsafeFilesError(
            f"member {quote(member.name)} is a sparse file; only plain files are taken"
        )
    if member.isdir() or member.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
        return
    kind = KINDS.get(member.type, f"of unknown type {member.type!r}")
    raise UnsafeFilesError(f"member {quote(member.name)} is {kind}; only plain files are taken")


def _clean_parts(name: str) -> list[str]:
    if name.startswith("/"):
        raise UnsafeFilesError(f"member {quote(name)} has an absolute path")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UnsafeFilesError(f"member {quote(name)} leaves the archive's folder")
    if "\0" in name:
        raise UnsafeFilesError(f"member {quote(name)} has a NUL in its name")
    check_lengths(parts, name)
    return parts


def _check_size(member: tarfile.TarInfo, contents: Contents, limits: ArchiveLimits) -> None:
    if not 0 <= member.size <= limits.max_member_bytes:
        raise UnsafeFilesError(
            f"member {quote(member.name)} has {member.size} bytes; {limits.max_member_bytes} are "
            "allowed"
        )
    contents.total_bytes += member.size
    if contents.total_bytes > limits.max_total_bytes:
        raise UnsafeFilesError(
            f"it unpacks to more than {limits.max_total_bytes} bytes{limits.total_bound}, at "
            f"member {quote(member.name)}"
        )


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None
    mode = 0o755 if member.mode & 0o100 else 0o644
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with source, os.fdopen(descriptor, "wb") as file:
        shutil.copyfileobj(source, file, BLOCK_BYTES)
    written = path.stat().st_size
    if written != member.size:
        raise UnsafeFilesError(
            f"the archive is cut off: member {quote(member.name)} has {written} of {member.size} "
            "bytes"
        )


@contextmanager
def _translate_errors(archive: Path) -> Iterator[None]:
    """Let every fault of the archive surface as UnsafeFilesError."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnsafeFilesError(f"the archive is cut off or corrupt: {error}") from error
    except tarfile.TarError as error:
        raise UnsafeFilesError(f"the archive is no readable tar: {error}") from error
    except (UnicodeError, ValueError, OverflowError, RecursionError) as error:
        raise UnsafeFilesError(f"the archive has an unreadable header: {error}") from error
