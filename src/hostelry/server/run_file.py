"""run/NAME.json: which process of a hostelry is alive under which pid and port."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from hostelry.base.json import decode
from hostelry.server.home import Home, write_private
from hostelry.server.process_table import is_same_process, process_stat

ORDER = ("up", "gateway", "control", "objectstore")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """One process; `start_ticks` tells it from a later process with the same pid."""

    name: str
    pid: int
    start_ticks: int
    port: int

    @property
    def alive(self) -> bool:
        """Whether this very process runs now."""
        return is_same_process(self.pid, self.start_ticks)


def run_path(home: Home, name: str) -> Path:
    """Where NAME's run file lies."""
    return home.run / f"{name}.json"


def save_run_file(home: Home, name: str, pid: int, port: int) -> None:
    """Record a process that was just started; nothing is written if it is gone already."""
    stat = process_stat(pid)
    if stat is None:
        return
    record = RunFile(name=name, pid=pid, start_ticks=stat.start_ticks, port=port)
    write_private(run_path(home, name), msgspec.json.encode(record))


def load_run_file(home: Home, name: str) -> RunFile | None:
    """The recorded process, alive or not; None where none is recorded or the file is damaged."""
    try:
        return decode(run_path(home, name).read_bytes(), RunFile)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def live_run_file(home: Home, name: str) -> RunFile | None:
    """The recorded process if it is alive; a stale file (dead or reused pid) is None."""
    record = load_run_file(home, name)
    return record if record is not None and record.alive else None


def live_run_files(home: Home) -> list[RunFile]:
    """Every recorded process that is alive, in the platform's order."""
    found = (live_run_file(home, name) for name in recorded_names(home))
    return [record for record in found if record is not None]


def gateway_names(num_workers: int) -> list[str]:
    """The gateway's workers."""
    return [f"gateway-{number}" for number in range(1, num_workers + 1)]


def platform_names(num_workers: int) -> list[str]:
    """Every process of a platform whose gateway has so many workers, in the platform's order."""
    return ["up", *gateway_names(num_workers), "control", "objectstore"]


def recorded_names(home: Home) -> list[str]:
    """Every process with a run file, dead ones and those of earlier starts too, in order."""
    return sorted((path.stem for path in home.run.glob("[a-z]*.json")), key=place)


def place(name: str) -> tuple[int, int, str]:
    """Where a process stands in the platform's order."""
    kind, _, number = name.partition("-")
    rank = ORDER.index(kind) if kind in ORDER else len(ORDER)
    return rank, int(number) if number.isdecimal() else 0, name


def remove_run_file(home: Home, name: str) -> None:
    """Forget a process that has ended."""
    run_path(home, name).unlink(missing_ok=True)
