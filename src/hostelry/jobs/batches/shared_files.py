"""The bytes of files in a database that several hosts share: chunks, written as they come.

what happens                          the bytes
-----------------------------------   ----------------------------------------------------------
an upload comes in                    chunks, beside a row in `openai_unlisted` that each commit
                                      renews; no list shows them
it is complete                        that row gives way to one in `openai_file`, in one commit
it breaks off, or its host dies       removed by a sweep, UPLOAD_S after its last bytes; at the
                                      next start of its host, or at once where that can
a batch's line is answered            chunks at the end of its output, under the batch's claim
a file is deleted, a batch fails      the row in `openai_unlisted` is that of something to remove

They are in the database, and not in an object store, since lines are appended to an output one by
one, under the claim of the batch; since the row and the bytes of a file are then never one without
the other; and since no key of S3 opens them.
"""

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import sqlalchemy as sa
from sqlalchemy import Connection

from hostelry.base.clock import Clock
from hostelry.base.concurrency import GroupedCalls
from hostelry.domain.llm_batch import LlmBatch, StoredFile, TokenUsage
from hostelry.jobs.batches.batch_claims import (
    BatchClaim,
    BatchClaimLostError,
    check_held,
    end_claim,
)
from hostelry.jobs.batches.file_store import Report
from hostelry.jobs.batches.rows import BatchRows, bytes_of
from hostelry.jobs.batches.tables import CHUNKS, METADATA, SHARED, UNLISTED
from hostelry.jobs.records.batch_results import known_result
from hostelry.store.database import Database
from hostelry.store.protocol import StoreUnavailable
from hostelry.store.tables import insert_once

LOG = logging.getLogger(__name__)
REMOVED = 0.0  # `expires_at` of what is removed, or will be at the next sweep


class SharedBatchRows(BatchRows):
    """The rows of all accounts, as `host` sees them."""

    def __init__(self, database: Database, host: str) -> None:
        super().__init__(database)
        self._host = host
        database.create(SHARED)

    def bytes_of(self, account: str) -> int:
        """The bytes of all files of an account, and of what other hosts receive for it now."""
        arriving = sa.select(sa.cast(sa.func.sum(UNLISTED.c.num_bytes), sa.BigInteger)).where(
            UNLISTED.c.account == account,
            UNLISTED.c.host != self._host,
            UNLISTED.c.expires_at > REMOVED,
        )
        with self._database.read() as connection:
            elsewhere = connection.execute(arriving).scalar_one()
            return bytes_of(connection, account) + (elsewhere or 0)

    def _lock_account(self, connection: Connection, account: str) -> None:
        # Each upload that becomes a file has a row of its own here, so the second of two waits.
        mine = sa.select(UNLISTED.c.id).where(UNLISTED.c.account == account)
        connection.execute(mine.order_by(UNLISTED.c.id).with_for_update()).all()

    def _listed(self, connection: Connection, stored: StoredFile) -> None:
        gone = sa.delete(UNLISTED).where(
            UNLISTED.c.id == stored.id, UNLISTED.c.expires_at > REMOVED
        )
        if connection.execute(gone).rowcount != 1:
            raise StoreUnavailable("the upload paused for too long, and was given up; try again")

    def _unlisted(self, connection: Connection, account: str, ids: Sequence[str]) -> None:
        for id in ids:
            row = {"id": id, "account": account, "host": self._host, "num_bytes": 0}
            insert = insert_once(UNLISTED, connection)
            connection.execute(insert, {**row, "expires_at": REMOVED})

    def _check(self, connection: Connection, claim: BatchClaim | None) -> None:
        if claim is not None:
            check_held(connection, claim)

    def _ended(self, connection: Connection, batch: LlmBatch, claim: BatchClaim | None) -> None:
        if claim is not None:
            end_claim(connection, claim)
        given = {batch.output_file_id: batch.has_output, batch.error_file_id: batch.has_errors}
        lost = [id for id, is_given in given.items() if not is_given]
        left = sa.select(CHUNKS.c.file).where(CHUNKS.c.file.in_(lost)).distinct()
        ids = [row.file for row in connection.execute(left)]
        self._unlisted(connection, batch.scope.account, ids)


CHUNK_BYTES = 64 * 1024
COMMIT_BYTES = 1024 * 1024  # of an upload, and read at once
CHUNKS_IN_REMOVAL = 256  # in one transaction
LINES_IN_COMMIT = 64
UPLOAD_S = 3600.0  # after its last commit; the gateway lets none take longer in all
AGAIN_S = 1.0
MAX_REMOVED = 100  # files in one sweep


