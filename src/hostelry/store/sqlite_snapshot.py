"""One state of a SQLite file, copied to another file while processes keep writing it."""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hostelry.base.errors import TerminalError
from hostelry.store.sqlite import BUSY_TIMEOUT_S

PAGES_AT_ONCE = 1024


class SqliteSnapshot:
    """The file as it is when this is made: a transaction that reads is open until `close`.

    It keeps no writer waiting. Raises TerminalError if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            self._source = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_S)
            # The transaction begins with its first read, and a copy from a connection that has one
            # does not begin again when another process writes.
            self._source.execute("BEGIN")
            self._source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (pages,) = self._source.execute("PRAGMA page_count").fetchone()
            (page_bytes,) = self._source.execute("PRAGMA page_size").fetchone()
        self.num_bytes = int(pages) * int(page_bytes)

    def copy_to(self, target: Path, copied: Callable[[int], None]) -> None:
        """Write the state to a new file; `copied` is called with the bytes so far.

        Raises TerminalError, and OSError if the disk of `target` is full or fails.
        """

        def report(_: int, left: int, total: int) -> None:
            copied(self.num_bytes * (total - left) // max(total, 1))

        with self._explained():
            copy = sqlite3.connect(target, isolation_level=None)
            try:
                copy.execute("PRAGMA synchronous=OFF")  # the caller syncs the whole file
                self._source.backup(copy, pages=PAGES_AT_ONCE, progress=report, sleep=0.0)
            finally:
                copy.close()

    def close(self) -> None:
        """End the transaction."""
        self._source.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise TerminalError(f"{self._path} cannot be copied: {error}") from error
