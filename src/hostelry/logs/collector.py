"""Collects the output of copies from their log files."""

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hostelry.domain.log_source import LogFile, LogSource
from hostelry.fleet.launch.copy_log import MAX_HEADING_BYTES, parse_heading
from hostelry.fleet.records import ENDED_LOGS, CopyFolder, instance_folders
from hostelry.logs.events import LogsUnavailable, NewEvent, get_messages
from hostelry.logs.store import LogStore

LOG = logging.getLogger(__name__)


class LogFiles:
    """The log files below the folder of instances. Sources that were read once are remembered."""

    def __init__(self, instances: Path) -> None:
        self._instances = instances
        self._sources: dict[Path, LogSource] = {}

    def find(self) -> list[LogFile]:
        """List the log files of copies, running copies first, so that no ending copy is missed.

        Raises OSError.
        """
        with contextlib.suppress(FileNotFoundError):
            found = [*self._running(), *self._find_ended()]
            known = {it.path.parent for it in found}
            self._sources = {path: it for path, it in self._sources.items() if path in known}
            return found
        return []

    def _running(self) -> Iterator[LogFile]:
        for instance in instance_folders(self._instances):
            for copy in _folders(instance.root / "copies"):
                yield from self._file(copy, is_ended=False)

    def _find_ended(self) -> Iterator[LogFile]:
        for copy in _folders(self._instances / ENDED_LOGS):
            yield from self._file(copy, is_ended=True)

    def _file(self, root: Path, *, is_ended: bool) -> Iterator[LogFile]:
        folder = CopyFolder(root)
        source = self._sources.get(root) or folder.load_source()
        if source is not None:
            self._sources[root] = source
            yield LogFile(source=source, path=folder.log, is_ended=is_ended)


def _folders(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            return sorted(Path(it.path) for it in entries if it.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


LOOK_BYTES = 256 * 1024
MAX_LOOK_BYTES = 1024 * 1024
IDLE_S = 2.0
MAX_ENDED_BYTES = 1024 * 1024 * 1024  # of logs of ended copies that wait to be stored


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading a file: new events, the position after them, and if that is its end."""

    events: Sequence[NewEvent]
    position: int
    is_all: bool


class Collector:
    """Collects the files that `find` returns into `store`. `look` is called periodically.

    `shown` converts a line for callers.

    Each look turns the new lines of copies' log files into log events.

    Lines and the position after them are stored in one transaction, so each line is stored once,
    even if a process is killed. Positions count all output of a copy. So reading continues at the
    right place after an agent has cut the log, and the number of bytes that were cut unread is
    known.

        a file                        result
        ---------------------------   ------------------------------------------------------------
        has new lines                 events, with the time of the file's last write
        ends in a part of a line      the part waits, or becomes an event after IDLE_S
        was cut beyond the position   a line with the number of lost bytes
        became shorter otherwise      the copy itself cut it: read from its start, after a line
        of a copy that is gone        read to its end, then removed
        cannot be read or stored      stays as it is, and is tried again at the next look

    Each look stores at most LOOK_BYTES of a file and MAX_LOOK_BYTES in all. Files take turns.
    """

    def __init__(
        self,
        store: LogStore,
        find: Callable[[], Sequence[LogFile]],
        shown: Callable[[str], str] = str,
    ) -> None:
        self._store = store
        self._find = find
        self._shown = shown
        self._positions: dict[str, int] | None = None
        self._turn = 0
        self._is_failing = False

    def look(self, now: float) -> None:
        """Store new lines. A failure is logged once, and its file is tried again."""
        try:
            self._look(now)
            self._is_failing = False
        except (LogsUnavailable, OSError) as error:
            if not self._is_failing:
                LOG.warning("output of copies is not collected now, and kept: %s", error)
            self._is_failing = True
            self._bound_ended()

    def _look(self, now: float) -> None:
        if self._positions is None:
            self._positions = self._store.positions()
        files = {key: it for it in self._find() if (key := _get_key(it)) is not None}
        self._forget(set(self._positions) - set(files))
        keys = sorted(files)
        self._turn = (self._turn + 1) % max(1, len(keys))
        left = MAX_LOOK_BYTES
        for key in [*keys[self._turn :], *keys[: self._turn]]:
            if left <= 0:
                return
            left -= self._collect(key, files[key], min(left, LOOK_BYTES), now)

    def _collect(self, key: str, file: LogFile, budget: int, now: float) -> int:
        """Store the new lines of one file, and return the number of their bytes."""
        assert self._positions is not None
        known = self._positions.get(key, 0)
        reading = read_new(file, known, budget, now)
        if reading is None:
            return 0
        if reading.events or reading.position != known:
            now_ms = int(now * 1000)
            events = [replace(each, message=self._shown(each.message)) for each in reading.events]
            self._store.collect(file.source, key, reading.position, events, now_ms)
            self._positions[key] = reading.position
        if file.is_ended and reading.is_all:
            shutil.rmtree(file.path.parent, ignore_errors=True)
        return abs(reading.position - known)

    def _forget(self, gone: set[str]) -> None:
        assert self._positions is not None
        if gone:
            self._store.forget_files(sorted(gone))
            for key in gone:
                del self._positions[key]

    def _bound_ended(self) -> None:
        """Remove the oldest logs of ended copies if too many wait to be stored."""
        with contextlib.suppress(OSError):
            ended = [it.path for it in self._find() if it.is_ended]
            sizes = {path: path.stat() for path in ended}
            total = sum(it.st_size for it in sizes.values())
            for path in sorted(ended, key=lambda it: sizes[it].st_mtime):
                if total <= MAX_ENDED_BYTES:
                    return
                total -= sizes[path].st_size
                LOG.warning("%d bytes of output of %s are lost", sizes[path].st_size, path.parent)
                shutil.rmtree(path.parent, ignore_errors=True)


def read_new(file: LogFile, known: int, budget: int, now: float) -> Reading | None:
    """Read up to `budget` bytes of a file after the position `known`. None to try again later."""
    try:
        with file.path.open("rb") as opened:
            found = os.fstat(opened.fileno())
            heading = parse_heading(opened.read(MAX_HEADING_BYTES))
            notes: list[str] = []
            if known < heading.position:
                notes.append(lost_note(heading.position - known))
                known = heading.position
            offset = heading.length + known - heading.position
            is_idle = file.is_ended or found.st_mtime < now - IDLE_S
            if offset > found.st_size:
                if not is_idle:  # the agent may be cutting the file at this moment
                    return None
                notes.append("[hostelry] this log was cut by the copy itself; it follows as it is")
                known, offset = heading.position, heading.length
            opened.seek(offset)
            written = opened.read(budget)
    except FileNotFoundError:
        return None
    at_end = offset + len(written) >= found.st_size
    messages, used = get_messages(written, is_final=is_idle and at_end)
    at_ms = int(min(now, found.st_mtime) * 1000)
    return Reading(
        events=[NewEvent(at_ms=at_ms, message=it) for it in [*notes, *messages] if it],
        position=known + used,
        is_all=offset + used >= found.st_size,
    )


def lost_note(lost_bytes: int) -> str:
    """The line that replaces output which was cut before it was stored."""
    return (
        f"[hostelry] {lost_bytes} bytes of output before this line are lost: the log was cut "
        "before they were stored"
    )


def _get_key(file: LogFile) -> str | None:
    """Return an identity of the file that survives a move, or None if the file is gone."""
    try:
        return f"{file.source.copy_id}/{_inode(file.path)}"
    except FileNotFoundError:
        return None


def _inode(path: Path) -> int:
    return path.stat().st_ino
