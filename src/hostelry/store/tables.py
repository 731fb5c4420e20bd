"""The store's two tables, in SQLAlchemy Core, as the newest migration leaves them."""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, Table

from hostelry.store.columns import OPAQUE_TEXT

METADATA = MetaData()

# A deleted record stays as a tombstone (body NULL) so that watchers see the deletion.
RECORDS = Table(
    "records",
    METADATA,
    Column("kind", OPAQUE_TEXT, primary_key=True),
    Column("account", OPAQUE_TEXT, primary_key=True),
    Column("region", OPAQUE_TEXT, primary_key=True),
    Column("name", OPAQUE_TEXT, primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=True),
    Index("records_by_revision", "revision", unique=True),
)

# One row (id 1). Its update is the first statement of every write, which serializes writers
# on every database: revisions become visible in order.
COUNTER = Table(
    "counter",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
    Column("forgotten", BigInteger, nullable=False),
)
