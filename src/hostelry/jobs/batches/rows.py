"""Rows of files and batches; look-ups of clients are within one account. Calls block.

Several hosts may write them (`shared_rows`): what decides is locked, and read in the transaction
that writes.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from hostelry.domain.llm_batch import BatchStatus, LlmBatch, StoredFile, kept_over
from hostelry.jobs.batches.batch_claims import BatchClaim
from hostelry.jobs.batches.tables import BATCHES, FILES, METADATA
from hostelry.store.database import Database

_FILE = msgspec.msgpack.Decoder(StoredFile)
_BATCH = msgspec.msgpack.Decoder(LlmBatch)


class BatchRows:
    """The rows of all accounts."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.create(METADATA)

    def add_file(self, stored: StoredFile, max_bytes: int | None = None) -> bool:
        """Keep a file's row; durable once this returns.

        False, and nothing is kept, where the account's files would have more than `max_bytes`.
        """
        with self._database.write() as connection:
            self._lock_account(connection, stored.scope.account)
            if max_bytes is not None:
                held = bytes_of(connection, stored.scope.account)
                if held + stored.num_bytes > max_bytes:
                    return False
            self._listed(connection, stored)
            _insert_file(connection, stored)
            return True

    def bytes_of(self, account: str) -> int:
        """The bytes of all files of an account."""
        with self._database.read() as connection:
            return bytes_of(connection, account)

    def file(self, account: str, id: str) -> StoredFile | None:
        """The account's file of that id."""
        row = self._one(FILES, account, id)
        return None if row is None else _FILE.decode(row)

    def files(
        self, account: str, purpose: str | None, after: str | None, limit: int, newest_first: bool
    ) -> list[StoredFile]:
        """The account's files after the one that `after` names, at most `limit`."""
        wanted = [] if purpose is None else [FILES.c.purpose == purpose]
        rows = self._page(FILES, account, wanted, after, limit, newest_first)
        return [_FILE.decode(it) for it in rows]

    def delete_file(self, account: str, id: str) -> str | None:
        """Delete a file's row; the id of an unfinished batch that reads it, which keeps it."""
        with self._database.write() as connection:
            if not _lock_file(connection, account, id):
                return None
            reads = (BATCHES.c.input_file == id, BATCHES.c.ended_at.is_(None))
            reader = connection.execute(sa.select(BATCHES.c.id).where(*reads).limit(1)).first()
            if reader is not None:
                return str(reader.id)
            connection.execute(sa.delete(FILES).where(FILES.c.id == id))
            self._unlisted(connection, account, [id])
            return None

    def files_past(self, now: float, limit: int) -> list[StoredFile]:
        """Files of any account whose time is over."""
        past = sa.select(FILES.c.record).where(FILES.c.expires_at <= now).limit(limit)
        with self._database.read() as connection:
            return [_FILE.decode(row.record) for row in connection.execute(past)]

    def file_ids(self) -> set[str]:
        """Every file's id, and those that the files of unfinished batches have."""
        with self._database.read() as connection:
            found = {row.id for row in connection.execute(sa.select(FILES.c.id))}
        return found.union(*({it.output_file_id, it.error_file_id} for it in self.unfinished()))

    def num_unfinished(self) -> int:
        """How many batches of all accounts have not ended."""
        count = sa.select(sa.func.count()).where(BATCHES.c.ended_at.is_(None))
        with self._database.read() as connection:
            return int(connection.execute(count.select_from(BATCHES)).scalar_one())

    def add_batch(self, batch: LlmBatch) -> bool:
        """Keep a new batch; durable once this returns. False where its input is gone."""
        row = {
            "id": batch.id,
            "account": batch.scope.account,
            "input_file": batch.input_file_id,
            **_encode_state(batch),
        }
        with self._database.write() as connection:
            if not _lock_file(connection, batch.scope.account, batch.input_file_id):
                return False
            connection.execute(sa.insert(BATCHES), row)
            return True

    def save(
        self, batch: LlmBatch, files: Sequence[StoredFile] = (), claim: BatchClaim | None = None
    ) -> LlmBatch:
        """Keep a batch as it is now, with the files that it made, in one commit.

        What is kept: a cancellation that another host took meanwhile stands, without `files`.
        Raises BatchClaimLostError where another host runs it.
        """
        with self._database.write() as connection:
            self._check(connection, claim)
            kept = kept_over(_locked_batch(connection, batch.id), batch)
            changed = sa.update(BATCHES).where(BATCHES.c.id == batch.id)
            connection.execute(changed.values(_encode_state(kept)))
            if kept is batch:
                for stored in files:
                    _insert_file(connection, stored)
            if kept.status.is_final:
                self._ended(connection, kept, claim)
        return kept

    def cancel(self, id: str, now: float) -> LlmBatch:
        """The batch, which is being cancelled; raises StatusOrderError where it has ended."""
        with self._database.write() as connection:
            batch = _locked_batch(connection, id)
            if batch.status is not BatchStatus.CANCELLING:
                batch = batch.went(BatchStatus.CANCELLING, now)
                changed = sa.update(BATCHES).where(BATCHES.c.id == id)
                connection.execute(changed.values(_encode_state(batch)))
        return batch

    def batch(self, account: str | None, id: str) -> LlmBatch | None:
        """The account's batch of that id; None is any account."""
        row = self._one(BATCHES, account, id)
        return None if row is None else _BATCH.decode(row)

    def batches(self, account: str, after: str | None, limit: int) -> list[LlmBatch]:
        """The account's batches after the one that `after` names, the newest first."""
        rows = self._page(BATCHES, account, [], after, limit, newest_first=True)
        return [_BATCH.decode(it) for it in rows]

    def newest(self, limit: int) -> list[LlmBatch]:
        """Batches of all accounts, the newest first."""
        query = sa.select(BATCHES.c.record).order_by(BATCHES.c.sequence.desc()).limit(limit)
        with self._database.read() as connection:
            return [_BATCH.decode(row.record) for row in connection.execute(query)]

    def unfinished(self) -> list[LlmBatch]:
        """Batches of all accounts that have not ended, the oldest first."""
        query = sa.select(BATCHES.c.record).where(BATCHES.c.ended_at.is_(None))
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(BATCHES.c.sequence))
            return [_BATCH.decode(row.record) for row in rows]

    def forget_ended(self, before: float) -> int:
        """Forget batches that ended before that; their number."""
        with self._database.write() as connection:
            gone = connection.execute(sa.delete(BATCHES).where(BATCHES.c.ended_at < before))
        return int(gone.rowcount)

    def _one(self, table: sa.Table, account: str | None, id: str) -> bytes | None:
        query = sa.select(table.c.record).where(table.c.id == id)
        if account is not None:
            query = query.where(table.c.account == account)
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else bytes(row.record)

    def _page(
        self,
        table: sa.Table,
        account: str,
        wanted: Sequence[sa.ColumnElement[bool]],
        after: str | None,
        limit: int,
        newest_first: bool,
    ) -> list[bytes]:
        place = table.c.sequence
        query = sa.select(table.c.record).where(table.c.account == account, *wanted)
        if after is not None:
            begin = sa.select(place).where(table.c.account == account, table.c.id == after)
            edge = begin.scalar_subquery()
            query = query.where(place < edge if newest_first else place > edge)
        query = query.order_by(place.desc() if newest_first else place).limit(limit)
        with self._database.read() as connection:
            return [bytes(row.record) for row in connection.execute(query)]

    def _lock_account(self, connection: Connection, account: str) -> None:
        """Keep other hosts from adding files of the account, to the end of the transaction."""

    def _listed(self, connection: Connection, stored: StoredFile) -> None:
        """An upload becomes a file."""

    def _unlisted(self, connection: Connection, account: str, ids: Sequence[str]) -> None:
        """The bytes under these ids are no file's any more."""

    def _check(self, connection: Connection, claim: BatchClaim | None) -> None:
        """Raise BatchClaimLostError where the claim is lost."""

    def _ended(self, connection: Connection, batch: LlmBatch, claim: BatchClaim | None) -> None:
        """A batch has ended."""


