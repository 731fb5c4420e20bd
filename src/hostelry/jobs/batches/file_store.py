"""Bytes of files, wherever they are kept: what uploads, batches and clients need of them.

Calls block, but for `ResultLines.append`; they raise OSError or RetryableError where the place
cannot be read or written now, FileNotFoundError where the bytes are gone.
"""

from collections.abc import Callable, Iterator
from typing import IO, Protocol

from hostelry.domain.llm_batch import StoredFile, TokenUsage
from hostelry.jobs.batches.batch_claims import BatchClaim

Report = Callable[[str], None]


class IncomingFile(Protocol):
    """A file that is being uploaded; its bytes are durable after `complete`."""

    num_bytes: int

    def write(self, data: bytes) -> None:
        """Add bytes."""
        ...

    def complete(self) -> None:
        """Make it durable."""
        ...

    def drop(self) -> None:
        """Remove it; raises nothing."""
        ...


class ResultLines(Protocol):
    """The lines of a batch's output or errors, appended by one run."""

    num_bytes: int

    def recovered(self) -> dict[str, TokenUsage]:
        """The tokens of each line that is whole, by custom_id; what follows the last is cut off."""
        ...

    async def append(self, line: bytes) -> None:
        """Add a line, whole or not at all; it survives the process once this returns."""
        ...

    def sync(self) -> None:
        """Make the lines durable."""
        ...

    def close(self) -> None:
        """Write nothing more; a second call must not be made."""
        ...


class FileStore(Protocol):
    """The bytes of all files, by id."""

    def new(self, id: str, account: str) -> IncomingFile:
        """Begin an upload."""
        ...

    def chunks(self, stored: StoredFile) -> Iterator[bytes]:
        """A file's bytes, all of them or an error."""
        ...

    def opened(self, id: str) -> IO[bytes]:
        """A file to be read at any place, on this machine."""
        ...

    def results(self, id: str, claim: BatchClaim | None, report: Report) -> ResultLines:
        """What a batch's run appends to; `report` is called with why it waits."""
        ...

    def delete(self, id: str) -> None:
        """Remove the bytes of a file whose row is gone; nothing where they are gone."""
        ...
