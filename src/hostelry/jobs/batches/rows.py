"""Rows of files and batches; look-ups of clients are within one account. Calls block."""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from hostelry.domain.llm_batch import LlmBatch, StoredFile
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
            if max_bytes is not None:
                held = _bytes_of(connection, stored.scope.account)
                if held + stored.num_bytes > max_bytes:
                    return False
            _insert_file(connection, stored)
            return True

    def bytes_of(self, account: str) -> int:
        """The bytes of all files of an account."""
        with self._database.read() as connection:
            return _bytes_of(connection, account)

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

    def delete_file(self, account: str, id: str) -> bool:
        """Whether there was such a file."""
        with self._database.write() as connection:
            gone = sa.delete(FILES).where(FILES.c.account == account, FILES.c.id == id)
            return connection.execute(gone).rowcount == 1

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

    def add_batch(self, batch: LlmBatch) -> None:
        """Keep a new batch; durable once this returns."""
        row = {
            "id": batch.id,
            "account": batch.scope.account,
            "input_file": batch.input_file_id,
            **_state_of(batch),
        }
        with self._database.write() as connection:
            connection.execute(sa.insert(BATCHES), row)

    def save(self, batch: LlmBatch, files: Sequence[StoredFile] = ()) -> None:
        """Keep a batch as it is now, with the files that it made, in one commit."""
        with self._database.write() as connection:
            changed = sa.update(BATCHES).where(BATCHES.c.id == batch.id)
            connection.execute(changed.values(_state_of(batch)))
            for stored in files:
                _insert_file(connection, stored)

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

    def reader_of(self, file_id: str) -> str | None:
        """The id of an unfinished batch that reads a file."""
        query = sa.select(BATCHES.c.id).where(
            BATCHES.c.input_file == file_id, BATCHES.c.ended_at.is_(None)
        )
        with self._database.read() as connection:
            row = connection.execute(query.limit(1)).first()
        return None if row is None else str(row.id)

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


def _bytes_of(connection: Connection, account: str) -> int:
    query = sa.select(FILES.c.record).where(FILES.c.account == account)
    return sum(_FILE.decode(row.record).num_bytes for row in connection.execute(query))


def _insert_file(connection: Connection, stored: StoredFile) -> None:
    row = {
        "id": stored.id,
        "account": stored.scope.account,
        "purpose": stored.purpose,
        "expires_at": stored.expires_at,
        "record": msgspec.msgpack.encode(stored),
    }
    connection.execute(sa.insert(FILES), row)


def _state_of(batch: LlmBatch) -> dict[str, Any]:
    return {"ended_at": batch.ended_at, "record": msgspec.msgpack.encode(batch)}
