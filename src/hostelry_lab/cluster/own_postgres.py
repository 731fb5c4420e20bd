"""A PostgreSQL server that this process starts from the machine's programs, and ends with itself.

The drill `cluster` and the tests start their servers with this module.
"""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_port

USER = "hostelry"
DATABASE = "postgres"
DEBIAN = Path("/usr/lib/postgresql")  # has its programs, which are not in the PATH
READY = "database system is ready to accept connections"
READY_S = 60.0
UNPRIVILEGED = 65_534  # the user without rights, on each Linux
STARTS = 20  # tries, since the processes of a killed predecessor end by themselves
SETTINGS = ("shared_buffers=16MB", "max_connections=60", "jit=off", "listen_addresses=127.0.0.1")
LOCALE = ("--locale", "C.UTF-8")


def programs() -> Path:
    """The folder of `initdb` and `postgres`. Raises TerminalError if they are not installed."""
    found = [it.parent for it in sorted(DEBIAN.glob("*/bin/initdb"))]
    in_path = shutil.which("initdb")
    if in_path is not None:
        found.insert(0, Path(in_path).resolve().parent)
    if not found or shutil.which("setpriv") is None:
        raise TerminalError(
            "the drill starts a PostgreSQL of its own, and needs its programs initdb and postgres "
            "(Debian: postgresql) and setpriv (util-linux); or give it an empty database by --store"
        )
    return found[-1]


class OwnPostgres:
    """One server on a free port of loopback, and on a socket in its temporary folder.

    `settings` are the server's, and `locale` has options of `initdb`. Without `password`, a random
    one is made.
    """

    def __init__(
        self,
        *,
        password: str | None = None,
        settings: Sequence[str] = SETTINGS,
        locale: Sequence[str] = LOCALE,
    ) -> None:
        self._programs = programs()
        self._owner = get_unprivileged_user()
        self.folder = Path(tempfile.mkdtemp(prefix="hostelry-pg-"))
        if self._owner is not None:
            os.chown(self.folder, self._owner.pw_uid, self._owner.pw_gid)
        self.port = free_port()
        self._password = password or secrets.token_hex(16)
        self._settings, self._locale = settings, locale
        self._process: subprocess.Popen[str] | None = None
        self._log: list[str] = []

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self.port}/{DATABASE}"

    @contextmanager
    def running(self) -> Iterator["OwnPostgres"]:
        """Run the server during the block. Its folder is removed afterwards."""
        try:
            self.begin()
            yield self
        finally:
            self.close()

    @property
    def pid(self) -> int:
        """The postmaster's process id. The server must have been started."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """What the server has logged so far."""
        return "".join(self._log)

    def begin(self) -> None:
        """Make the server's data, and start it. Raises TerminalError."""
        self._initialize()
        self.start()

    def close(self) -> None:
        """Stop the server and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start and return once the server accepts connections. Raises TerminalError."""
        for _ in range(STARTS):
            if self._start():
                return
        raise TerminalError(f"PostgreSQL does not start: {self.log()[-1000:]}")

    def stop(self) -> None:
        """Shut down as an operator does, and return once it has ended."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill all processes of the server at once, like a power cut."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._end(signal.SIGKILL)

    def processes(self) -> list[int]:
        """The postmaster, then its children, or an empty list if it does not run."""
        if self._process is None or self._process.poll() is not None:
            return []
        pid = self._process.pid
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            return [pid, *map(int, children.split())]
        return [pid]

    def _initialize(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self._password)
        if self._owner is not None:
            os.chown(secret, self._owner.pw_uid, self._owner.pw_gid)
        secret.chmod(0o600)
        done = subprocess.run(
            [
                *self._as_owner(), self._programs / "initdb", "--pgdata", self.folder / "data",
                "--username", USER, "--pwfile", secret, "--auth", "scram-sha-256", "--no-sync",
                "--encoding", "UTF8", *self._locale,
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise TerminalError(f"initdb failed: {done.stdout[-500:]}{done.stderr[-500:]}")

    def _start(self) -> bool:
        settings = [it for setting in self._settings for it in ("-c", setting)]
        self._process = subprocess.Popen(
            [
                *self._as_owner(), self._programs / "postgres", "-D", self.folder / "data",
                "-p", str(self.port), "-k", self.folder, *settings,
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        answered, ready = threading.Event(), list[bool]()
        threading.Thread(
            target=self._read, args=(self._process, answered, ready), daemon=True
        ).start()
        answered.wait(READY_S)
        if not ready:
            self._end(signal.SIGKILL)
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
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(by)
        try:
            self._process.wait(READY_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _as_owner(self) -> list[str]:
        """The command's prefix, which sets the user, and ends the server with this process."""
        prefix = ["setpriv", "--pdeathsig", "INT"]
        if self._owner is not None:
            prefix += ["--reuid", str(self._owner.pw_uid), "--regid", str(self._owner.pw_gid)]
            prefix += ["--clear-groups"]
        return prefix


def get_unprivileged_user() -> pwd.struct_passwd | None:
    """The user that runs the server, since PostgreSQL refuses root. None: this process's user."""
    if os.geteuid() != 0:
        return None
    names = {it.pw_name: it for it in pwd.getpwall()}
    return names.get("postgres") or pwd.getpwuid(UNPRIVILEGED)
