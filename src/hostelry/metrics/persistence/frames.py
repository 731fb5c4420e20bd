"""Files of checked frames: what was wholly written is read again, a torn end is not."""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

_HEAD = struct.Struct("<II")  # length and CRC-32 of what follows
MAX_FRAME_BYTES = 64 * 1024 * 1024


class FrameFile:
    """A file that frames are appended to; it belongs to one process, and never reads."""

    def __init__(self, path: Path) -> None:
        """Make the file; raises OSError, FileExistsError where it is there."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self.path = path
        self.size_bytes = 0
        self.is_broken = False
        self._descriptor = os.open(path, flags, 0o600)

    def append(self, body: bytes) -> None:
        """Write one frame; on return it outlives the process.

        Raises OSError with nothing written. Where even the part written cannot be taken back the
        file is broken: another must be made, as a reader stops at that part.
        """
        frame = _HEAD.pack(len(body), zlib.crc32(body)) + body
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
        """Return once the disk itself has it."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Give the file back; a second time does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def write_whole(descriptor: int, body: bytes) -> None:
    """Write all of `body`, however little the system takes at a time; raises OSError."""
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_frames(path: Path) -> Iterator[bytes]:
    """Every whole frame from the beginning to the first that is not; raises OSError."""
    with path.open("rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, checksum = _HEAD.unpack(head)
            if length > MAX_FRAME_BYTES:
                return
            body = file.read(length)
            if len(body) < length or zlib.crc32(body) != checksum:
                return
            yield body
