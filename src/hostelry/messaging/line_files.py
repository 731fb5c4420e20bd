"""Files that subscribe to topics. Each has one JSON document per line, all are in one folder."""

import json
import os
import re
import threading
from io import FileIO
from pathlib import Path

MAX_FILE_BYTES = 8 * 1024 * 1024
OLD_FILES = 3
MAX_FILES = 100
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}\.jsonl")


class LineFiles:
    """The files of a folder. A full file is renamed to NAME.1. At most NAME.3 is kept.

    Thread-safe.
    """

    def __init__(self, folder: Path, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._folder = folder
        self._max_file_bytes = max_file_bytes
        self._lock = threading.Lock()

    def append(self, name: str, text: str) -> None:
        """Append one line durably. Raises OSError, and then keeps no part of the line."""
        if not is_file_name(name):
            raise OSError(f"{name!r} is not a name of a file of topics")
        path = self._folder / name
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._lock:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(path)
            with os.fdopen(os.open(path, flags, 0o600), "a+b", buffering=0) as file:
                # A kill may leave part of a line, which needs an end before the next line.
                _append(file, b"\n" * _is_cut_off(file.fileno()) + build_line(text))

    def _make_room(self, path: Path) -> None:
        try:
            size = path.lstat().st_size
        except FileNotFoundError:
            if sum(1 for _ in self._folder.glob("*.jsonl")) >= MAX_FILES:
                raise OSError(f"{self._folder} has {MAX_FILES} files already") from None
            return
        if size < self._max_file_bytes:
            return
        for number in range(OLD_FILES - 1, 0, -1):
            older = path.with_name(f"{path.name}.{number}")
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number + 1}"))
        path.replace(path.with_name(f"{path.name}.1"))


def _append(file: FileIO, line: bytes) -> None:
    """Write and sync `line`. Raises OSError after the file is restored."""
    size = os.fstat(file.fileno()).st_size
    try:
        while line:
            line = line[file.write(line) :]
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), size)
        raise


def _is_cut_off(descriptor: int) -> bool:
    """Whether the file's last line lacks its end."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


def is_file_name(name: str) -> bool:
    """Whether `name` is NAME.jsonl and cannot lead to another folder."""
    return NAME.fullmatch(name) is not None


def build_line(text: str) -> bytes:
    """Build one line from `text`: compact JSON if it is JSON, otherwise a JSON string."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = text
    line = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return line.encode(errors="backslashreplace") + b"\n"  # JSON may have half a surrogate pair
