"""The lease in PostgreSQL, over a separate connection. Carries out decisions of `lease.decide`.

The session of a leader holds a shared lock on its epoch. When the process is killed, the server
drops the lock at once, and standbys notice. Every write of the leader holds this lock, too
(`fence`). An acquisition ends all sessions that hold the lock on the previous epoch, including
sessions of a frozen leader, and waits for their end. Only then does the epoch grow.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from hostelry.store.leaders import epoch_key
from hostelry.store.lease import NAME, TTL_S, LeaderLease, LeaseLook
from hostelry.store.postgres_connection import (
    TimedConnection,
    connect,
    connection_parameters,
    get_place,
)
from hostelry.store.protocol import StoreUnavailable

TIMEOUT_S = 2.0  # for a statement, and for a wait for a lock
KEPT_CHANGES = 100
FORGOTTEN_S = 3600.0  # a control that was not seen for this time is removed
NOW = "CAST(extract(epoch FROM clock_timestamp()) AS float8)"
KEY = epoch_key("%(epoch)s")
# The sessions that hold the lock on an epoch (given as SQL), without sessions that wait for it.
HOLDERS = (
    "pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock' AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND classid = CAST(CAST('leases' AS regclass) AS oid)"
    " AND objid = CAST(CAST({epoch} AS int8) AS oid)"
)
LOOK = f"""
SELECT {NOW}, CAST(extract(epoch FROM pg_postmaster_start_time()) AS float8),
       EXISTS (SELECT 1 FROM {HOLDERS.format(epoch="leases.epoch")}),
       holder, epoch, renewals, renewed_at, expires_at
