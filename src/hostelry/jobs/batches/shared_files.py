"""The bytes of files in a database that several hosts share, stored in chunks.

event                                 the bytes
-----------------------------------   ----------------------------------------------------------
an upload comes in                    are added as chunks. Each commit renews the upload's row in
                                      `openai_unlisted`. No list shows the file
the upload is complete                are kept. One commit moves the row to `openai_file`
the upload breaks off, or its host    are removed at once, at the next start of the host, or by a
dies                                  sweep UPLOAD_S after the last bytes
a line of a batch is answered         are added at the end of the output, under the batch's claim
a file is deleted, or a batch fails   are removed, because a row in `openai_unlisted` says so

Files are not in an object store, because lines are appended to an output under a claim, because a
file's row and its bytes change in one commit, and because no key of S3 may open them.
"""

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO

import sqlalchemy as sa
from sqlalchemy import Connection

from hostelry.base.clock import Clock
from hostelry.base.concurrency import GroupedCalls
from hostelry.base.files import sync_folder
from hostelry.domain.llm_batch import LlmBatch, StoredFile, TokenUsage
from hostelry.jobs.batches.file_store import FileFolder, Report
from hostelry.jobs.batches.rows import (
    CHUNKS,
    METADATA,
    SHARED,
    UNLISTED,
    BatchClaim,
    BatchClaimLostError,
    BatchRows,
    check_held,
    end_claim,
    sum_file_bytes,
)
from hostelry.jobs.records.batch_lines import read_results
from hostelry.store.database import Database, open_database
from hostelry.store.protocol import StoreUnavailable
from hostelry.store.tables import insert_once

LOG = logging.getLogger(__name__)
REMOVED = 0.0  # `expires_at` of files that the next sweep removes


class SharedBatchRows(BatchRows):
    """The rows of all accounts, as `host` sees them."""

    def __init__(self, database: Database, host: str) -> None:
        super().__init__(database)
        self._host = host
        database.create(SHARED)

    def count_bytes(self, account: str) -> int:
        """Sum the sizes of an account's files, and of the uploads that other hosts receive."""
        arriving = sa.select(sa.cast(sa.func.sum(UNLISTED.c.num_bytes), sa.BigInteger)).where(
            UNLISTED.c.account == account,
            UNLISTED.c.host != self._host,
            UNLISTED.c.expires_at > REMOVED,
        )
        with self._database.read() as connection:
            elsewhere = connection.execute(arriving).scalar_one()
            return sum_file_bytes(connection, account) + (elsewhere or 0)

    def _lock_account(self, connection: Connection, account: str) -> None:
        # Each upload has a row here, so the second of two uploads waits for the first.
        mine = sa.select(UNLISTED.c.id).where(UNLISTED.c.account == account)
        connection.execute(mine.order_by(UNLISTED.c.id).with_for_update()).all()

    def _publish_upload(self, connection: Connection, stored: StoredFile) -> None:
        gone = sa.delete(UNLISTED).where(
            UNLISTED.c.id == stored.id, UNLISTED.c.expires_at > REMOVED
        )
        if connection.execute(gone).rowcount != 1:
            raise StoreUnavailable("the upload paused for too long, and was given up; try again")

    def _mark_removed(self, connection: Connection, account: str, ids: Sequence[str]) -> None:
        for id in ids:
            row = {"id": id, "account": account, "host": self._host, "num_bytes": 0}
            insert = insert_once(UNLISTED, connection)
            connection.execute(insert, {**row, "expires_at": REMOVED})

    def _check(self, connection: Connection, claim: BatchClaim | None) -> None:
        if claim is not None:
            check_held(connection, claim)

    def _clean_up(self, connection: Connection, batch: LlmBatch, claim: BatchClaim | None) -> None:
        if claim is not None:
            end_claim(connection, claim)
        given = {batch.output_file_id: batch.has_output, batch.error_file_id: batch.has_errors}
        lost = [id for id, is_given in given.items() if not is_given]
        left = sa.select(CHUNKS.c.file).where(CHUNKS.c.file.in_(lost)).distinct()
        ids = [row.file for row in connection.execute(left)]
        self._mark_removed(connection, batch.scope.account, ids)


