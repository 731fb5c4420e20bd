"""Find the processes that a killed `up` has left, and end the ones that are not adopted."""

import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.proc import boot_id, environment_value, processes
from hostelry.fleet.host.processes import signal_group
from hostelry.home.home import SERVICE_VARIABLE, Home
from hostelry.home.run_file import (
    RunFile,
    get_service_kind,
    live_run_file,
    place,
    recorded_names,
    remove_run_file,
    service_path,
)
from hostelry.processes.objectstore import remove_sockets

GONE_WITHIN_S = 5.0
POLL_S = 0.01


class Stopping(msgspec.Struct, frozen=True, kw_only=True):
    """How a service is stopped: the first signal, and the seconds until SIGKILL."""

    first: signal.Signals
    grace_s: float


# In an order that loses no request: first no restarts, then no new requests, then no API calls.
STOPPING = {
    "watcher": Stopping(first=signal.SIGKILL, grace_s=0.0),
    "gateway": Stopping(first=signal.SIGTERM, grace_s=12.0),
    "proxy": Stopping(first=signal.SIGTERM, grace_s=12.0),
    "peers": Stopping(first=signal.SIGTERM, grace_s=3.0),
    "link": Stopping(first=signal.SIGTERM, grace_s=5.0),
    "mirror": Stopping(first=signal.SIGTERM, grace_s=5.0),
    "console": Stopping(first=signal.SIGTERM, grace_s=5.0),
    "jobs": Stopping(first=signal.SIGTERM, grace_s=5.0),
    "control": Stopping(first=signal.SIGTERM, grace_s=5.0),
    "s3door": Stopping(first=signal.SIGKILL, grace_s=0.0),  # it has no state
    # SIGTERM takes 15 to 30 s, and the store has nothing to save (`objectstore`).
    "objectstore": Stopping(first=signal.SIGKILL, grace_s=5.0),
}
BEFORE_COPIES = (
    "watcher",
    "console",
    "gateway",
    "proxy",
    "peers",
    "mirror",
    "jobs",
    "control",
    "link",
)
AFTER_COPIES = ("s3door", "objectstore")


def find_services(home: Home) -> dict[str, RunFile]:
    """Every live service of the home by its name, supervised or not.

    It includes processes with a service's mark in their environment and without a run file, as
    when `up` was killed during a start or the disk was full. They have no digest. A second process
    of the same name is killed, because no run file can name it.
    """
    names = (name for name in recorded_names(home) if name != "up")
    records = (live_run_file(home, name) for name in names)
    found = {record.name: record for record in records if record is not None}
    for marked in find_marked(home):
        if found.setdefault(marked.name, marked).pid != marked.pid:
            signal_group(marked.pid, signal.SIGKILL)
    return dict(sorted(found.items(), key=lambda it: place(it[0])))


def find_marked(home: Home) -> Iterator[RunFile]:
    """Every process whose environment marks it as a service of this home."""
    for stat in processes():
        mark = environment_value(stat.pid, SERVICE_VARIABLE) if stat.pid == stat.group else None
        if mark is not None and mark.startswith(f"{service_path(home, '')}/"):
            yield RunFile(
                name=Path(mark).name,
                pid=stat.pid,
                start_ticks=stat.start_ticks,
                port=0,
                boot_id=boot_id(),
            )


def end_services(home: Home, kinds: Collection[str], *, at_once: bool = False) -> list[str]:
    """End the services of these kinds and remove their run files. Returns the ended names.

    Each service gets its grace period, unless `at_once`. Blocks. If the pid in a run file is dead
    or another process's, only the file is removed.
    """
    found = [it for it in find_services(home).values() if get_service_kind(it.name) in kinds]
    for record in found:
        first = signal.SIGKILL if at_once else STOPPING[get_service_kind(record.name)].first
        signal_group(record.pid, first)
    for record in found:
        if not wait_gone(record, STOPPING[get_service_kind(record.name)].grace_s):
            signal_group(record.pid, signal.SIGKILL)
            wait_gone(record, GONE_WITHIN_S)
    for name in recorded_names(home):
        if get_service_kind(name) in kinds:
            remove_run_file(home, name)
    if "objectstore" in kinds:
        remove_sockets(home)
    return [it.name for it in found]


def wait_gone(record: RunFile, within_s: float) -> bool:
    """Wait until the process ends. False if it still runs after `within_s`. Blocks."""
    deadline = monotonic_s() + within_s
    while record.alive and monotonic_s() < deadline:
        time.sleep(POLL_S)
    return not record.alive