def bytes_of(connection: Connection, account: str) -> int:
    """The bytes of an account's files."""
    query = sa.select(FILES.c.record).where(FILES.c.account == account)
    return sum(_FILE.decode(row.record).num_bytes for row in connection.execute(query))


def _lock_file(connection: Connection, account: str, id: str) -> bool:
    """Whether the account has the file; none is deleted, and begun on, at once."""
    wanted = sa.select(FILES.c.id).where(FILES.c.account == account, FILES.c.id == id)
    return connection.execute(wanted.with_for_update()).first() is not None


def _locked_batch(connection: Connection, id: str) -> LlmBatch:
    wanted = sa.select(BATCHES.c.record).where(BATCHES.c.id == id).with_for_update()
    return _BATCH.decode(connection.execute(wanted).scalar_one())


def _insert_file(connection: Connection, stored: StoredFile) -> None:
    row = {
        "id": stored.id,
        "account": stored.scope.account,
        "purpose": stored.purpose,
        "expires_at": stored.expires_at,
        "record": msgspec.msgpack.encode(stored),
    }
    connection.execute(sa.insert(FILES), row)


def _encode_state(batch: LlmBatch) -> dict[str, Any]:
    return {"ended_at": batch.ended_at, "record": msgspec.msgpack.encode(batch)}
