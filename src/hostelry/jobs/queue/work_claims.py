"""Named work that only one of several processes does at a time, under a lease.

event                                   the work
-------------------------------------   ------------------------------------------------------------
another host has the claim              waits
this host gets the claim                begins, and the lease is renewed while it runs
the work ends                           is over. The claim ends with its lease, so that waiting
                                        hosts first learn that nothing is left to do
the work is cancelled                   stops, and the claim is given back
the lease could not be renewed in time  stops, and waits for the claim again
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import sqlalchemy as sa

from hostelry.base.clock import Clock
from hostelry.jobs.queue.tables import METADATA, WORK
from hostelry.store.database import Database
from hostelry.store.protocol import StoreUnavailable
from hostelry.store.tables import insert_once

LOG = logging.getLogger(__name__)
LEASE_S = 30.0
RENEW_S = 8.0
LOOK_S = 2.0
FORGOTTEN_S = 3600.0  # after the end of a lease
Step = Callable[[], Awaitable[None]]


class WorkClaims:
    """Claims of the jobs process of `host`. Calls block."""

    def __init__(self, database: Database, host: str) -> None:
        self._database = database
        self._host = host
        database.create(METADATA)

    def take(self, name: str, now: float, lease_s: float = LEASE_S) -> bool:
        """Claim the work until `now` + `lease_s`. False if another host has it."""
        free = sa.or_(WORK.c.owner == self._host, WORK.c.lease_until <= now)
        mine = {"owner": self._host, "lease_until": now + lease_s}
        with self._database.write() as connection:
            added = connection.execute(insert_once(WORK, connection), {"name": name, **mine})
            if added.rowcount == 1:
                old = WORK.c.lease_until <= now - FORGOTTEN_S
                connection.execute(sa.delete(WORK).where(old))
                return True
            taken = sa.update(WORK).where(WORK.c.name == name, free).values(mine)
            return connection.execute(taken).rowcount == 1

    def renew(self, name: str, now: float) -> bool:
        """Extend the claim to `now` + LEASE_S. False if it is lost."""
        mine = (WORK.c.name == name, WORK.c.owner == self._host)
        with self._database.write() as connection:
            extended = sa.update(WORK).where(*mine).values(lease_until=now + LEASE_S)
            return connection.execute(extended).rowcount == 1

    def give_back(self, name: str) -> None:
        """Let other hosts claim the work at once."""
        mine = (WORK.c.name == name, WORK.c.owner == self._host)
        with self._database.write() as connection:
            connection.execute(sa.delete(WORK).where(*mine))


class SharedWork:
    """Runs work if it is this host's turn. Without `claims` it always is."""

    def __init__(self, claims: WorkClaims | None, clock: Clock) -> None:
        self._claims = claims
        self._clock = clock

    async def run(self, name: str, step: Step) -> None:
        """Run `step` once, under the claim of `name`."""
        if self._claims is None:
            await step()
            return
        while not await self._run_claimed(self._claims, name, step):
            await self._clock.sleep(LOOK_S)

    async def has_turn(self, name: str, lease_s: float) -> bool:
        """True if this host does the work for the next `lease_s`. Asking again extends that."""
        if self._claims is None:
            return True
        try:
            return await asyncio.to_thread(self._claims.take, name, self._clock.now(), lease_s)
        except StoreUnavailable as error:
            LOG.warning("%s wait: %s", name, error)
            return False

    async def end_turn(self, name: str) -> None:
        """Let another host do the work at once."""
        if self._claims is not None:
            with contextlib.suppress(StoreUnavailable):
                await asyncio.to_thread(self._claims.give_back, name)

    async def _run_claimed(self, claims: WorkClaims, name: str, step: Step) -> bool:
        """Run `step` under the claim. False if the claim was not free, or was lost."""
        now = self._clock.now()
        try:
            if not await asyncio.to_thread(claims.take, name, now):
                return False
        except StoreUnavailable as error:
            LOG.warning("%s waits: %s", name, error)
            return False
        task = asyncio.ensure_future(step())
        renewing = asyncio.create_task(self._renew(claims, name, now + LEASE_S))
        try:
            await asyncio.wait({task, renewing}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await _note_end(task)
            with contextlib.suppress(StoreUnavailable):
                await asyncio.to_thread(claims.give_back, name)
            raise
        finally:
            was_ended = task.done()
            await _note_end(task)
            await _note_end(renewing)
        if was_ended:
            task.result()
        else:
            LOG.warning("the claim of %s was lost; the work is given up here", name)
        return was_ended

    async def _renew(self, claims: WorkClaims, name: str, until: float) -> None:
        """Renew the lease until it is lost."""
        pause_s = RENEW_S
        while self._clock.now() < until:
            await self._clock.sleep(pause_s)
            now = self._clock.now()
            try:
                if not await asyncio.to_thread(claims.renew, name, now):
                    return
                until, pause_s = now + LEASE_S, RENEW_S
            except StoreUnavailable as error:
                LOG.warning("the claim of %s cannot be renewed: %s", name, error)
                pause_s = LOOK_S


async def _note_end(task: "asyncio.Future[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
