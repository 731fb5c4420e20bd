"""Rows of files and batches, and the claims of hosts that share a database. Calls block.

`METADATA` has the tables of every platform. `SHARED` has the tables of a database that several
hosts share: the bytes of files, and the claims of batches. Statements are portable SQL. Clients
see only the rows of their account.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from hostelry.base.errors import RetryableError
from hostelry.domain.llm_batch import BatchStatus, LlmBatch, StoredFile, kept_over
from hostelry.store.database import Database
from hostelry.store.tables import OPAQUE_TEXT, insert_once

METADATA = sa.MetaData()
# SQLite numbers rows only if the type is INTEGER.
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

FILES = sa.Table(
    "openai_file",
    METADATA,
    sa.Column("sequence", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("purpose", sa.Text, nullable=False),
    sa.Column("expires_at", sa.Float, index=True),
    sa.Column("record", sa.LargeBinary, nullable=False),
    sa.Index("openai_file_account", "account", "sequence"),
    sqlite_autoincrement=True,
)
BATCHES = sa.Table(
    "openai_batch",
    METADATA,
    sa.Column("sequence", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("input_file", sa.Text, nullable=False, index=True),
    sa.Column("ended_at", sa.Float, index=True),
    sa.Column("record", sa.LargeBinary, nullable=False),
    sa.Index("openai_batch_account", "account", "sequence"),
    sqlite_autoincrement=True,
)

SHARED = sa.MetaData()

# Chunks of a file, or of a batch's unfinished output. `start` is the place of the first byte.
CHUNKS = sa.Table(
    "openai_chunk",
    SHARED,
    sa.Column("file", OPAQUE_TEXT, primary_key=True),
    sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
# Files that have bytes and no row in `openai_file`: uploads until `expires_at`, and files to be
# removed, whose `expires_at` is 0.
UNLISTED = sa.Table(
    "openai_unlisted",
    SHARED,
    sa.Column("id", OPAQUE_TEXT, primary_key=True),
    sa.Column("account", sa.Text, nullable=False, index=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("num_bytes", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.Float, nullable=False, index=True),
)
CLAIMS = sa.Table(
    "openai_batch_claim",
    SHARED,
    sa.Column("batch", OPAQUE_TEXT, primary_key=True),
    sa.Column("fence", sa.Integer, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("lease_until", sa.Float, nullable=False),
    sa.Column("pools", sa.LargeBinary, nullable=False),
)


LEASE_S = 30.0
_BATCH = msgspec.msgpack.Decoder(LlmBatch)
_POOLS = msgspec.msgpack.Decoder(list[str])
_NO_POOLS = msgspec.msgpack.encode(list[str]())


class BatchClaimLostError(RetryableError):
    """Another host runs the batch now. Nothing was written."""


class BatchClaim(msgspec.Struct, frozen=True):
    """The right to run a batch, until it is claimed again, with a higher fence.

    A run checks its fence in each transaction in which it writes. After another host has claimed
    the batch, the run can write nothing.
    """

    batch_id: str
    fence: int


class ClaimsSeen(msgspec.Struct, frozen=True):
    """The rows of the batches that a host still has, and the pools of other hosts' batches."""

    kept: Mapping[str, LlmBatch]
    elsewhere: Mapping[str, Sequence[str]]


