"""The leader, all controls, and the last changes, as any process reads them from the database."""

from dataclasses import dataclass

import sqlalchemy as sa

from hostelry.store.database import Database
from hostelry.store.lease import NAME, TTL_S
from hostelry.store.lease_tables import CONTROLS, LEASE_CHANGES, LEASES

SHOWN_CHANGES = 10
NOW = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Float)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlProcess:
    """A control that was seen within TTL_S; `address` is where other hosts reach it."""

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
    """The lease's epoch (0: none yet), its holder where it is not over, all controls, changes.

    `changes` are the newest, the last one first.
    """

    epoch: int = 0
    leader: ControlProcess | None = None
    controls: tuple[ControlProcess, ...] = ()
    changes: tuple[LeaderChange, ...] = ()


def running_controls(database: Database) -> tuple[ControlProcess, ...]:
    """All controls that run; raises StoreUnavailable where the database does not answer."""
    with database.read() as connection:
        if not sa.inspect(connection).has_table(CONTROLS.name):
            return ()
        return _controls(connection)


def read_leadership(database: Database) -> Leadership:
    """Who leads now; raises StoreUnavailable where the database does not answer."""
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
