"""The leader, all controls and the last changes of leader, for any process to read."""

import msgspec
import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Float, MetaData, Table, Text

from hostelry.store.database import Database
from hostelry.store.lease import NAME, TTL_S

# The tables of the lease, and the key of the lock on an epoch. PostgreSQL only.
#
# They are not in the store's schema, because a control reads the leader before it may migrate.


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

# The start of each control's leadership, and the reason.
LEASE_CHANGES = Table(
    "lease_changes",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("epoch", BigInteger, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("reason", Text, nullable=False),
)

# Every running control. An `id` belongs to one process and is never used again.
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
    """SQL for the key of the lock on an epoch. `parameter` stands for the epoch.

    The key contains the table's oid, so that platforms in several schemas do not share locks.
    """
    table = "CAST(CAST(CAST('leases' AS regclass) AS oid) AS int8)"
    return f"({table} << 32) | CAST({parameter} AS int8)"


SHOWN_CHANGES = 10
NOW = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Float)


class ControlProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A control that was seen in the last TTL_S. Other hosts reach it at `address`."""

    id: str
    address: str
    version: str
    started_at: float


class LeaderChange(msgspec.Struct, frozen=True, kw_only=True):
    """The start of an epoch: the control, the time by the database's clock, and the reason."""

    epoch: int
    holder: str
    at: float
    reason: str


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """The lease's epoch (0 before the first), its holder unless the lease is over, all controls.

    `changes` has the latest changes, newest first.
    """

    epoch: int = 0
    leader: ControlProcess | None = None
    controls: tuple[ControlProcess, ...] = ()
    changes: tuple[LeaderChange, ...] = ()


def running_controls(database: Database) -> tuple[ControlProcess, ...]:
    """List all running controls. Raises StoreUnavailable if the database does not answer."""
    with database.read() as connection:
        if not sa.inspect(connection).has_table(CONTROLS.name):
            return ()
        return _controls(connection)


def read_leadership(database: Database) -> Leadership:
    """Read who leads now. Raises StoreUnavailable if the database does not answer."""
    newest = sa.select(LEASE_CHANGES).where(LEASE_CHANGES.c.name == NAME)
    newest = newest.order_by(LEASE_CHANGES.c.epoch.desc()).limit(SHOWN_CHANGES)
    with database.read() as connection:
        query = sa.select(LEASES, (LEASES.c.expires_at > NOW).label("is_held"))
        lease = connection.execute(query.where(LEASES.c.name == NAME)).one_or_none()
        controls = _controls(connection)
        changes = tuple(
            LeaderChange(epoch=row.epoch, holder=row.holder, at=row.at, reason=row.reason)
            for row in connection.execute(newest)
        )
    if lease is None:
        return Leadership(controls=controls, changes=changes)
    holder = next((it for it in controls if it.id == lease.holder), None)
    return Leadership(
        epoch=lease.epoch,
        leader=holder if lease.is_held else None,
        controls=controls,
        changes=changes,
    )


def _controls(connection: sa.Connection) -> tuple[ControlProcess, ...]:
    seen = sa.select(CONTROLS).where(CONTROLS.c.seen_at > NOW - TTL_S).order_by(CONTROLS.c.id)
    return tuple(
        ControlProcess(
            id=row.id, address=row.address, version=row.version, started_at=row.started_at
        )
        for row in connection.execute(seen)
    )
