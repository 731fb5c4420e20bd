"""Log file of a copy: output of the model server and notes of the agent, bounded in size.

The model server writes to the file directly, so that its output survives the agent. The file is
opened for appending, so it can be truncated while the server writes.
"""

import contextlib
import os
from pathlib import Path

MAX_LOG_BYTES = 64 * 1024 * 1024
KEPT_BYTES = 1024 * 1024
MAX_TAIL_BYTES = 256 * 1024
NOTE = "[agent] "  # prefix of the agent's lines


class CopyLog:
    """The log of one copy. Calls block briefly."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, line: str) -> None:
        """Append a line of the agent; it is lost if the log is gone or the disk full."""
        with contextlib.suppress(OSError), open(self._path, "ab", opener=_private) as file:
            file.write(f"{NOTE}{line}\n".encode())

    def tail(self, max_lines: int, max_bytes: int = MAX_TAIL_BYTES) -> str:
        """The last `max_lines` lines within the last `max_bytes`; empty when there is no log."""
        if max_lines <= 0:
            return ""
        text = _last_bytes(self._path, max_bytes).decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-max_lines:])

    def bound(self, max_bytes: int = MAX_LOG_BYTES, kept_bytes: int = KEPT_BYTES) -> bool:
        """Cut a log longer than `max_bytes` to its last `kept_bytes`; return whether it was cut.

        Lines written during the cut may be lost.
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