CHUNK_BYTES = 64 * 1024
COMMIT_BYTES = 1024 * 1024  # written in one commit, or read at once
CHUNKS_IN_REMOVAL = 256  # in one transaction
LINES_IN_COMMIT = 64
UPLOAD_S = 3600.0  # lifetime after the last commit. The gateway ends uploads before that
AGAIN_S = 1.0
MAX_REMOVED = 100  # files in one sweep


class SharedFiles:
    """A `FileStore` in `database`, of the jobs process of `host`.

    Args:
        scratch: a folder for local copies of inputs, while their batches run here.
    """

    def __init__(self, database: Database, host: str, scratch: Path, clock: Clock) -> None:
        self.database = database
        self.host = host
        self.clock = clock
        scratch.mkdir(mode=0o700, exist_ok=True)
        self._scratch = scratch
        for metadata in (METADATA, SHARED):
            database.create(metadata)

    def begin_upload(self, id: str, account: str) -> "SharedUpload":
        """Begin an upload."""
        return SharedUpload(self, id, account)

    def read_chunks(self, stored: StoredFile) -> Iterator[bytes]:
        """Yield the bytes of a file. Raises StoreUnavailable if it is deleted meanwhile."""
        num_bytes = 0
        for data in read_chunks(self.database, stored.id):
            num_bytes += len(data)
            yield data
        if num_bytes == 0 < stored.num_bytes:
            raise FileNotFoundError(stored.id)
        if num_bytes != stored.num_bytes:
            raise StoreUnavailable(f"file {stored.id} was deleted while it was read")

    def open(self, id: str) -> IO[bytes]:
        """Open a local copy of a file. The copy ends with the process."""
        copied = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115 - the caller's
        is_there = False
        try:
            for data in read_chunks(self.database, id):
                copied.write(data)
                is_there = True
            copied.seek(0)
        except BaseException:
            with contextlib.suppress(OSError):
                copied.close()
            raise
        if not is_there:
            copied.close()
            raise FileNotFoundError(id)
        return copied

    def open_results(self, id: str, claim: BatchClaim | None, report: Report) -> "SharedLines":
        """Open the lines that a run appends to."""
        if claim is None:
            raise ValueError("a shared batch runs under a claim")
        return SharedLines(self, id, claim, report)

    def delete(self, id: str) -> None:
        """Remove the bytes of a file that no list shows, in portions, and at last its row."""
        with self.database.write() as connection:
            is_it = UNLISTED.c.id == id
            given_up = sa.update(UNLISTED).where(is_it).values(expires_at=REMOVED)
            if connection.execute(given_up).rowcount != 1:
                return
        first = sa.select(CHUNKS.c.start).where(CHUNKS.c.file == id).order_by(CHUNKS.c.start)
        while True:
            with self.database.write() as connection:
                found = connection.execute(first.limit(CHUNKS_IN_REMOVAL)).all()
                if not found:
                    connection.execute(sa.delete(UNLISTED).where(is_it))
                    return
                gone = (CHUNKS.c.file == id, CHUNKS.c.start <= found[-1].start)
                connection.execute(sa.delete(CHUNKS).where(*gone))

    def give_up_own(self) -> None:
        """Give up the uploads of this host's earlier process."""
        own = sa.update(UNLISTED).where(UNLISTED.c.host == self.host)
        with self.database.write() as connection:
            connection.execute(own.values(expires_at=REMOVED))

    def sweep(self) -> None:
        """Remove deleted files, and broken uploads of any host."""
        past = sa.select(UNLISTED.c.id).where(UNLISTED.c.expires_at <= self.clock.now())
        for row in self.database.query(past.limit(MAX_REMOVED)):
            self.delete(row.id)

    def append(self, claim: BatchClaim, id: str, start: int, data: bytes) -> None:
        """Add bytes to an output that ends at `start`. A repeat adds nothing.

        Raises BatchClaimLostError if the claim is lost, and StoreUnavailable.
        """
        with self.database.write() as connection:
            check_held(connection, claim)
            end = find_end(connection, id)
            if end == start + len(data):
                return  # an earlier call wrote them, but its answer was lost
            if end != start:
                raise BatchClaimLostError(f"{id} ends at byte {end}, not at {start}")
            insert_chunks(connection, id, start, data)

    def cut(self, claim: BatchClaim, id: str, num_bytes: int) -> None:
        """Cut an output off after `num_bytes`."""
        with self.database.write() as connection:
            check_held(connection, claim)
            is_it = CHUNKS.c.file == id
            connection.execute(sa.delete(CHUNKS).where(is_it, CHUNKS.c.start >= num_bytes))
            last = sa.select(CHUNKS).where(is_it).order_by(CHUNKS.c.start.desc()).limit(1)
            if (row := connection.execute(last).first()) is not None:
                kept = bytes(row.data)[: num_bytes - row.start]
                is_last = (is_it, CHUNKS.c.start == row.start)
                connection.execute(sa.update(CHUNKS).where(*is_last).values(data=kept))

    def lines(self, id: str) -> Iterator[bytes]:
        """Yield the lines of a file. The last line may be incomplete."""
        return split_lines(read_chunks(self.database, id))