class BatchClaims:
    """Claims of the jobs process of `host`."""

    def __init__(self, database: Database, host: str) -> None:
        self._database = database
        self._host = host
        for metadata in (METADATA, SHARED):
            database.create(metadata)

    def take(
        self, running: Collection[str], limit: int, now: float, only: str | None = None
    ) -> list[tuple[LlmBatch, BatchClaim]]:
        """Claim batches that no host runs, the oldest first, until `now` + LEASE_S.

        `running` names the batches that this process runs. They are skipped, also after the end of
        their leases.
        """
        both = BATCHES.outerjoin(CLAIMS, CLAIMS.c.batch == BATCHES.c.id)
        is_free = CLAIMS.c.batch.is_(None) | (CLAIMS.c.lease_until <= now)
        found = sa.select(BATCHES.c.id).select_from(both)
        found = found.where(BATCHES.c.ended_at.is_(None), BATCHES.c.id.not_in(running), is_free)
        if only is not None:
            found = found.where(BATCHES.c.id == only)
        found = found.order_by(BATCHES.c.sequence).limit(limit)
        ids = [row.id for row in self._database.query(found)] if limit > 0 else []
        taken = []
        for id in ids:
            with self._database.write() as connection:
                if (claimed := self._take(connection, id, now)) is not None:
                    taken.append(claimed)
        return taken

    def look(self, held: Mapping[str, tuple[BatchClaim, Sequence[str]]], now: float) -> ClaimsSeen:
        """Renew the claims in `held`, and save the pools that each batch has lines for."""
        with self._database.write() as connection:
            kept = [
                id
                for id, (claim, pools) in sorted(held.items())
                if self._renew(connection, claim, pools, now)
            ]
            rows = connection.execute(
                sa.select(BATCHES.c.id, BATCHES.c.record).where(BATCHES.c.id.in_(kept))
            ).all()
            others = connection.execute(
                sa.select(CLAIMS.c.batch, CLAIMS.c.pools).where(
                    CLAIMS.c.owner != self._host, CLAIMS.c.lease_until > now
                )
            ).all()
        return ClaimsSeen(
            kept={row.id: _BATCH.decode(row.record) for row in rows},
            elsewhere={row.batch: _POOLS.decode(row.pools) for row in others},
        )

    def give_back(self) -> None:
        """Let any host claim this host's batches at once."""
        mine = sa.update(CLAIMS).where(CLAIMS.c.owner == self._host)
        with self._database.write() as connection:
            connection.execute(mine.values(lease_until=0.0, pools=_NO_POOLS))

    def _take(
        self, connection: Connection, id: str, now: float
    ) -> tuple[LlmBatch, BatchClaim] | None:
        is_mine = CLAIMS.c.batch == id
        none = {"batch": id, "fence": 0, "owner": "", "lease_until": 0.0, "pools": _NO_POOLS}
        connection.execute(insert_once(CLAIMS, connection), none)
        claimed = {
            "fence": CLAIMS.c.fence + 1,
            "owner": self._host,
            "lease_until": now + LEASE_S,
            "pools": _NO_POOLS,
        }
        update = sa.update(CLAIMS).where(is_mine, CLAIMS.c.lease_until <= now).values(claimed)
        row = connection.execute(update.returning(CLAIMS.c.fence)).first()
        if row is None:
            return None
        is_there = (BATCHES.c.id == id, BATCHES.c.ended_at.is_(None))
        batch = connection.execute(sa.select(BATCHES.c.record).where(*is_there)).first()
        if batch is None:  # the batch has ended meanwhile
            connection.execute(sa.delete(CLAIMS).where(is_mine))
            return None
        return _BATCH.decode(batch.record), BatchClaim(id, row.fence)

    def _renew(
        self, connection: Connection, claim: BatchClaim, pools: Sequence[str], now: float
    ) -> bool:
        mine = (CLAIMS.c.batch == claim.batch_id, CLAIMS.c.fence == claim.fence)
        values = {"lease_until": now + LEASE_S, "pools": msgspec.msgpack.encode(list(pools))}
        renewed = connection.execute(sa.update(CLAIMS).where(*mine).values(values))
        return renewed.rowcount == 1


def check_held(connection: Connection, claim: BatchClaim) -> None:
    """Raise BatchClaimLostError unless the claim is held. It stays held in this transaction."""
    row = connection.execute(
        sa.select(CLAIMS.c.fence).where(CLAIMS.c.batch == claim.batch_id).with_for_update()
    ).first()
    if row is None or row.fence != claim.fence:
        raise BatchClaimLostError(f"another host runs {claim.batch_id} now")


def end_claim(connection: Connection, claim: BatchClaim) -> None:
    """Forget the claim of a batch that has ended."""
    connection.execute(sa.delete(CLAIMS).where(CLAIMS.c.batch == claim.batch_id))


_FILE = msgspec.msgpack.Decoder(StoredFile)


