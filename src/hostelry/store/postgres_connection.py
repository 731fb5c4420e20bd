"""Connections to PostgreSQL that end in time, whatever the server and the network do."""

import re
import select
from collections.abc import Generator
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from hostelry.base.clock import monotonic_s
from hostelry.store.errors import StoreRefused

URL_FORM = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full"
HOSTS = re.compile(r"[\w.:%\[\],/-]*")
# A peer that vanished without a word is noticed within these seconds.
NETWORK = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
    "fallback_application_name": "hostelry",
}
# One statement, as each costs a round trip. An operator's stricter durability is kept.
SETTINGS = """
SELECT set_config('statement_timeout', %(timeout_ms)s, false),
       set_config('lock_timeout', %(timeout_ms)s, false),
       set_config('idle_in_transaction_session_timeout', %(idle_ms)s, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('synchronous_commit', replace(current_setting('synchronous_commit'),
                                                'off', 'on'), false)
"""
ANSWER_SLACK_S = 1.0  # beyond the server's own limit


class TimedConnection(psycopg.Connection[Any]):
    """A connection that is closed where the server does not answer: it may be frozen."""

    timeout_s: float = 10.0

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """What `gen` returns; OperationalError, and the connection is closed, if it takes long."""
        return super().wait(self._limited(gen), *args, **options)

    def _limited(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
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
    """The parameters of a URL; StoreRefused, which repeats nothing of it, where it is none."""
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


def place_of(parameters: dict[str, Any]) -> str:
    """The URL of a database without user and password."""
    host = quote(str(parameters.get("host", "")), safe=".:,[]%")
    port = f":{parameters['port']}" if parameters.get("port") else ""
    return f"postgresql://{host}{port}/{quote(str(parameters.get('dbname', '')))}"


def connect(parameters: dict[str, Any], timeout_s: float, *, autocommit: bool) -> TimedConnection:
    """A connection whose statements end within `timeout_s` seconds; psycopg.Error where none."""
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
    """Whether something arrives on a socket within `timeout_s` seconds, or its end."""
    poll = select.poll()  # unlike select(), for any number of open files
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _check_encoding(connection: TimedConnection, parameters: dict[str, Any]) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreRefused(
            f"the store {place_of(parameters)} was refused: its encoding is {encoding}; make the"
            " database with: CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
        )