class SharedUpload:
    """A file that is being uploaded."""

    def __init__(self, files: SharedFiles, id: str, account: str) -> None:
        self.num_bytes = 0
        self._files = files
        self._id = id
        self._kept_bytes = 0
        self._waiting = bytearray()
        row = {"id": id, "account": account, "host": files.host, "num_bytes": 0}
        with files.database.write() as connection:
            connection.execute(sa.insert(UNLISTED), {**row, "expires_at": self._expires_at()})

    def write(self, data: bytes) -> None:
        """Add bytes."""
        self._waiting += data
        self.num_bytes += len(data)
        if len(self._waiting) >= COMMIT_BYTES:
            self.complete()

    def complete(self) -> None:
        """Make the written bytes durable."""
        data = bytes(self._waiting)
        with self._files.database.write() as connection:
            renewed = sa.update(UNLISTED).where(
                UNLISTED.c.id == self._id, UNLISTED.c.expires_at > REMOVED
            )
            values = {"num_bytes": self.num_bytes, "expires_at": self._expires_at()}
            if connection.execute(renewed.values(values)).rowcount != 1:
                raise StoreUnavailable("the upload paused for too long, and was given up")
            if data or not self.num_bytes:
                insert_chunks(connection, self._id, self._kept_bytes, data)
        self._kept_bytes += len(data)
        self._waiting.clear()

    def drop(self) -> None:
        """Remove the upload, unless it became a file. A sweep removes it if this fails."""
        self._waiting.clear()
        try:
            self._files.delete(self._id)
        except StoreUnavailable as error:
            LOG.warning("the remains of an upload wait to be removed: %s", error)

    def _expires_at(self) -> float:
        return self._files.clock.now() + UPLOAD_S


class SharedLines:
    """The lines of a batch's output. Lines that come during a commit share the next commit."""

    def __init__(self, files: SharedFiles, id: str, claim: BatchClaim, report: Report) -> None:
        self.num_bytes = 0
        self._files = files
        self._id = id
        self._claim = claim
        self._report = report
        self._is_closed = False
        self._calls: GroupedCalls[bytes, None] = GroupedCalls(self._commit, LINES_IN_COMMIT)

    def recover(self) -> dict[str, TokenUsage]:
        """Cut off an incomplete last line, and return the tokens of each line by custom_id."""
        lines = self._files.lines(self._id)
        found, self.num_bytes = read_results(lines)
        self._files.cut(self._claim, self._id, self.num_bytes)
        return found

    async def append(self, line: bytes) -> None:
        """Add a whole line or nothing. Raises BatchClaimLostError if the claim is lost."""
        await self._calls.call(line)

    def sync(self) -> None:
        """Do nothing, because each line is durable."""

    def close(self) -> None:
        """Stop writing."""
        self._is_closed = True

    async def _commit(self, lines: Sequence[bytes]) -> Sequence[None]:
        for data in portions(lines):
            await self._append(data)
        return [None] * len(lines)

    async def _append(self, data: bytes) -> None:
        """Append bytes, and repeat until that is confirmed. No line is written twice."""
        while not self._is_closed:
            try:
                await asyncio.to_thread(
                    self._files.append, self._claim, self._id, self.num_bytes, data
                )
            except StoreUnavailable as error:
                self._report(f"nothing can be written: {error}")
                LOG.warning("batch %s waits: %s", self._claim.batch_id, error)
                await self._files.clock.sleep(AGAIN_S)
            else:
                self.num_bytes += len(data)
                return
        raise StoreUnavailable("the run has ended")