class BatchRows:
    """The rows of all accounts. Rows that decide a write are locked and read in its transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.create(METADATA)

    def add_file(self, stored: StoredFile, max_bytes: int | None = None) -> bool:
        """Add a file's row, durable on return.

        Adds nothing and returns False if the account's files would have more than `max_bytes`.
        """
        with self._database.write() as connection:
            self._lock_account(connection, stored.scope.account)
            if max_bytes is not None:
                held = sum_file_bytes(connection, stored.scope.account)
                if held + stored.num_bytes > max_bytes:
                    return False
            self._publish_upload(connection, stored)
            _insert_file(connection, stored)
            return True

    def count_bytes(self, account: str) -> int:
        """Sum the sizes of an account's files."""
        with self._database.read() as connection:
            return sum_file_bytes(connection, account)

    def get_file(self, account: str, id: str) -> StoredFile | None:
        """The account's file with this id."""
        row = self._find_record(FILES, account, id)
        return None if row is None else _FILE.decode(row)

    def list_files(
        self, account: str, purpose: str | None, after: str | None, limit: int, newest_first: bool
    ) -> list[StoredFile]:
        """List up to `limit` files of the account, after the file with id `after`."""
        wanted = [] if purpose is None else [FILES.c.purpose == purpose]
        rows = self._list_records(FILES, account, wanted, after, limit, newest_first)
        return [_FILE.decode(it) for it in rows]

    def delete_file(self, account: str, id: str) -> str | None:
        """Delete a file's row. If an unfinished batch reads the file, keep it and return its id."""
        with self._database.write() as connection:
            if not _lock_file(connection, account, id):
                return None
            reads = (BATCHES.c.input_file == id, BATCHES.c.ended_at.is_(None))
            reader = connection.execute(sa.select(BATCHES.c.id).where(*reads).limit(1)).first()
            if reader is not None:
                return str(reader.id)
            connection.execute(sa.delete(FILES).where(FILES.c.id == id))
            self._mark_removed(connection, account, [id])
            return None

    def list_expired_files(self, now: float, limit: int) -> list[StoredFile]:
        """List files of any account that have expired."""
        past = sa.select(FILES.c.record).where(FILES.c.expires_at <= now).limit(limit)
        with self._database.read() as connection:
            return [_FILE.decode(row.record) for row in connection.execute(past)]

    def list_file_ids(self) -> set[str]:
        """The ids of all files, including the result files of unfinished batches."""
        with self._database.read() as connection:
            found = {row.id for row in connection.execute(sa.select(FILES.c.id))}
        return found.union(
            *({it.output_file_id, it.error_file_id} for it in self.list_unfinished())
        )

    def count_unfinished(self) -> int:
        """Count the unfinished batches of all accounts."""
        count = sa.select(sa.func.count()).where(BATCHES.c.ended_at.is_(None))
        with self._database.read() as connection:
            return int(connection.execute(count.select_from(BATCHES)).scalar_one())

    def add_batch(self, batch: LlmBatch) -> bool:
        """Add a new batch, durable on return. False if its input file is gone."""
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
        """Save a batch and the files that it made in one commit, and return the saved batch.

        If another host has cancelled the batch meanwhile, the result is cancelled, and `files` are
        not saved. Raises BatchClaimLostError if another host runs the batch.
        """
        with self._database.write() as connection:
            self._check(connection, claim)
            kept = kept_over(_lock_batch(connection, batch.id), batch)
            changed = sa.update(BATCHES).where(BATCHES.c.id == batch.id)
            connection.execute(changed.values(_encode_state(kept)))
            if kept is batch:
                for stored in files:
                    _insert_file(connection, stored)
            if kept.status.is_final:
                self._clean_up(connection, kept, claim)
        return kept

    def cancel(self, id: str, now: float) -> LlmBatch:
        """Begin to cancel a batch, and return it. Raises StatusOrderError if it has ended."""
        with self._database.write() as connection:
            batch = _lock_batch(connection, id)
            if batch.status is not BatchStatus.CANCELLING:
                batch = batch.went(BatchStatus.CANCELLING, now)
                changed = sa.update(BATCHES).where(BATCHES.c.id == id)
                connection.execute(changed.values(_encode_state(batch)))
        return batch

    def get_batch(self, account: str | None, id: str) -> LlmBatch | None:
        """The account's batch with this id. None as account matches any."""
        row = self._find_record(BATCHES, account, id)
        return None if row is None else _BATCH.decode(row)

    def list_batches(self, account: str, after: str | None, limit: int) -> list[LlmBatch]:
        """List the account's batches, the newest first, after the batch with id `after`."""
        rows = self._list_records(BATCHES, account, [], after, limit, newest_first=True)
        return [_BATCH.decode(it) for it in rows]

    def list_newest(self, limit: int) -> list[LlmBatch]:
        """List batches of all accounts, the newest first."""
        query = sa.select(BATCHES.c.record).order_by(BATCHES.c.sequence.desc()).limit(limit)
        with self._database.read() as connection:
            return [_BATCH.decode(row.record) for row in connection.execute(query)]

    def list_unfinished(self) -> list[LlmBatch]:
        """List unfinished batches of all accounts, the oldest first."""
        query = sa.select(BATCHES.c.record).where(BATCHES.c.ended_at.is_(None))
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(BATCHES.c.sequence))
            return [_BATCH.decode(row.record) for row in rows]

    def forget_ended(self, before: float) -> int:
        """Remove batches that ended before `before`, and return their number."""
        with self._database.write() as connection:
            gone = connection.execute(sa.delete(BATCHES).where(BATCHES.c.ended_at < before))
        return int(gone.rowcount)

    def _find_record(self, table: sa.Table, account: str | None, id: str) -> bytes | None:
        query = sa.select(table.c.record).where(table.c.id == id)
        if account is not None:
            query = query.where(table.c.account == account)
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else bytes(row.record)

    def _list_records(
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
        """Keep other hosts from adding files of the account in this transaction."""

    def _publish_upload(self, connection: Connection, stored: StoredFile) -> None:
        """Turn an upload into a file."""

    def _mark_removed(self, connection: Connection, account: str, ids: Sequence[str]) -> None:
        """Mark the bytes under these ids as to be removed."""

    def _check(self, connection: Connection, claim: BatchClaim | None) -> None:
        """Raise BatchClaimLostError if the claim is lost."""

    def _clean_up(self, connection: Connection, batch: LlmBatch, claim: BatchClaim | None) -> None:
        """Remove the claim of an ended batch, and mark its empty files as to be removed."""


def sum_file_bytes(connection: Connection, account: str) -> int:
    """Sum the sizes of an account's files."""
    query = sa.select(FILES.c.record).where(FILES.c.account == account)
    return sum(_FILE.decode(row.record).num_bytes for row in connection.execute(query))


def _lock_file(connection: Connection, account: str, id: str) -> bool:
    """Lock a file against deletion. False if the account does not have the file."""
    wanted = sa.select(FILES.c.id).where(FILES.c.account == account, FILES.c.id == id)
    return connection.execute(wanted.with_for_update()).first() is not None


def _lock_batch(connection: Connection, id: str) -> LlmBatch:
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
