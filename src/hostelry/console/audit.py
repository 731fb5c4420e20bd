"""The audit of acts: a JSON object a line, on disk before the act is done, and once more after."""

import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

MAX_BYTES = 8 * 1024 * 1024  # then the file becomes NAME.1, and the one before it goes
SHOWN = 100


class ActAudit:
    """The file of what was done."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now

    def write(self, entry: Mapping[str, Any]) -> None:
        """Add `entry`, with the time; it is on disk at the return. Raises OSError."""
        line = msgspec.json.encode({"at": self._now(), **entry}) + b"\n"
        if self._size() + len(line) > MAX_BYTES:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, (b"\n" if _is_torn(descriptor) else b"") + line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def last(self) -> list[dict[str, Any]]:
        """The last entries, the newest first; lines that a kill tore are left out."""
        try:
            with self._path.open("rb") as file:
                lines = deque(file, maxlen=SHOWN)
        except FileNotFoundError:
            return []
        found = (_entry(line) for line in reversed(lines))
        return [it for it in found if it is not None]

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0


def _is_torn(descriptor: int) -> bool:
    """Whether the file ends within a line."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None
