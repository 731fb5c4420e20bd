"""A copy's log file: what the model server printed, lines of the agent's own, bounded in size.

The model server writes to the file directly, so that its output survives the agent; the file is
opened for appending, which makes it safe to cut while it is written to.
"""

import contextlib
import os
from pathlib import Path

MAX_LOG_BYTES = 64 * 1024 * 1024
KEPT_BYTES = 1024 * 1024
MAX_TAIL_BYTES = 256 * 1024
NOTE = "[agent] "  # begins the agent's lines among the model server's


class CopyLog:
    """The log of one copy. Blocking calls, each of them short."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, line: str) -> None:
        """Append a line of the agent's; a log that is gone or a full disk loses it."""
        with contextlib.suppress(OSError), open(self._path, "ab", opener=_private) as file:
            file.write(f"{NOTE}{line}\n".encode())

    def tail(self, max_lines: int, max_bytes: int = MAX_TAIL_BYTES) -> str:
        """The last `max_lines` lines within the last `max_bytes`; empty when there is no log."""
        if max_lines <= 0:
            return ""
        text = _last_bytes(self._path, max_bytes).decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-max_lines:])

    def bound(self, max_bytes: int = MAX_LOG_BYTES, kept_bytes: int = KEPT_BYTES) -> bool:
        """Cut a log longer than `max_bytes` to its end; whether it was cut.

        Lines printed in the moment of the cut may be lost.
        """
        try:
            size_bytes = self._path.stat().st_size
        except FileNotFoundError:
            return False
        if size_bytes <= max_bytes:
            return False
        kept = _last_bytes(self._path, kept_bytes)
        os.truncate(self._path, 0)
        with open(self._path, "ab", opener=_private) as file:
            file.write(f"{NOTE}log cut at {size_bytes} bytes; its end follows\n".encode())
            file.write(kept)
        return True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _last_bytes(path: Path, max_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(0, size_bytes - max_bytes))
            return file.read(max_bytes)
    except FileNotFoundError:
        return b""
