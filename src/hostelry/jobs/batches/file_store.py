"""The bytes of files: the interface, and a folder of the home that implements it.

Calls block, except `ResultLines.append`. Raises OSError or RetryableError if the bytes cannot be
read or written now, and FileNotFoundError if the file is gone.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import IO, Protocol

from hostelry.base.files import sync_folder
from hostelry.domain.llm_batch import StoredFile, TokenUsage
from hostelry.jobs.batches.rows import BatchClaim
from hostelry.jobs.records.batch_lines import read_results

Report = Callable[[str], None]


class IncomingFile(Protocol):
    """A file that is being uploaded. Its bytes are durable after `complete`."""

    num_bytes: int

    def write(self, data: bytes) -> None:
        """Add bytes."""
        ...

    def complete(self) -> None:
        """Make the file durable."""
        ...

    def drop(self) -> None:
        """Remove the file. Raises nothing."""
        ...


class ResultLines(Protocol):
    """The lines of a batch's output or errors, appended by one run."""

    num_bytes: int

    def recover(self) -> dict[str, TokenUsage]:
        """Cut off an incomplete last line, and return the tokens of each line by custom_id."""
        ...

    async def append(self, line: bytes) -> None:
        """Add a whole line or nothing. On return the line survives the end of the process."""
        ...

    def sync(self) -> None:
        """Make the lines durable."""
        ...

    def close(self) -> None:
        """Stop writing. Must be called once."""
        ...


class FileStore(Protocol):
    """The bytes of all files, by id."""

    def begin_upload(self, id: str, account: str) -> IncomingFile:
        """Begin an upload."""
        ...

    def read_chunks(self, stored: StoredFile) -> Iterator[bytes]:
        """Yield the bytes of a file. Raises an error if some are missing."""
        ...

    def open(self, id: str) -> IO[bytes]:
        """Open a file, or a local copy of it, for reading at any place."""
        ...

    def open_results(self, id: str, claim: BatchClaim | None, report: Report) -> ResultLines:
        """Open the lines that a run appends to. `report` is called with the cause of a wait."""
        ...

    def delete(self, id: str) -> None:
        """Remove the bytes of a file whose row is gone. Idempotent."""
        ...


UPLOADING = ".upload-"
CHUNK_BYTES = 256 * 1024


class FileFolder:
    """A folder of files by id, readable by its owner only. Implements `FileStore`.

    Files are not in the object store, because a resumed batch reads its input from any byte and
    appends to its output, and because no key of S3 may open them.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, exist_ok=True)
        self._root = root

    def path(self, id: str) -> Path:
        """The path of a file. Ids come from this process and are safe in a path."""
        return self._root / id

    def retain(self, ids: Set[str]) -> None:
        """Remove files that are not in `ids`: broken uploads and deleted files."""
        for found in self._root.iterdir():
            if found.name not in ids:
                found.unlink(missing_ok=True)

    def delete(self, id: str) -> None:
        """Remove a file. Idempotent."""
        self.path(id).unlink(missing_ok=True)

    def begin_upload(self, id: str, account: str) -> "NewFile":
        """Begin an upload."""
        return NewFile(self, id)

    def open(self, id: str) -> IO[bytes]:
        """Open a file for reading at any place."""
        return self.path(id).open("rb")

    def open_results(self, id: str, claim: BatchClaim | None, report: Report) -> "ResultFile":
        """Open the lines that a run appends to."""
        return ResultFile(self.path(id))

    def read_chunks(self, stored: StoredFile) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        with self.open(stored.id) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk


class NewFile:
    """A file that is being uploaded. It has its id as its name after `complete`."""

    def __init__(self, folder: FileFolder, id: str) -> None:
        self._path = folder.path(id)
        self._scratch = self._path.with_name(UPLOADING + id)
        self._file = os.fdopen(
            os.open(self._scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
        )
        self.num_bytes = 0

    def write(self, data: bytes) -> None:
        """Add bytes."""
        self._file.write(data)
        self.num_bytes += len(data)

    def complete(self) -> None:
        """Make the file durable, and visible under its id."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._scratch.replace(self._path)
        sync_folder(self._path.parent)

    def drop(self) -> None:
        """Remove the file, complete or not. The next start removes it if this fails."""
        with contextlib.suppress(OSError):
            self._file.close()
        for path in (self._scratch, self._path):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


class ResultFile:
    """Lines of a batch's output, appended by one process as they come.

    A kill may leave a part of a line. `recover` cuts it off, and the request is sent again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.num_bytes = 0

    def recover(self) -> dict[str, TokenUsage]:
        """Cut off an incomplete last line, and return the tokens of each line by custom_id."""
        with self._path.open("rb") as file:
            found, self.num_bytes = read_results(file)
        os.ftruncate(self._file, self.num_bytes)
        return found

    async def append(self, line: bytes) -> None:
        """Add a whole line or nothing. Never waits, so that lines do not mix."""
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            os.ftruncate(self._file, self.num_bytes)
            raise
        self.num_bytes += len(line)

    def sync(self) -> None:
        """Make the lines durable."""
        os.fsync(self._file)
        sync_folder(self._path.parent)

    def close(self) -> None:
        """Close the file. Must be called once."""
        os.close(self._file)
