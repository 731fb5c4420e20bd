"""The tables of the lease, and the key of the lock on an epoch. PostgreSQL only.

They are not part of the store's schema: a control must find who leads before it may migrate.
"""

from sqlalchemy import BigInteger, Column, Float, MetaData, Table, Text

METADATA = MetaData()

LEASES = Table(
    "leases",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("renewals", BigInteger, nullable=False),
    Column("renewed_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
)

# Who led from when on, and why.
LEASE_CHANGES = Table(
    "lease_changes",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("epoch", BigInteger, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("reason", Text, nullable=False),
)

# Every control that runs; `id` names one process, never two.
CONTROLS = Table(
    "controls",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("address", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("seen_at", Float, nullable=False),
)


def epoch_key(parameter: str) -> str:
    """SQL of the key of the lock on an epoch, which `parameter` stands for.

    A table's oid is its own in a database: platforms in several schemas of one do not meet.
    """
    table = "CAST(CAST(CAST('leases' AS regclass) AS oid) AS int8)"
    return f"({table} << 32) | CAST({parameter} AS int8)"