class SharedFiles:
    """A `FileStore` in `database`, of the jobs process of `host`.

    Args:
        scratch: a folder for copies of inputs while their batches run here, and nothing else.
    """

    def __init__(self, database: Database, host: str, scratch: Path, clock: Clock) -> None:
        self.database = database
        self.host = host
        self.clock = clock
        scratch.mkdir(mode=0o700, exist_ok=True)
        self._scratch = scratch
        for metadata in (METADATA, SHARED):
            database.create(metadata)

    def new(self, id: str, account: str) -> "SharedUpload":
        """Begin an upload."""
        return SharedUpload(self, id, account)

    def chunks(self, stored: StoredFile) -> Iterator[bytes]:
        """A file's bytes; raises StoreUnavailable where it is deleted meanwhile."""
        num_bytes = 0
        for data in read_chunks(self.database, stored.id):
            num_bytes += len(data)
            yield data
        if num_bytes == 0 < stored.num_bytes:
            raise FileNotFoundError(stored.id)
        if num_bytes != stored.num_bytes:
            raise StoreUnavailable(f"file {stored.id} was deleted while it was read")

    def opened(self, id: str) -> IO[bytes]:
        """A copy of a file on this machine, which is gone with the process."""
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

    def results(self, id: str, claim: BatchClaim | None, report: Report) -> "SharedLines":
        """What a batch's run appends to."""
        if claim is None:
            raise ValueError("a shared batch runs under a claim")
        return SharedLines(self, id, claim, report)

    def delete(self, id: str) -> None:
        """Remove the bytes of a file that no list shows; in portions, the row last."""
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
        """Remove what was deleted, and uploads of any host that broke off."""
        past = sa.select(UNLISTED.c.id).where(UNLISTED.c.expires_at <= self.clock.now())
        for row in self.database.query(past.limit(MAX_REMOVED)):
            self.delete(row.id)

    def append(self, claim: BatchClaim, id: str, start: int, data: bytes) -> None:
        """Add bytes at the end of an output, which is at `start`; once, where it is repeated.

        Raises BatchClaimLostError where the claim is lost, StoreUnavailable.
        """
        with self.database.write() as connection:
            check_held(connection, claim)
            end = find_end(connection, id)
            if end == start + len(data):
                return  # the commit's answer was lost
            if end != start:
                raise BatchClaimLostError(f"{id} ends at byte {end}, not at {start}")
            insert_chunks(connection, id, start, data)

    def cut(self, claim: BatchClaim, id: str, num_bytes: int) -> None:
        """Cut an output off after so many bytes."""
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
        """A file's lines; the last may lack its end."""
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
        """Make what was written durable."""
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
        """Remove it, unless it became a file; a sweep does so where this cannot."""
        self._waiting.clear()
        try:
            self._files.delete(self._id)
        except StoreUnavailable as error:
            LOG.warning("the remains of an upload wait to be removed: %s", error)

    def _expires_at(self) -> float:
        return self._files.clock.now() + UPLOAD_S


class SharedLines:
    """The lines of a batch's output; those that come during a commit share the next one."""

    def __init__(self, files: SharedFiles, id: str, claim: BatchClaim, report: Report) -> None:
        self.num_bytes = 0
        self._files = files
        self._id = id
        self._claim = claim
        self._report = report
        self._is_closed = False
        self._calls: GroupedCalls[bytes, None] = GroupedCalls(self._commit, LINES_IN_COMMIT)

    def recovered(self) -> dict[str, TokenUsage]:
        """The tokens of each line that is whole, by custom_id; what follows the last is cut off."""
        found: dict[str, TokenUsage] = {}
        num_bytes = read_bytes = 0
        for line in self._files.lines(self._id):
            read_bytes += len(line)
            known = known_result(line)
            if known is None:
                break
            found[known[0]] = known[1]
            num_bytes = read_bytes
        if num_bytes < read_bytes:
            self._files.cut(self._claim, self._id, num_bytes)
        self.num_bytes = num_bytes
        return found

    async def append(self, line: bytes) -> None:
        """Add a line, whole or not at all; raises BatchClaimLostError where it is not ours to."""
        await self._calls.call(line)

    def sync(self) -> None:
        """Nothing: each line is durable."""

    def close(self) -> None:
        """Write nothing more."""
        self._is_closed = True

    async def _commit(self, lines: Sequence[bytes]) -> Sequence[None]:
        for data in portions(lines):
            await self._until_there(data)
        return [None] * len(lines)

    async def _until_there(self, data: bytes) -> None:
        """Write the same bytes until it is known that they are there: no line is written twice."""
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
    """Lines put together, for commits of about COMMIT_BYTES."""
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
    """How many bytes there are under an id."""
    size = sa.func.length(CHUNKS.c.data)
    last = sa.select(CHUNKS.c.start + size).where(CHUNKS.c.file == id)
    row = connection.execute(last.order_by(CHUNKS.c.start.desc()).limit(1)).first()
    return 0 if row is None else int(row[0])


def read_chunks(database: Database, id: str) -> Iterator[bytes]:
    """The bytes under an id, some at a time; nothing where there are none.

    Raises StoreUnavailable where they are being deleted.
    """
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
    """Add bytes that begin at `start`; no bytes are a chunk, too, of an empty file."""
    rows = [
        {"file": id, "start": start + at, "data": data[at : at + CHUNK_BYTES]}
        for at in range(0, max(1, len(data)), CHUNK_BYTES)
    ]
    connection.execute(sa.insert(CHUNKS), rows)


def split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of what comes in pieces, each with its end; the last may lack it."""
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
