"""Connections to PostgreSQL with timeouts, and the listener for announcements."""

import re
import select
import threading
from collections.abc import Callable, Generator
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import HostelryError
from hostelry.store.announcements import Announcements
from hostelry.store.protocol import StoreRefused
from hostelry.store.schema import HOLD_STATEMENT

URL_FORM = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full"
HOSTS = re.compile(r"[\w.:%\[\],/-]*")
# A peer that vanished silently is noticed within these seconds.
NETWORK = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
    "fallback_application_name": "hostelry",
}
# One statement, because each costs a round trip. A stricter durability of the operator is kept.
SETTINGS = """
SELECT set_config('statement_timeout', %(timeout_ms)s, false),
       set_config('lock_timeout', %(timeout_ms)s, false),
       set_config('idle_in_transaction_session_timeout', %(idle_ms)s, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('synchronous_commit', replace(current_setting('synchronous_commit'),
                                                'off', 'on'), false)
"""
ANSWER_SLACK_S = 1.0  # on top of the server's own limit


class TimedConnection(psycopg.Connection[Any]):
    """A connection that is closed if the server does not answer, because it may hang."""

    timeout_s: float = 10.0

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Return the result of `gen`. After `timeout_s` disconnect and raise OperationalError."""
        return super().wait(self._limit(gen), *args, **options)

    def _limit(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        ends_at = monotonic_s() + self.timeout_s + ANSWER_SLACK_S
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and monotonic_s() > ends_at:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(
                        f"the server did not answer within {self.timeout_s + ANSWER_SLACK_S:g} s"
                    )
                state = gen.send(ready)
        except StopIteration as stop:
            return stop.value


def connection_parameters(url: str) -> dict[str, Any]:
    """Parse a URL. Raises StoreRefused if it is invalid, without repeating the URL."""
    try:
        found = conninfo_to_dict(url)
    except psycopg.Error:
        found = {"host": "@"}
    ports = str(found.get("port", "5432"))
    plain = HOSTS.fullmatch(str(found.get("host", ""))) and "@" not in str(found.get("dbname", ""))
    if not plain or not re.fullmatch(r"[\d,]*", ports):
        raise StoreRefused(
            f"the store's URL cannot be read; its form is {URL_FORM}. In a password write %40 for"
            " @, %2F for /, %3A for :, %3F for ? and %25 for %; or leave it out, and set PGPASSWORD"
            " or PGPASSFILE"
        )
    return {**NETWORK, **found}


def get_place(parameters: dict[str, Any]) -> str:
    """Return a database's URL without user and password."""
    host = quote(str(parameters.get("host", "")), safe=".:,[]%")
    port = f":{parameters['port']}" if parameters.get("port") else ""
    return f"postgresql://{host}{port}/{quote(str(parameters.get('dbname', '')))}"


def connect(parameters: dict[str, Any], timeout_s: float, *, autocommit: bool) -> TimedConnection:
    """Connect. Statements end within `timeout_s` seconds. Raises psycopg.Error."""
    made = TimedConnection.connect(**parameters, autocommit=True)
    try:
        made.timeout_s = timeout_s
        _check_encoding(made, parameters)
        milliseconds = int(timeout_s * 1000)
        values = {"timeout_ms": str(milliseconds), "idle_ms": str(milliseconds // 2)}
        made.execute(SETTINGS, values)
        made.autocommit = autocommit
    except BaseException:
        made.close()
        raise
    return made


def is_readable(fd: int, timeout_s: float) -> bool:
    """Whether bytes, or the end, arrive on a socket within `timeout_s` seconds."""
    poll = select.poll()  # unlike select(), it works with any number of open files
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _check_encoding(connection: TimedConnection, parameters: dict[str, Any]) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreRefused(
            f"the store {get_place(parameters)} was refused: its encoding is {encoding}; make the"
            " database with: CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
        )


CHANNEL = "hostelry"
POLL_S = 0.25  # between checks of a wait, while announcements of other processes cannot arrive
LISTENING_POLL_S = 1.0  # between checks of a wait, in case an announcement is lost
RECONNECT_S = 0.5
HEARTBEAT_S = 5.0  # a silent connection is tested after this time


class PostgresListener:
    """A thread that passes PostgreSQL's announcements on to this process. Started on demand."""

    def __init__(
        self, connect: Callable[[], TimedConnection], announcements: Announcements
    ) -> None:
        self.poll_s = POLL_S  # how often a waiting thread must check by itself
        self._connect = connect
        self._announcements = announcements
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen from now on, in at most one thread."""
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="postgres-listener", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Ask the thread to stop, without waiting for the server."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with self._connect() as connection:
                    self._listen(connection)
            except (psycopg.Error, HostelryError, OSError):
                # The read of the waiting thread reports the cause.
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
