"""Log file of a copy: output of the model server and notes of the agent, of limited size.

The model server writes to the file directly, so that its output survives the agent. The file is
opened for appending, so it can be truncated while the server writes.
"""

import contextlib
import os
import re
from pathlib import Path

import msgspec

from hostelry.domain.trouble import NOTE

MAX_LOG_BYTES = 64 * 1024 * 1024
KEPT_BYTES = 1024 * 1024
MAX_TAIL_BYTES = 256 * 1024
MAX_HEADING_BYTES = 128
HEADING = re.compile(rb"\[agent\] log cut at byte (\d{1,18}) of its output; its end follows\n")


class CopyLog:
    """The log of one copy. Calls block briefly."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, line: str) -> None:
        """Append a line of the agent. The line is lost if the log is gone or the disk full."""
        with contextlib.suppress(OSError), open(self._path, "ab", opener=_private) as file:
            file.write(f"{NOTE}{line}\n".encode())

    def tail(self, max_lines: int, max_bytes: int = MAX_TAIL_BYTES) -> str:
        """The last `max_lines` lines within the last `max_bytes`. Empty without a log."""
        if max_lines <= 0:
            return ""
        lines = _last_bytes(self._path, max_bytes).splitlines()[-max_lines:]
        return b"\n".join(lines).decode("utf-8", "replace")

    def bound(self, max_bytes: int = MAX_LOG_BYTES, kept_bytes: int = KEPT_BYTES) -> bool:
        """Cut a log longer than `max_bytes` to its last `kept_bytes`. False if it is shorter.

        Lines written during the cut may be lost.
        """
        try:
            size_bytes = self._path.stat().st_size
        except FileNotFoundError:
            return False
        if size_bytes <= max_bytes:
            return False
        heading = parse_heading(_first_bytes(self._path))
        kept = _last_bytes(self._path, kept_bytes)
        first = heading.position + size_bytes - heading.length - len(kept)
        os.truncate(self._path, 0)
        with open(self._path, "ab", opener=_private) as file:
            file.write(f"{NOTE}log cut at byte {first} of its output; its end follows\n".encode())
            file.write(kept)
        return True


class Heading(msgspec.Struct, frozen=True):
    """The heading of a log that was cut: its length, and the position of the byte after it.

    Positions count the bytes of all output, including the bytes that were cut.
    """

    length: int = 0
    position: int = 0


def parse_heading(first_bytes: bytes) -> Heading:
    """The heading of the log that begins with these bytes. Empty if it was never cut."""
    match = HEADING.match(first_bytes)
    return Heading() if match is None else Heading(match.end(), int(match[1]))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_HEADING_BYTES)


def _last_bytes(path: Path, max_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(0, size_bytes - max_bytes))
            return file.read(max_bytes)
    except FileNotFoundError:
        return b""
