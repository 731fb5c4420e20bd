"""Receives announcements of other processes; its connection is opened again when it is lost."""

import threading
from collections.abc import Callable

import psycopg

from hostelry.base.errors import HostelryError
from hostelry.store.announcements import Announcements
from hostelry.store.in_use import HOLD_STATEMENT
from hostelry.store.postgres_connection import TimedConnection, is_readable

CHANNEL = "hostelry"
POLL_S = 0.25  # of a wait, while other processes cannot be received
LISTENING_POLL_S = 1.0  # of a wait, in case that an announcement is lost
RECONNECT_S = 0.5
HEARTBEAT_S = 5.0  # a connection that says nothing is tried


class PostgresListener:
    """A thread that passes announcements of PostgreSQL on to this process's; started by need."""

    def __init__(
        self, connect: Callable[[], TimedConnection], announcements: Announcements
    ) -> None:
        self.poll_s = POLL_S  # how often a wait must look by itself
        self._connect = connect
        self._announcements = announcements
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen from now on; at most one thread."""
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="postgres-listener", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Stop listening soon; does not wait for the server."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with self._connect() as connection:
                    self._listen(connection)
            except (psycopg.Error, HostelryError, OSError):
                # The waiter's own read reports the cause.
                pass
            finally:
                self.poll_s = POLL_S
            self._closed.wait(RECONNECT_S)

    def _listen(self, connection: TimedConnection) -> None:
        connection.add_notify_handler(lambda it: self._announcements.announce(it.payload))
        connection.execute(f"LISTEN {CHANNEL}")
        connection.execute(HOLD_STATEMENT)
        self.poll_s = LISTENING_POLL_S
        self._announcements.announce_all()
        while not self._closed.is_set():
            is_readable(connection.fileno(), HEARTBEAT_S)
            connection.execute("SELECT 1")
