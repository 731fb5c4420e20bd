"""CPU time of a platform's processes by part, and separate cores for the copies."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from hostelry.base.proc import TICKS_PER_S, process_stat
from hostelry.fleet.host.processes import process_table
from hostelry.home.home import Home
from hostelry.home.run_file import get_service_kind, live_run_files

COPIES, OTHERS = "copies", "others"
ALL_CORES = os.sched_getaffinity(0)
AGENT = b"hostelry.services.agent"


def pids_by_part(home: Home) -> dict[str, list[int]]:
    """The processes of a home: servers by name, and the copies of all instances together."""
    parts: dict[str, list[int]] = {}
    for service in live_run_files(home):
        parts.setdefault(get_service_kind(service.name), []).append(service.pid)
    table = process_table()
    agents = [it.pid for it in table if _is_agent(it.pid, home)]
    instances = f"{home.root}/"
    copies = [it.pid for it in table if it.marker and it.marker.startswith(instances)]
    return {**parts, "agents": agents, COPIES: copies}


def cpu_s_by_part(home: Home) -> dict[tuple[str, int], float]:
    """CPU seconds so far of each process of a home, by its part and pid."""
    found = {}
    for part, pids in pids_by_part(home).items():
        for pid in pids:
            stat = process_stat(pid)
            if stat is not None:
                found[part, pid] = stat.cpu_ticks / TICKS_PER_S
    return found


def used_s(
    before: Mapping[tuple[str, int], float], after: Mapping[tuple[str, int], float]
) -> dict[str, float]:
    """CPU seconds of each part between two measurements, without processes that have ended."""
    found: dict[str, float] = {}
    for (part, pid), seconds in after.items():
        found[part] = found.get(part, 0.0) + seconds - before.get((part, pid), 0.0)
    return found


def give_copies_their_cores(home: Home) -> None:
    """Give half of the cores to copies alone. This process and the platform get the other half."""
    cores = sorted(ALL_CORES)
    half = len(cores) // 2
    for part, pids in {**pids_by_part(home), OTHERS: [os.getpid()]}.items():
        for pid in pids:
            _bind(pid, set(cores[:half] if part == COPIES else cores[half:]))


@contextmanager
def cores_as_before(home: Home) -> Iterator[None]:
    """Give every process all cores at the end of the block."""
    try:
        yield
    finally:
        for pids in (*pids_by_part(home).values(), [os.getpid()]):
            for pid in pids:
                _bind(pid, ALL_CORES)


def _bind(pid: int, cores: set[int]) -> None:
    """Bind every thread of a process."""
    with suppress(FileNotFoundError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(task), cores)


def _is_agent(pid: int, home: Home) -> bool:
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return AGENT in command and os.fsencode(home.root) in command
    return False
