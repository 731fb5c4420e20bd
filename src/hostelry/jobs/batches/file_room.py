"""The room that an account's files may take, those that are being uploaded among them.

What batches write counts, too, but is never refused: they are begun only where their input was.
"""

import threading
from collections import Counter

from hostelry.base.errors import ServiceError
from hostelry.domain.llm_batch import StoredFile
from hostelry.jobs.batches.openai_objects import build_refusal
from hostelry.jobs.batches.rows import BatchRows

TOO_MUCH = 413


class FileRoom:
    """The room of every account; thread-safe."""

    def __init__(self, rows: BatchRows, max_bytes: int) -> None:
        self.rows = rows
        self.max_bytes = max_bytes
        self._arriving: Counter[str] = Counter()  # bytes of uploads that have not ended
        self._lock = threading.Lock()

    def opened(self, account: str) -> "UploadedBytes":
        """An upload of the account's; raises ServiceError 413 where no byte has room."""
        found = UploadedBytes(self, account, self.rows.bytes_of(account))
        found.add(0)
        return found

    def arrived(self, account: str, num_bytes: int) -> int:
        """Count bytes of an upload, or take them back; those of all uploads of the account."""
        with self._lock:
            self._arriving[account] += num_bytes
            return self._arriving[account]

    def refusal(self, held_bytes: int) -> ServiceError:
        """The error of an upload beside files of so many bytes."""
        return build_refusal(
            f"The files of this account have {held_bytes} bytes, and may have {self.max_bytes}"
            " with this one. Delete files, or raise --files-gb of `hostelry up`.",
            "file",
            "storage_limit_exceeded",
            TOO_MUCH,
        )


class UploadedBytes:
    """The bytes of one upload, which count as the account's until it is kept or closed."""

    def __init__(self, room: FileRoom, account: str, held_bytes: int) -> None:
        self._room = room
        self._account = account
        self._held_bytes = held_bytes  # of files, when the upload began
        self._num_bytes = 0

    def add(self, num_bytes: int) -> None:
        """Count bytes; raises ServiceError 413 where they have no room."""
        arriving = self._room.arrived(self._account, num_bytes)
        self._num_bytes += num_bytes
        if self._held_bytes + max(1, arriving) > self._room.max_bytes:
            raise self._room.refusal(self._held_bytes + arriving - self._num_bytes)

    def keep(self, stored: StoredFile) -> None:
        """Keep the file's row; raises ServiceError 413 where others took its room meanwhile."""
        if not self._room.rows.add_file(stored, self._room.max_bytes):
            raise self._room.refusal(self._room.rows.bytes_of(self._account))

    def close(self) -> None:
        """The upload has ended, well or not."""
        self._room.arrived(self._account, -self._num_bytes)
        self._num_bytes = 0
