"""The leader, all controls and the last changes, as any process reads them."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Float, MetaData, Table, Text

from hostelry.store.database import Database
from hostelry.store.lease import NAME, TTL_S

# The tables of the lease, and the key of the lock on an epoch. PostgreSQL only.
#
# They are not part of the store's schema: a control must find who leads before it may migrate.


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

# Every running control. `id` names one process, never two.
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


SHOWN_CHANGES = 10
NOW = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Float)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlProcess:
    """A control that was seen within TTL_S. Other hosts reach it at `address`."""

    id: str
    address: str
    version: str
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """The start of an epoch: whose, when by the database's clock, and why."""

    epoch: int
    holder: str
    at: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """The epoch of the lease (0: none yet), its holder unless it is over, and all controls.

    `changes` has the newest changes, newest first.
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
