"""The cut of a backup: every file of a home's state at one moment, while processes write it.

| state | how it stays unchanged during the copy |
| --- | --- |
| databases | a reading transaction for each (`SqliteSnapshot`) |
| objects | hard links and sizes, made while the object store stands still |
| files that only grow, or are replaced whole | hard links and sizes |
| settings and keys | their bytes |

The object store stands still for the time of the links, some milliseconds, by SIGSTOP and SIGCONT.
Its files are then as after SIGKILL, which ends it at each stop. If the backup is killed in between,
`up` finds that the store hangs, and starts it again.
"""

import contextlib
import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.proc import thread_states
from hostelry.home.home import Home
from hostelry.home.run_file import live_run_file, live_run_files
from hostelry.store.sqlite import SqliteSnapshot

COPIED_BYTES = 64 * 1024  # a smaller file may be rewritten in place: its bytes are taken
STILL_WITHIN_S = 2.0
STILL_ATTEMPTS = 5
LISTINGS = 100
AUDIT_PER_RUN = ("lock", "reserve")
PER_RUN = ("mini.options", "LOCK")  # the object store makes them at each start


class CutFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the cut: the first `num_bytes` of `source`, or the state of a database."""

    path: str  # in the home, with slashes
    num_bytes: int
    source: Path
    database: SqliteSnapshot | None = None


@contextmanager
def one_backup(home: Home) -> Iterator[None]:
    """Hold the lock of the home's backups. Raises TerminalError during another backup."""
    home.run.mkdir(mode=0o700, exist_ok=True)
    with (home.run / "backup.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TerminalError(f"another backup of {home.root} is being made") from None
        yield


def remove_leftovers(home: Home) -> None:
    """Remove the links of a backup that was killed, which keep the space of removed files."""
    if not home.backup_cut.exists():
        return
    with contextlib.suppress(TerminalError), one_backup(home):
        shutil.rmtree(home.backup_cut, ignore_errors=True)


@contextmanager
def make_cut(home: Home, pause: Callable[[float], None]) -> Iterator[list[CutFile]]:
    """The state of a home at one moment. The home may change during the block.

    Raises TerminalError if the cut cannot be made.
    """
    folder = home.backup_cut
    with ExitStack() as stack:
        shutil.rmtree(folder, ignore_errors=True)  # of a backup that was killed
        folder.mkdir(mode=0o700)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        links = _Links(home.root, folder, is_live=bool(live_run_files(home)))
        # A batch's file exists before its row is written, and is removed after its row. So the
        # files from before and after the databases' moment include each file that a row names.
        links.add_folder(home.files)
        databases = []
        for path in list_databases(home):
            database = SqliteSnapshot(path)
            stack.callback(database.close)
            databases.append(
                CutFile(
                    path=path.name, num_bytes=database.num_bytes, source=path, database=database
                )
            )
        # Objects come after the records that name them.
        with _still(home, pause):
            links.add_folder(home.objects / "data", skip=_is_per_run)
        for grown in (home.files, home.metrics, home.capture, home.tls, home.root / "topics"):
            links.add_folder(grown)
        links.add_folder(home.audit, skip=lambda it: it.name in AUDIT_PER_RUN)
        for single in list_settings(home):
            links.add(single)
        yield [*databases, *links.files()]


def list_databases(home: Home) -> list[Path]:
    """List the existing databases of a home."""
    known = (home.state, home.messages, home.jobs, home.object_events, home.log_events)
    return [it for it in known if it.exists()]


def list_settings(home: Home) -> list[Path]:
    """List the existing single files of a home: keys, settings, the audit log."""
    known = (
        home.credentials,
        home.config,
        home.root_key,
        home.images,
        home.actions,
        home.prices,
        home.https_ca,
        home.former_audit,
        home.former_audit.with_name("audit.1.jsonl"),
    )
    return [it for it in known if it.exists()]


class _Links:
    """Links to a home's files in `folder`. If nothing runs, the files are used without links."""

    def __init__(self, root: Path, folder: Path, *, is_live: bool) -> None:
        self._root = root
        self._folder = folder
        self._is_live = is_live
        self._files: dict[str, CutFile] = {}
        self._num_kept = 0

    def add_folder(self, folder: Path, skip: Callable[[Path], bool] = lambda _: False) -> None:
        """Add every file below a folder, as one listing has them.

        Raises TerminalError if the folder never stands still for the time of a listing.
        """
        if not folder.exists():
            return
        for _ in range(LISTINGS):
            before = _listing(folder, skip)
            kept = dict(self._files)
            gone = [path for path in before if not self.add(path)]
            if not gone and _listing(folder, skip) == before:
                return
            self._files = kept
        raise TerminalError(
            f"{folder} changes too fast to be copied: try again, or stop what writes"
        )

    def add(self, path: Path) -> bool:
        """Add a file. False if it is gone."""
        name = path.relative_to(self._root).as_posix()
        try:
            num_bytes = path.stat().st_size
            source = path if not self._is_live else self._keep(path, num_bytes)
        except FileNotFoundError:
            return False
        self._files[name] = CutFile(path=name, num_bytes=num_bytes, source=source)
        return True

    def files(self) -> list[CutFile]:
        """The files, by path."""
        return [self._files[name] for name in sorted(self._files)]

    def _keep(self, path: Path, num_bytes: int) -> Path:
        kept = self._folder / f"{self._num_kept}"
        self._num_kept += 1
        if num_bytes <= COPIED_BYTES:
            with path.open("rb") as file:
                kept.write_bytes(file.read(num_bytes))
            return kept
        try:
            os.link(path, kept)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise TerminalError(
                f"{self._root} is on a file system without hard links ({error.strerror}), which a"
                " backup of a running home needs: run `hostelry down`, and back it up then"
            ) from error
        return kept


def _listing(folder: Path, skip: Callable[[Path], bool]) -> list[Path]:
    found = []
    for place, folders, names in os.walk(folder, onerror=_fail):
        folders[:] = [it for it in folders if not skip(Path(place, it))]
        paths = [Path(place, it) for it in names]
        found += [it for it in paths if not skip(it) and it.is_file() and not it.is_symlink()]
    return sorted(found)


def _fail(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # a folder that went meanwhile
        raise error


def _is_per_run(path: Path) -> bool:
    """Whether the object store makes this at each start: the log of its election, and its flags."""
    is_election = path.parent.name == "data" and path.name[:1] == "m" and path.name[1:].isdigit()
    return path.name in PER_RUN or is_election


@contextmanager
def _still(home: Home, pause: Callable[[float], None]) -> Iterator[None]:
    """Hold the object store for the block, if it runs."""
    record = live_run_file(home, "objectstore")
    if record is None:
        yield
        return
    try:
        process = os.pidfd_open(record.pid)
    except ProcessLookupError:  # it has ended: nothing writes its files
        process = None
    try:
        if process is not None and record.alive:  # the pid may be another process's by now
            _stop(process, record.pid, pause)
        yield
    finally:
        if process is not None:
            _send(process, signal.SIGCONT)
            os.close(process)


def _stop(process: int, pid: int, pause: Callable[[float], None]) -> None:
    """Stop every thread. Raises TerminalError if one does not leave the kernel in time."""
    for _ in range(STILL_ATTEMPTS):
        _send(process, signal.SIGSTOP)
        until_s = monotonic_s() + STILL_WITHIN_S
        while monotonic_s() < until_s:
            if all(state in "TtZX" for state in thread_states(pid)):
                return
            pause(0.001)
        _send(process, signal.SIGCONT)
        pause(STILL_WITHIN_S)
    raise TerminalError(
        "the object store waits for its disk for too long to stand still: back up when it has less"
        " to write, or after `hostelry down`"
    )


def _send(process: int, number: int) -> None:
    try:
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return  # it has ended: nothing writes its files
