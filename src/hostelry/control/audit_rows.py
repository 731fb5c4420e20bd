"""The audit log of several hosts: entries in a database, bounded."""

import msgspec
import sqlalchemy as sa

from hostelry.base.json import decode
from hostelry.control.audit_log import MAX_FILE_BYTES, AuditEntry
from hostelry.store.columns import OPAQUE_TEXT
from hostelry.store.database import Database
from hostelry.store.errors import StoreUnavailable

METADATA = sa.MetaData()
AUDIT = sa.Table(
    "audit_entry",
    METADATA,
    # SQLite numbers rows by itself only where the type is INTEGER.
    sa.Column(
        "number",
        sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("endpoint", OPAQUE_TEXT, nullable=False),
    sa.Column("entry", sa.LargeBinary, nullable=False),
    sa.Index("audit_entry_endpoint", "endpoint", "number"),
)
KEPT = 2 * MAX_FILE_BYTES // 256  # entries, of about so many bytes each
TRIM_AT = 1000  # entries beyond that, removed at once


class AuditRows:
    """The log in `database`; entries survive this host once `append` has returned."""

    def __init__(self, database: Database, kept: int = KEPT, trim_at: int = TRIM_AT) -> None:
        self._database = database
        self._kept, self._trim_at = kept, trim_at
        database.create(METADATA)

    def append(self, entry: AuditEntry) -> None:
        """Add `entry` at the end; raises OSError where the database does not take it."""
        row = {"endpoint": entry.endpoint, "entry": msgspec.json.encode(entry)}
        number = AUDIT.c.number
        try:
            with self._database.write() as connection:
                added = connection.execute(sa.insert(AUDIT).returning(number), row).scalar_one()
                if added % self._trim_at == 0:
                    connection.execute(sa.delete(AUDIT).where(number <= added - self._kept))
        except StoreUnavailable as error:
            raise OSError(str(error)) from error

    def newest(self, limit: int, endpoint: str | None = None) -> list[AuditEntry]:
        """The newest entries, the newest first, at most `limit`; of one endpoint, or of all."""
        query = sa.select(AUDIT.c.entry).order_by(AUDIT.c.number.desc()).limit(limit)
        if endpoint is not None:
            query = query.where(AUDIT.c.endpoint == endpoint)
        with self._database.read() as connection:
            return [decode(row.entry, AuditEntry) for row in connection.execute(query)]
