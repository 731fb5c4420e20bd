"""Tables of files and batches; statements on them are portable SQL.

`METADATA` are the rows of both, on every platform. `SHARED` is what several hosts need besides, in
a database that they share: the bytes of files, and who runs which batch.
"""

import sqlalchemy as sa

from hostelry.store.tables import OPAQUE_TEXT

METADATA = sa.MetaData()
# SQLite numbers rows by itself only where the type is INTEGER.
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

# Of a file and of a batch's output that is being written, in the order of `start`, its first byte.
CHUNKS = sa.Table(
    "openai_chunk",
    SHARED,
    sa.Column("file", OPAQUE_TEXT, primary_key=True),
    sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
# Files with bytes and without a row in `openai_file`: uploads under way, until `expires_at`; and
# what is to be removed, whose `expires_at` is 0.
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
