"""The cluster's database, which the drill reads without any link: the lease, and the writes.

A trigger notes each write of the store in the writing transaction itself: its revision, the epoch
whose lock that transaction holds, and the newest epoch at that moment.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.store.lease import NAME
from hostelry_lab.cluster.cluster_ledger import AcceptedWrite, LeaderSight
from hostelry_lab.threads import running_threads

LOOK_S = 0.05
CALL_S = 10
INSTALL = f"""
CREATE TABLE hostelry_drill_accepted
  (revision int8, kind text, name text, epoch int8, newest int8);
CREATE FUNCTION hostelry_drill_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO hostelry_drill_accepted SELECT NEW.revision, NEW.kind, NEW.name,
    (SELECT max(CAST(objid AS int8)) FROM pg_locks
     WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock' AND objsubid = 1
       AND pid = pg_backend_pid() AND classid = CAST(CAST('leases' AS regclass) AS oid)
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())),
    (SELECT epoch FROM leases WHERE leases.name = '{NAME}');
  RETURN NULL;
END $$;
CREATE TRIGGER hostelry_drill_note AFTER INSERT OR UPDATE ON records
  FOR EACH ROW EXECUTE FUNCTION hostelry_drill_note()
"""
REMOVE = """
DROP TRIGGER IF EXISTS hostelry_drill_note ON records;
DROP FUNCTION IF EXISTS hostelry_drill_note();
DROP TABLE IF EXISTS hostelry_drill_accepted
"""
SIGHT = f"""
SELECT epoch, coalesce((SELECT address FROM controls WHERE id = holder), holder)
FROM leases WHERE name = '{NAME}'
"""
ACCEPTED = "SELECT revision, kind || ' ' || name, epoch, newest FROM hostelry_drill_accepted"
KEPT = "SELECT name FROM records WHERE kind = %s AND body IS NOT NULL"


class ClusterStore:
    """Reader of the database at a URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stopping = threading.Event()
        self.sights: list[LeaderSight] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note each write during the block."""
        self._run(REMOVE)
        self._run(INSTALL)
        try:
            yield
        finally:
            self._run(REMOVE)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the lease while the block runs. `sights` are its changes."""
        with running_threads(self._stopping, self._watch):
            yield

    def sight(self) -> LeaderSight:
        """The lease now. Raises TerminalError if the database does not have a lease."""
        found = self._run(SIGHT)
        if not found:
            raise TerminalError("no control has ever led: the database has no lease")
        return LeaderSight(at=monotonic_s(), epoch=found[0][0], holder=found[0][1])

    def accepted(self) -> list[AcceptedWrite]:
        """Every write that was noted."""
        return [
            AcceptedWrite(revision=row[0], name=row[1], epoch=row[2], newest=row[3])
            for row in self._run(ACCEPTED)
        ]

    def kept(self, kind: str) -> set[str]:
        """The names of the records of a kind."""
        return {it[0] for it in self._run(KEPT, kind)}

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        import psycopg  # an optional dependency, checked before the cluster starts

        try:
            with psycopg.connect(self._url, autocommit=True, connect_timeout=CALL_S) as connection:
                cursor = connection.execute(statement.encode(), values or None)
                return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise TerminalError(f"the cluster's database does not answer: {error}") from error

    def _watch(self) -> None:
        import psycopg

        connection: psycopg.Connection[Any] | None = None
        while not self._stopping.wait(LOOK_S):
            try:
                if connection is None:
                    connection = psycopg.connect(self._url, autocommit=True, connect_timeout=2)
                found = connection.execute(SIGHT.encode()).fetchone()
            except psycopg.Error:  # the database restarts
                if connection is not None:
                    connection.close()
                connection = None
                continue
            if found is not None:
                sight = LeaderSight(at=monotonic_s(), epoch=found[0], holder=found[1])
                if not self.sights or self.sights[-1].epoch != sight.epoch:
                    self.sights.append(sight)
        if connection is not None:
            connection.close()
