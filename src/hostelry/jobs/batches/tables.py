"""Tables of files and batches, in the file of jobs; statements on them are portable SQL."""

import sqlalchemy as sa

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