FROM (SELECT 1) AS one LEFT JOIN leases ON name = %(name)s
"""
RENEWED = f"renewed_at = {NOW}, expires_at = {NOW} + %(ttl_s)s"
RENEW = f"""
UPDATE leases SET renewals = renewals + 1, {RENEWED}
WHERE name = %(name)s AND holder = %(me)s AND epoch = %(epoch)s
"""
FIRST = f"""
INSERT INTO leases VALUES (%(name)s, %(me)s, 1, 0, {NOW}, {NOW} + %(ttl_s)s) ON CONFLICT DO NOTHING
"""
AS_SEEN = """
SELECT 1 FROM leases WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s
AND renewals = %(renewals)s FOR UPDATE
"""
END_SESSIONS = f"""
SELECT pg_terminate_backend(pid) FROM {HOLDERS.format(epoch="%(epoch)s")}
AND pid <> pg_backend_pid()
"""
LOCK_ALONE = f"SELECT pg_advisory_xact_lock({KEY})"
LOCK_SHARED = f"SELECT pg_advisory_lock_shared({KEY})"
NEXT = f"""
UPDATE leases SET holder = %(me)s, epoch = greatest(epoch, %(floor)s) + 1, renewals = 0, {RENEWED}
WHERE name = %(name)s RETURNING epoch
"""
CHANGED = f"""
INSERT INTO lease_changes VALUES (%(name)s, %(epoch)s, %(me)s, {NOW}, %(reason)s)
"""
FORGET_CHANGES = "DELETE FROM lease_changes WHERE name = %(name)s AND epoch <= %(oldest)s"
RELEASE = """
UPDATE leases SET expires_at = 0 WHERE name = %(name)s AND holder = %(me)s AND epoch = %(epoch)s
"""
GONE = "DELETE FROM controls WHERE id = %(holder)s"
REGISTER = f"""
INSERT INTO controls VALUES (%(me)s, %(address)s, %(version)s, {NOW}, {NOW})
ON CONFLICT (id) DO UPDATE SET address = excluded.address, seen_at = excluded.seen_at
"""
SHOW_DURABILITY = "SHOW synchronous_commit"
DURABLY = "SELECT set_config('synchronous_commit', %s, true)"
FORGET = f"DELETE FROM controls WHERE seen_at < {NOW} - {FORGOTTEN_S}"


class LeaseRows:
    """The lease as one control uses it in one thread.

    Every call raises StoreUnavailable if the database fails, and the next call connects again.
    `me` names this process and is never used again.
    """

    def __init__(self, url: str, me: str, address: str, version: str) -> None:
        self._parameters = connection_parameters(url) | {"connect_timeout": int(TIMEOUT_S)}
        self._connection: TimedConnection | None = None
        self._held: int | None = None  # the epoch that this session has locked
        self._durable = "on"  # the operator's setting, which may be stricter
        self._values = {"name": NAME, "me": me, "ttl_s": TTL_S}
        self._control = {"address": address, "version": version}

    def look(self) -> LeaseLook:
        """Read the lease, and whether its holder has a session."""
        now, started_at, lives, holder, epoch, renewals, renewed_at, expires_at = self._run(LOOK)[0]
        lease = None
        if holder is not None:
            lease = LeaderLease(
                holder=holder,
                epoch=epoch,
                renewals=renewals,
                renewed_at=renewed_at,
                expires_at=expires_at,
            )
        return LeaseLook(lease=lease, now=now, server_started_at=started_at, session_lives=lives)

    def acquire(self, seen: LeaderLease | None, reason: str, floor: int = 0) -> int | None:
        """Acquire an epoch above `floor`, durably. None if the lease differs from `seen`."""
        with self._translate_errors():
            return self._acquire(seen, reason, floor)

    def renew(self, epoch: int) -> bool:
        """Renew the lease. False if another control has it. A power cut may undo a renewal."""
        with self._translate_errors():
            return self._renew(epoch)

    def release(self, epoch: int) -> None:
        """Release the lease, so that a standby can acquire it at once."""
        self._run(RELEASE, epoch=epoch)

    def register(self) -> None:
        """Record that this control runs."""
        self._run(REGISTER, **self._control)
        self._run(FORGET)

    def close(self) -> None:
        """End the session, which also drops the lock on its epoch."""
        connection, self._connection, self._held = self._connection, None, None
        if connection is not None:
            connection.close()

    def _acquire(self, seen: LeaderLease | None, reason: str, floor: int) -> int | None:
        connection = self._connect()
        with connection.transaction():
            connection.execute(DURABLY, (self._durable,))
            epoch = self._take(connection, seen, floor)
            if epoch is None:
                return None
            self._hold(connection, epoch)
            connection.execute(CHANGED.encode(), self._values_for(epoch, reason=reason))
            connection.execute(FORGET_CHANGES, self._values_for(epoch, oldest=epoch - KEPT_CHANGES))
        return epoch

    def _take(
        self, connection: TimedConnection, seen: LeaderLease | None, floor: int
    ) -> int | None:
        if seen is None:
            return connection.execute(FIRST.encode(), self._values).rowcount or None
        before = self._values_for(seen.epoch, holder=seen.holder, renewals=seen.renewals)
        if connection.execute(AS_SEEN, before).fetchone() is None:
            return None
        connection.execute(END_SESSIONS.encode(), before)
        connection.execute(LOCK_ALONE.encode(), before)
        connection.execute(GONE, before)
        found = connection.execute(NEXT.encode(), {**self._values, "floor": floor}).fetchone()
        return None if found is None else int(found[0])

    def _renew(self, epoch: int) -> bool:
        connection = self._connect()
        if self._held != epoch:  # a new session
            self._hold(connection, epoch)
        return connection.execute(RENEW.encode(), self._values_for(epoch)).rowcount == 1

    def _hold(self, connection: TimedConnection, epoch: int) -> None:
        connection.execute(LOCK_SHARED.encode(), {"epoch": epoch})
        self._held = epoch

    def _values_for(self, epoch: int, **more: Any) -> dict[str, Any]:
        return {**self._values, "epoch": epoch, **more}

    def _run(self, statement: str, **more: Any) -> list[tuple[Any, ...]]:
        with self._translate_errors():
            found = self._connect().execute(statement.encode(), {**self._values, **more})
            return found.fetchall() if found.description else []

    def _connect(self) -> TimedConnection:
        if self._connection is None:
            # Stored before it is used, so that `close` ends it if the server fails meanwhile.
            made = self._connection = connect(self._parameters, TIMEOUT_S, autocommit=True)
            self._durable = str(made.execute(SHOW_DURABILITY).fetchall()[0][0])
            made.execute("SET synchronous_commit TO off")
        return self._connection

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            self.close()  # the state of the session's locks is unknown
            cause = " ".join(str(error).split())
            raise StoreUnavailable(
                f"the store {get_place(self._parameters)} is unavailable: {cause}"
            ) from error
