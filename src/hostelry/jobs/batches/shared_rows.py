"""Rows of files and batches that several hosts write, beside the bytes of `shared_files`."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from hostelry.domain.llm_batch import LlmBatch, StoredFile
from hostelry.jobs.batches.batch_claims import BatchClaim, check_held, end_claim
from hostelry.jobs.batches.rows import BatchRows, bytes_of
from hostelry.jobs.batches.tables import CHUNKS, SHARED, UNLISTED
from hostelry.store.database import Database
from hostelry.store.errors import StoreUnavailable
from hostelry.store.statements import insert_once

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
