"""run/NAME.json: pid, port and start of each live process of a hostelry."""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.base.json import decode
from hostelry.base.proc import boot_id, is_same_process, process_stat
from hostelry.home.home import Home

AFTER_GATEWAY = ("mirror", "jobs", "console", "control", "s3door", "objectstore")
AMONG_HOSTS = ("proxy", "peers", "link")  # of a platform on several hosts
ORDER = ("up", "watcher", "gateway", *AMONG_HOSTS, *AFTER_GATEWAY)


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """One process. A later process with the same pid has another `start_ticks` or `boot_id`.

    `digest` identifies the program and configuration that started it (`started_by`). Files of
    earlier versions have neither boot id nor digest.
    """

    name: str
    pid: int
    start_ticks: int
    port: int
    boot_id: str | None = None
    digest: str | None = None

    @property
    def alive(self) -> bool:
        """Whether this very process runs now."""
        return self.boot_id in (None, boot_id()) and is_same_process(self.pid, self.start_ticks)


def service_path(home: Home, name: str) -> Path:
    """The prefix of a service's files in run/, which also marks its process."""
    return home.run / name


def run_path(home: Home, name: str) -> Path:
    """The run file of a process."""
    return home.run / f"{name}.json"


def save_run_file(home: Home, name: str, pid: int, port: int, digest: str | None = None) -> None:
    """Record a process that was just started. No-op if it is gone already."""
    stat = process_stat(pid)
    if stat is None:
        return
    record = RunFile(
        name=name,
        pid=pid,
        start_ticks=stat.start_ticks,
        port=port,
        boot_id=boot_id(),
        digest=digest,
    )
    write_whole(run_path(home, name), msgspec.json.encode(record))


def load_run_file(home: Home, name: str) -> RunFile | None:
    """The recorded process, alive or dead, or None without a valid file."""
    try:
        return decode(run_path(home, name).read_bytes(), RunFile)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def live_run_file(home: Home, name: str) -> RunFile | None:
    """The recorded process if it is alive. None for a stale file (dead or reused pid)."""
    record = load_run_file(home, name)
    return record if record is not None and record.alive else None


def live_run_files(home: Home) -> list[RunFile]:
    """Every recorded process that is alive, in the platform's order."""
    found = (live_run_file(home, name) for name in recorded_names(home))
    return [record for record in found if record is not None]


def gateway_name(number: int) -> str:
    """The gateway's worker of that number, from 1."""
    return f"gateway-{number}"


def gateway_names(num_workers: int) -> list[str]:
    """The gateway's workers."""
    return [gateway_name(number) for number in range(1, num_workers + 1)]


def platform_names(num_workers: int, behind: Iterable[str] = AFTER_GATEWAY) -> list[str]:
    """Every process of a platform with `num_workers` gateway workers, in the platform's order."""
    workers = gateway_names(num_workers)
    return ["up", "watcher", *workers, *behind]


def recorded_names(home: Home) -> list[str]:
    """Every process with a run file, including dead processes of earlier starts, in order."""
    return sorted((path.stem for path in home.run.glob("[a-z]*.json")), key=place)


def worker_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the gateway workers among `names`."""
    return [place(name)[1] for name in names if get_service_kind(name) == "gateway"]


def get_service_kind(name: str) -> str:
    """The kind of a service: `gateway` of `gateway-1`."""
    return name.partition("-")[0]


def place(name: str) -> tuple[int, int, str]:
    """The sort key of a process in the platform's order."""
    kind, _, number = name.partition("-")
    rank = ORDER.index(kind) if kind in ORDER else len(ORDER)
    return rank, int(number) if number.isdecimal() else 0, name


def remove_run_file(home: Home, name: str) -> None:
    """Remove the files of a process that has ended."""
    run_path(home, name).unlink(missing_ok=True)
    # Imported late: commands read run files, and do without asyncio.
    from hostelry.home.heartbeat import line_path

    line_path(service_path(home, name)).unlink(missing_ok=True)


@contextmanager
def lock_home(home: Home, held: int | None = None) -> Iterator[None]:
    """Hold the home's lock. `held` is a descriptor that has the lock already.

    Raises TerminalError naming the `up` that has it.
    """
    with home.up_lock.open("a") if held is None else os.fdopen(held, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = live_run_file(home, "up")
            who = f"pid {other.pid}" if other else "another process that is starting or stopping"
            raise TerminalError(
                f"a hostelry already runs on {home.root} ({who}); "
                "`hostelry down` stops it, --home DIR starts another beside it"
            ) from None
        yield
