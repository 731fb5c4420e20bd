"""A server of PostgreSQL for tests: one a process of pytest, an empty database a test.

It keeps its promises (fsync is on), orders text unlike SQLite by default, and ends with
the process that started it.
"""

import atexit
import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psycopg

USER = "hostelry"
PASSWORD = "pw @/:?%&#'x"  # every character that is special in a URL
QUOTED_PASSWORD = "pw%20%40%2F%3A%3F%25%26%23%27x"
READY = "database system is ready to accept connections"
SETTINGS = (
    "shared_buffers=16MB",
    "max_connections=40",
    "autovacuum=off",
    "jit=off",
    "listen_addresses=127.0.0.1",
    "log_connections=off",
)
START_ATTEMPTS = 20  # of a server whose predecessor was killed: its processes end by themselves
_numbers = itertools.count(1)


class PostgresServer:
    """One server, on a free port of 127.0.0.1 and a socket in its folder."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hostelry-pg-"))
        self._owner = _unprivileged()
        if self._owner is not None:
            os.chown(self.folder, self._owner.pw_uid, self._owner.pw_gid)
        self._binaries = _binaries()
        self._process: subprocess.Popen[str] | None = None
        self._log: list[str] = []
        self.port = _free_port()
        self._initialize()
        self.start()

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """What the server has logged so far."""
        return "".join(self._log)

    def url(self, database: str, *, user: str = USER, password: str = QUOTED_PASSWORD) -> str:
        """The URL of one of its databases."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def make_database(self, options: str = "ENCODING 'UTF8' TEMPLATE template0") -> str:
        """A new and empty database; its name."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} {options}")
        return name

    def drop_database(self, name: str) -> None:
        """End its sessions and remove it."""
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement outside of any transaction; its rows."""
        with psycopg.connect(
            host=str(self.folder), port=self.port, user=USER, password=PASSWORD, dbname=database,
            autocommit=True, connect_timeout=10,
        ) as connection:  # fmt: skip
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start and return once it accepts connections."""
        for _ in range(START_ATTEMPTS):
            if self._start():
                return
        raise AssertionError(f"PostgreSQL does not start:\n{self.log()[-4000:]}")

    def stop(self) -> None:
        """End its sessions, shut down and return once it has ended."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """As a power cut: no process of it runs on, nothing is written any more."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop it as an operator does, and start it again on the same port."""
        self.stop()
        self.start()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Within the block no process of it runs, while the kernel accepts connections for it."""
        stopped = self.processes()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(stopped):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def processes(self) -> list[int]:
        """The postmaster, then its children."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [self.pid, *map(int, children.split())]

    def close(self) -> None:
        """Stop it and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _initialize(self) -> None:
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        command: list[str | Path] = [
            *self._as_owner(), self._binaries / "initdb", "--pgdata", self.folder / "data",
            "--username", USER, "--pwfile", secret, "--auth", "scram-sha-256", "--no-sync",
            "--encoding", "UTF8", "--locale", "C.UTF-8",
            "--locale-provider", "icu", "--icu-locale", "en-US",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def _start(self) -> bool:
        settings = [it for setting in SETTINGS for it in ("-c", setting)]
        command: list[str | Path] = [
            *self._as_owner(), self._binaries / "postgres", "-D", self.folder / "data",
            "-p", str(self.port), "-k", self.folder, *settings,
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, errors="replace",
        )  # fmt: skip
        answered = threading.Event()  # ready, or ended
        ready: list[bool] = []
        reader = threading.Thread(
            target=self._read, args=(self._process, answered, ready), daemon=True
        )
        reader.start()
        assert answered.wait(60.0), self.log()
        if not ready:
            self._process.wait(60.0)
        return bool(ready)

    def _read(
        self, process: subprocess.Popen[str], answered: threading.Event, ready: list[bool]
    ) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self._log.append(line)
                if READY in line:
                    ready.append(True)
                    answered.set()
        answered.set()

    def _end(self, by: signal.Signals) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(by)
        self._process.wait(60.0)

    def _as_owner(self) -> list[str]:
        """The command's prefix: its user, and the end with the process that starts it."""
        prefix = ["setpriv", "--pdeathsig", "INT"]
        if self._owner is not None:
            prefix += ["--reuid", str(self._owner.pw_uid), "--regid", str(self._owner.pw_gid)]
            prefix += ["--clear-groups"]
        return prefix


@cache
def postgres_server() -> PostgresServer:
    """This process's server, started by the first call and ended with the process."""
    server = PostgresServer()
    atexit.register(server.close)
    return server


@contextlib.contextmanager
def postgres_database() -> Iterator[str]:
    """The URL of an empty database, which is dropped after the block."""
    server = postgres_server()
    name = server.make_database()
    try:
        yield server.url(name)
    finally:
        server.drop_database(name)


def _unprivileged() -> pwd.struct_passwd | None:
    """Who runs the server; None: we ourselves. PostgreSQL refuses the superuser."""
    if os.geteuid() != 0:
        return None
    names = {it.pw_name: it for it in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _binaries() -> Path:
    """The folder of PostgreSQL's programs; Debian has them outside of the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = debian[-1] if debian else shutil.which("initdb")
    assert found is not None, "there is no PostgreSQL: make database"
    return Path(found).parent


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
