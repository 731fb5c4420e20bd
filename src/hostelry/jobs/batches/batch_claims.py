"""Claims of batches by hosts that share a database: one runs a batch at a time, under a lease.

A claim has a fence, which grows each time that a batch is claimed. What a run writes is written
under its fence, in one transaction with the look at it, so that a run whose batch another host has
taken up writes nothing more.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from hostelry.base.errors import RetryableError
from hostelry.domain.llm_batch import LlmBatch
from hostelry.jobs.batches.tables import BATCHES, CLAIMS, METADATA, SHARED
from hostelry.store.database import Database
from hostelry.store.tables import insert_once

LEASE_S = 30.0
_BATCH = msgspec.msgpack.Decoder(LlmBatch)
_POOLS = msgspec.msgpack.Decoder(list[str])
_NO_POOLS = msgspec.msgpack.encode(list[str]())


class BatchClaimLostError(RetryableError):
    """Another host has taken the batch up: nothing was written."""


@dataclass(frozen=True, slots=True)
class BatchClaim:
    """The right to run a batch, until a higher fence is given."""

    batch_id: str
    fence: int


@dataclass(frozen=True, slots=True)
class ClaimsSeen:
    """What a host finds: the batches that it has still, as their rows say; other hosts' pools."""

    kept: Mapping[str, LlmBatch]
    elsewhere: Mapping[str, Sequence[str]]


class BatchClaims:
    """Claims of the jobs process of `host`, of which there is one at a time; calls block."""

    def __init__(self, database: Database, host: str) -> None:
        self._database = database
        self._host = host
        for metadata in (METADATA, SHARED):
            database.create(metadata)

    def take(
        self, running: Collection[str], limit: int, now: float, only: str | None = None
    ) -> list[tuple[LlmBatch, BatchClaim]]:
        """Claim batches that no host runs, the oldest first, until `now` + LEASE_S.

        `running` are those that this process runs, whose leases may have ended.
        """
        both = BATCHES.outerjoin(CLAIMS, CLAIMS.c.batch == BATCHES.c.id)
        is_free = CLAIMS.c.batch.is_(None) | (CLAIMS.c.lease_until <= now)
        found = sa.select(BATCHES.c.id).select_from(both)
        found = found.where(BATCHES.c.ended_at.is_(None), BATCHES.c.id.not_in(running), is_free)
        if only is not None:
            found = found.where(BATCHES.c.id == only)
        found = found.order_by(BATCHES.c.sequence).limit(limit)
        ids = [row.id for row in self._database.query(found)] if limit > 0 else []
        taken = []
        for id in ids:
            with self._database.write() as connection:
                if (claimed := self._take(connection, id, now)) is not None:
                    taken.append(claimed)
        return taken

    def look(self, held: Mapping[str, tuple[BatchClaim, Sequence[str]]], now: float) -> ClaimsSeen:
        """Renew claims, each with the pools of copies that its batch has lines for."""
        with self._database.write() as connection:
            kept = [
                id
                for id, (claim, pools) in sorted(held.items())
                if self._renew(connection, claim, pools, now)
            ]
            rows = connection.execute(
                sa.select(BATCHES.c.id, BATCHES.c.record).where(BATCHES.c.id.in_(kept))
            ).all()
            others = connection.execute(
                sa.select(CLAIMS.c.batch, CLAIMS.c.pools).where(
                    CLAIMS.c.owner != self._host, CLAIMS.c.lease_until > now
                )
            ).all()
        return ClaimsSeen(
            kept={row.id: _BATCH.decode(row.record) for row in rows},
            elsewhere={row.batch: _POOLS.decode(row.pools) for row in others},
        )

    def give_back(self) -> None:
        """Let any host have everything at once, at the end of a process and at its start."""
        mine = sa.update(CLAIMS).where(CLAIMS.c.owner == self._host)
        with self._database.write() as connection:
            connection.execute(mine.values(lease_until=0.0, pools=_NO_POOLS))

    def _take(
        self, connection: Connection, id: str, now: float
    ) -> tuple[LlmBatch, BatchClaim] | None:
        is_mine = CLAIMS.c.batch == id
        none = {"batch": id, "fence": 0, "owner": "", "lease_until": 0.0, "pools": _NO_POOLS}
        connection.execute(insert_once(CLAIMS, connection), none)
        claimed = {
            "fence": CLAIMS.c.fence + 1,
            "owner": self._host,
            "lease_until": now + LEASE_S,
            "pools": _NO_POOLS,
        }
        update = sa.update(CLAIMS).where(is_mine, CLAIMS.c.lease_until <= now).values(claimed)
        row = connection.execute(update.returning(CLAIMS.c.fence)).first()
        if row is None:
            return None
        is_there = (BATCHES.c.id == id, BATCHES.c.ended_at.is_(None))
        batch = connection.execute(sa.select(BATCHES.c.record).where(*is_there)).first()
        if batch is None:  # it has ended meanwhile
            connection.execute(sa.delete(CLAIMS).where(is_mine))
            return None
        return _BATCH.decode(batch.record), BatchClaim(id, row.fence)

    def _renew(
        self, connection: Connection, claim: BatchClaim, pools: Sequence[str], now: float
    ) -> bool:
        mine = (CLAIMS.c.batch == claim.batch_id, CLAIMS.c.fence == claim.fence)
        values = {"lease_until": now + LEASE_S, "pools": msgspec.msgpack.encode(list(pools))}
        renewed = connection.execute(sa.update(CLAIMS).where(*mine).values(values))
        return renewed.rowcount == 1


def check_held(connection: Connection, claim: BatchClaim) -> None:
    """Raise BatchClaimLostError unless the claim holds; it does to the end of the transaction."""
    row = connection.execute(
        sa.select(CLAIMS.c.fence).where(CLAIMS.c.batch == claim.batch_id).with_for_update()
    ).first()
    if row is None or row.fence != claim.fence:
        raise BatchClaimLostError(f"another host runs {claim.batch_id} now")


def end_claim(connection: Connection, claim: BatchClaim) -> None:
    """Forget the claim of a batch that has ended."""
    connection.execute(sa.delete(CLAIMS).where(CLAIMS.c.batch == claim.batch_id))
