"""Records of an instance's folder. Each file is written whole or not at all.

Layout: docs/architecture.md section 5.
"""

import contextlib
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.files import region_prefix, remove_regions, write_whole
from hostelry.base.json import decode
from hostelry.base.proc import ProcessIdentity
from hostelry.domain.copy import CopySpec, LastEnd
from hostelry.domain.log_source import LogSource
from hostelry.fleet.rules.images import ImageRule

T = TypeVar("T")
# Folders below the folder of instances.
ENDED_LOGS = ".ended"  # logs of copies that are gone, until they are collected
PACKAGE_LOCKS = ".requirements"
SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """agent.json: the agent that runs this instance. `port` is 0 until it listens.

    `pid` repeats the pid of `process`, so that a person or script finds it at the top.
    """

    pid: int
    port: int
    process: ProcessIdentity

    @classmethod
    def of(cls, process: ProcessIdentity, port: int) -> "AgentRecord":
        """The record of an agent that runs as `process`."""
        return cls(pid=process.pid, port=port, process=process)

    @property
    def address(self) -> str:
        """The URL of the agent."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRecord:
    """copy.json: the state of a copy that outlives its agent.

    `adapters` are the ids registered with the model server. `failure` is set once the copy has
    failed for good. `rule` started the process, even if the operator's file has changed since. The
    process requires `key`, `None` if an older agent started it. `last_end` is the end of the
    previous process.
    """

    spec_digest: str
    process: ProcessIdentity | None = None
    port: int = 0
    restarts: int = 0
    ever_ready: bool = False
    adapters: tuple[str, ...] = ()
    failure: str | None = None
    rule: ImageRule | None = None
    key: str | None = field(default=None, repr=False)
    last_end: LastEnd | None = None


class CopyFolder(msgspec.Struct, frozen=True):
    """Paths of one copy."""

    root: Path

    @property
    def record(self) -> Path:
        """The copy's `CopyRecord`."""
        return self.root / "copy.json"

    @property
    def log(self) -> Path:
        """The model server's output."""
        return self.root / "log"

    @property
    def log_source(self) -> Path:
        """The `LogSource` of the log."""
        return self.root / "source.json"

    @property
    def model(self) -> Path:
        """The model's artifacts, as the model server sees them."""
        return self.root / "model"

    @property
    def packages(self) -> Path:
        """A link that names the shared packages that the copy uses."""
        return self.root / "packages"

    def load(self) -> CopyRecord | None:
        """The record, or None if it cannot be read."""
        return _load(self.record, CopyRecord)

    def save(self, record: CopyRecord) -> None:
        """Write the record. It need not survive a power cut, which ends the process as well."""
        write_whole(self.record, msgspec.json.encode(record), durable=False)

    def load_source(self) -> LogSource | None:
        """The source of the log, or None if it cannot be read."""
        return _load(self.log_source, LogSource)

    def save_source(self, source: LogSource) -> None:
        """Write the source of the log. A full disk stops no copy, but its log is not collected."""
        with contextlib.suppress(OSError):
            write_whole(self.log_source, msgspec.json.encode(source), durable=False)

    def keep_log(self) -> None:
        """Move the log to the folder in which logs of ended copies are collected. Idempotent."""
        with contextlib.suppress(OSError):
            source, inode = self.log_source.read_bytes(), self.log.stat().st_ino
            ended = self.root.parent.parent.parent / ENDED_LOGS / f"{self.root.name}.{inode}"
            ended.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(CopyFolder(ended).log_source, source, durable=False)
            self.log.replace(CopyFolder(ended).log)

    def remove(self) -> None:
        """Remove the folder and its shared memory, but not the files that the model links to.

        The log is kept until it is collected.
        """
        self.keep_log()
        remove_regions(region_prefix(self.root))
        shutil.rmtree(self.root, ignore_errors=True)


