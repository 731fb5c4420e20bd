"""Append-only files of frames with checksums; a torn end is not read."""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_HEAD = struct.Struct("<II")  # length and CRC-32 of what follows
MAX_FRAME_BYTES = 64 * 1024 * 1024


class FrameFile:
    """A file to append frames to; it belongs to one process, and is never read through this."""

    def __init__(self, path: Path) -> None:
        """Create the file; raises OSError, FileExistsError where it exists."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self.path = path
        self.size_bytes = 0
        self.is_broken = False
        self._descriptor = os.open(path, flags, 0o600)

    def append(self, body: bytes) -> None:
        """Write one frame; once this returns it survives the process.

        Raises OSError with nothing written. Where a partial frame cannot be truncated, `is_broken`
        is set: write to another file from then on, as a reader stops at the partial frame.
        """
        frame = framed(body)
        try:
            write_whole(self._descriptor, frame)
        except OSError:
            try:
                os.ftruncate(self._descriptor, self.size_bytes)
            except OSError:
                self.is_broken = True
            raise
        self.size_bytes += len(frame)

    def sync(self) -> None:
        """Flush the file to the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def write_whole(descriptor: int, body: bytes) -> None:
    """Write all of `body`, repeating short writes; raises OSError."""
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def framed(body: bytes) -> bytes:
    """One frame: `body` after its length and checksum."""
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def read_frames(path: Path) -> Iterator[bytes]:
    """Every frame up to the first torn or damaged one; raises OSError."""
    with path.open("rb") as file:
        yield from frames_in(file)


def frames_in(file: BinaryIO) -> Iterator[bytes]:
    """As `read_frames`, of an open file."""
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        length, checksum = _HEAD.unpack(head)
        if length > MAX_FRAME_BYTES:
            return
        body = file.read(length)
        if len(body) < length or zlib.crc32(body) != checksum:
            return
        yield body
