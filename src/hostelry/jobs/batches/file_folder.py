"""The bytes of files: one file each, below the home folder, readable by its owner only.

They are here and not in the object store since a batch that is resumed begins at a byte of its
input and at the end of its output, and since no key of S3 opens them.
"""

import contextlib
import os
from collections.abc import Iterator, Set
from pathlib import Path
from typing import IO

from hostelry.base.files import sync_folder
from hostelry.domain.llm_batch import StoredFile, TokenUsage
from hostelry.jobs.batches.batch_claims import BatchClaim
from hostelry.jobs.batches.file_store import Report
from hostelry.jobs.records.batch_results import known_result

UPLOADING = ".upload-"
CHUNK_BYTES = 256 * 1024


class FileFolder:
    """A folder of files by id, a `FileStore`; calls block and raise OSError."""

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, exist_ok=True)
        self._root = root

    def path(self, id: str) -> Path:
        """Where a file's bytes are; ids are this process's own."""
        return self._root / id

    def retain(self, ids: Set[str]) -> None:
        """Remove what no row has: uploads that broke off, and files that were deleted."""
        for found in self._root.iterdir():
            if found.name not in ids:
                found.unlink(missing_ok=True)

    def delete(self, id: str) -> None:
        """Remove a file; nothing where it is gone."""
        self.path(id).unlink(missing_ok=True)

    def new(self, id: str, account: str) -> "NewFile":
        """Begin an upload."""
        return NewFile(self, id)

    def opened(self, id: str) -> IO[bytes]:
        """A file to be read at any place."""
        return self.path(id).open("rb")

    def results(self, id: str, claim: BatchClaim | None, report: Report) -> "ResultFile":
        """What a batch's run appends to."""
        return ResultFile(self.path(id))

    def chunks(self, stored: StoredFile) -> Iterator[bytes]:
        """A file's bytes."""
        with self.opened(stored.id) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk


class NewFile:
    """A file that is being uploaded; it is there under its id after `complete` alone."""

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
        """Make it durable, and visible under its id."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._scratch.replace(self._path)
        sync_folder(self._path.parent)

    def drop(self) -> None:
        """Remove it, complete or not; what cannot be removed goes when the process starts again."""
        with contextlib.suppress(OSError):
            self._file.close()
        for path in (self._scratch, self._path):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


class ResultFile:
    """Lines of a batch's output, appended by one process as they come.

    A kill in the middle of a line leaves a part of it, which `recovered` cuts off: that request is
    sent again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.num_bytes = 0

    def recovered(self) -> dict[str, TokenUsage]:
        """The tokens of each line that is whole, by custom_id; what follows the last is cut off."""
        found: dict[str, TokenUsage] = {}
        with self._path.open("rb") as file:
            for line in file:
                known = known_result(line)
                if known is None:
                    break
                custom_id, usage = known
                found[custom_id] = usage
                self.num_bytes += len(line)
        os.ftruncate(self._file, self.num_bytes)
        return found

    async def append(self, line: bytes) -> None:
        """Add a line, whole or not at all; it is not waited for, so lines do not mix."""
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
        """Close it; a second call must not be made."""
        os.close(self._file)