class InstanceFolder(msgspec.Struct, frozen=True):
    """Paths of one instance."""

    root: Path

    @property
    def instance(self) -> Path:
        """The instance as it was launched."""
        return self.root / "instance.json"

    @property
    def devices(self) -> Path:
        """The names of the real accelerators that the instance got at its first launch."""
        return self.root / "devices.json"

    @property
    def agent(self) -> Path:
        """The agent's `AgentRecord`."""
        return self.root / "agent.json"

    @property
    def starting(self) -> Path:
        """The `ProcessIdentity` of the last agent that was started, before it writes agent.json."""
        return self.root / "starting.json"

    @property
    def lock(self) -> Path:
        """The lock that this instance's agent holds while it lives."""
        return self.root / "agent.lock"

    @property
    def agent_log(self) -> Path:
        """The agent's output."""
        return self.root / "agent.log"

    @property
    def desired(self) -> Path:
        """The desired copies, as `PUT /copies` gave them."""
        return self.root / "wish.json"  # the name that older versions read

    @property
    def epoch(self) -> Path:
        """The highest epoch of the leaders that called."""
        return self.root / "epoch.json"

    @property
    def cache(self) -> Path:
        """Artifacts, once per instance."""
        return self.root / "cache"

    @property
    def packages(self) -> Path:
        """The packages that models' code names, once per instance."""
        return self.root / "packages"

    @property
    def package_locks(self) -> Path:
        """The versions and hashes of such packages, the same for all instances of the home."""
        return self.root.parent / PACKAGE_LOCKS

    @property
    def copies(self) -> Path:
        """One folder per copy."""
        return self.root / "copies"

    def copy(self, copy_id: str) -> CopyFolder:
        """The folder of one copy. Raises TerminalError for an id that is not a plain name."""
        return CopyFolder(self.copies / plain_name(copy_id))

    def copy_ids(self) -> list[str]:
        """Every copy that has a folder."""
        if not self.copies.is_dir():
            return []
        return sorted(path.name for path in self.copies.iterdir() if path.is_dir())

    def load_agent(self) -> AgentRecord | None:
        """The agent's record, or None if it cannot be read."""
        return _load(self.agent, AgentRecord)

    def load_starting(self) -> ProcessIdentity | None:
        """The agent process started last, or None if it cannot be read."""
        return _load(self.starting, ProcessIdentity)

    def load_agents(self) -> list[ProcessIdentity]:
        """Every recorded agent process, living or dead."""
        record = self.load_agent()
        recorded = [self.load_starting(), record.process if record is not None else None]
        return [identity for identity in recorded if identity is not None]

    def load_devices(self) -> tuple[str, ...] | None:
        """The instance's real accelerators, or None before they are chosen."""
        return _load(self.devices, tuple[str, ...])

    def load_desired(self) -> tuple[CopySpec, ...] | None:
        """The recorded desired copies, or None if they were never recorded or cannot be read."""
        return _load(self.desired, tuple[CopySpec, ...])

    def save_desired(self, copies: tuple[CopySpec, ...]) -> None:
        """Record the desired copies durably."""
        write_whole(self.desired, msgspec.json.encode(copies))

    def load_epoch(self) -> int:
        """The highest epoch of the leaders that called, 0 before the first call."""
        return _load(self.epoch, int) or 0

    def save_epoch(self, epoch: int) -> None:
        """Record the highest epoch durably."""
        write_whole(self.epoch, msgspec.json.encode(epoch))


def instance_folders(root: Path) -> list[InstanceFolder]:
    """The folders of the instances below `root`, by id. Empty if `root` is missing."""
    try:
        return [InstanceFolder(it) for it in sorted(root.iterdir()) if _is_instance(it)]
    except FileNotFoundError:
        return []


def _is_instance(path: Path) -> bool:
    return path.name not in (ENDED_LOGS, PACKAGE_LOCKS) and path.is_dir()


def plain_name(name: str) -> str:
    """`name`, if it is a single path component. Raises TerminalError otherwise."""
    if not SAFE_ID.fullmatch(name):
        raise TerminalError(f"{name!r} is not an id: 1 to 128 of A-Z a-z 0-9 . _ - are allowed")
    return name


def _load(path: Path, kind: type[T]) -> T | None:
    try:
        return decode(path.read_bytes(), kind)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, msgspec.ValidationError):
        return None
