"""The claim on a database: only the controls of one cluster may keep their records in it."""

import msgspec
from sqlalchemy import Column, Float, Integer, MetaData, Table, delete, insert, inspect, select

from hostelry.store.database import Database
from hostelry.store.protocol import StoreRefused
from hostelry.store.schema import lock_schema, refuse_if_used
from hostelry.store.tables import OPAQUE_TEXT

METADATA = MetaData()
CLAIMS = Table(
    "cluster",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),  # the only row has 1
    Column("cluster_id", OPAQUE_TEXT, nullable=False),
    Column("home", OPAQUE_TEXT, nullable=False),
    Column("claimed_at", Float, nullable=False),
)


class StoreClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that uses a database, and its first home. Times are seconds since the epoch."""

    cluster_id: str
    home: str
    claimed_at: float


def claim(database: Database, wanted: StoreClaim) -> StoreClaim:
    """Claim the database for a cluster. Returns the claim, which the cluster's first home made.

    If another cluster has claimed the database, raises StoreRefused, which names both homes.
    """
    with database.write() as connection:
        lock_schema(connection)
        METADATA.create_all(connection)
        row = connection.execute(select(CLAIMS)).one_or_none()
        if row is None:
            connection.execute(
                insert(CLAIMS).values(
                    id=1,
                    cluster_id=wanted.cluster_id,
                    home=wanted.home,
                    claimed_at=wanted.claimed_at,
                )
            )
            return wanted
    found = StoreClaim(cluster_id=row.cluster_id, home=row.home, claimed_at=row.claimed_at)
    if found.cluster_id != wanted.cluster_id:
        raise StoreRefused(
            f"the store {database.place} is that of the home {found.home}, and {wanted.home} is"
            " another hostelry: use another database, join that cluster, or, where that home is"
            " gone for good, give the database up with `hostelry store release`"
        )
    return found


def get_claim(database: Database) -> StoreClaim | None:
    """The claim on a database, or None."""
    with database.read() as connection:
        if not inspect(connection).has_table(CLAIMS.name):
            return None
        row = connection.execute(select(CLAIMS)).one_or_none()
    if row is None:
        return None
    return StoreClaim(cluster_id=row.cluster_id, home=row.home, claimed_at=row.claimed_at)


def release(database: Database) -> StoreClaim | None:
    """Remove the claim and return it. The records stay for the next home.

    Raises TerminalError if a platform runs on the database.
    """
    found = get_claim(database)
    if found is not None:
        with database.write() as connection:
            refuse_if_used(connection, database.place)
            connection.execute(delete(CLAIMS))
    return found