def portions(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Join lines, for commits of about COMMIT_BYTES."""
    portion: list[bytes] = []
    num_bytes = 0
    for line in lines:
        portion.append(line)
        num_bytes += len(line)
        if num_bytes >= COMMIT_BYTES:
            yield b"".join(portion)
            portion, num_bytes = [], 0
    if portion:
        yield b"".join(portion)


def find_end(connection: Connection, id: str) -> int:
    """Find the number of bytes under an id."""
    size = sa.func.length(CHUNKS.c.data)
    last = sa.select(CHUNKS.c.start + size).where(CHUNKS.c.file == id)
    row = connection.execute(last.order_by(CHUNKS.c.start.desc()).limit(1)).first()
    return 0 if row is None else int(row[0])


def read_chunks(database: Database, id: str) -> Iterator[bytes]:
    """Yield the bytes under an id, in chunks. Raises StoreUnavailable if they are being deleted."""
    start = 0
    while True:
        begin = start
        window = (CHUNKS.c.start >= begin, CHUNKS.c.start < begin + COMMIT_BYTES)
        found = sa.select(CHUNKS.c.start, CHUNKS.c.data).where(CHUNKS.c.file == id, *window)
        for row in database.query(found.order_by(CHUNKS.c.start)):
            if row.start != start:
                raise StoreUnavailable(f"file {id} has no byte {start}; it is being deleted")
            start += len(row.data)
            yield bytes(row.data)
        if start == begin:
            return


def insert_chunks(connection: Connection, id: str, start: int, data: bytes) -> None:
    """Add bytes that begin at `start`. An empty file gets an empty chunk."""
    rows = [
        {"file": id, "start": start + at, "data": data[at : at + CHUNK_BYTES]}
        for at in range(0, max(1, len(data)), CHUNK_BYTES)
    ]
    connection.execute(sa.insert(CHUNKS), rows)


def split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of `chunks` with their ends. The last line may be incomplete."""
    begun: list[bytes] = []
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            yield b"".join([*begun, part, b"\n"])
            begun.clear()
        if rest:
            begun.append(rest)
    if begun:
        yield b"".join(begun)


def read_files(root: Path, rows: Path, database: Database) -> None:
    """Copy the files in the folder `root` that have a row in the file `rows` to `database`.

    Raises OSError, StoreRefused and StoreUnavailable.
    """
    if not root.exists():
        return
    with closing(open_database(rows)) as known:
        ids = BatchRows(known).list_file_ids()
    for path in sorted(it for it in root.iterdir() if it.name in ids):
        start = 0
        for data in _pieces(path):
            with database.write() as connection:
                insert_chunks(connection, path.name, start, data)
            start += len(data)


def write_files(database: Database, root: Path) -> None:
    """Copy the files in `database` to the folder `root`. Other files there stay.

    Raises OSError, StoreRefused and StoreUnavailable.
    """
    folder = FileFolder(root)
    found = (
        sa.select(CHUNKS.c.file).distinct().where(CHUNKS.c.file.not_in(sa.select(UNLISTED.c.id)))
    )
    for row in database.query(found):
        new = folder.begin_upload(row.file, "")
        try:
            for data in read_chunks(database, row.file):
                new.write(data)
            new.complete()
        except BaseException:
            new.drop()
            raise
    sync_folder(root)


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, at least one piece."""
    with path.open("rb") as file:
        data = file.read(COMMIT_BYTES)
        yield data
        while data := file.read(COMMIT_BYTES):
            yield data
