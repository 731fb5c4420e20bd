"""Cost of starting, calling, idling and stopping a platform without models.

Each round starts a platform in a new home, and measures commands from the outside: seconds, and CPU
seconds of the command with all processes that it started. At rest, it measures the CPU of each
process, and its memory as PSS: of a page that N processes share, each counts an Nth.

    python -m benchmarks.start_platform --rounds 5 --program OTHER_VENV/bin/hostelry --program ...
"""

import argparse
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.record import print_table, write_result
from hostelry.base.ports import free_ports
from hostelry.base.proc import (
    TICKS_PER_S,
    arguments,
    first_environment,
    process_stat,
    processes,
    sizes,
)
from hostelry.home.home import Home, load_config, load_credentials
from hostelry.home.run_file import live_run_file, live_run_files
from hostelry.processes.readiness import gateway_check

SETTLE_S = 10.0  # after a start, before the platform counts as idle
POLL_S = 0.01
TIMES, IDLE, PSS = "seconds", "idle, % of a core", "memory, MB (PSS)"
Row = dict[str, float]


class Cost(NamedTuple):
    """The cost of one command."""

    wall_s: float
    cpu_s: float


def main() -> None:
    """Measure each program in turn, print the tables and write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--idle-s", type=float, default=30.0, help="seconds of rest")
    own = str(Path(sys.executable).with_name("hostelry"))
    parser.add_argument("--program", action="append", help="hostelry to measure; repeatable")
    given = parser.parse_args()
    measured: dict[str, list[dict[str, Row]]] = {it: [] for it in given.program or [own]}
    for number in range(given.rounds):
        for program, rounds in measured.items():
            print(f"round {number + 1}: {program}", flush=True)
            rounds.append(measure(program, given.idle_s))
    for part in (TIMES, IDLE, PSS):
        print_table(part, list(rows(part, measured)))
    write_result("start_platform", f"{given.rounds} rounds", 0, {"rounds": measured})


def measure(program: str, idle_s: float) -> dict[str, Row]:
    """One round: the platform's whole life."""
    with tempfile.TemporaryDirectory(prefix="hostelry-start-") as folder:
        home = Home(Path(folder) / "home")
        port, s3_port = free_ports(2)
        at = ["--home", str(home.root)]
        times: Row = {}

        def run(name: str, *command: str) -> None:
            cost = run_command([program, *command], home)
            times[f"{name}, wall"], times[f"{name}, CPU"] = cost

        run("--help", "--help")
        try:
            run("up", "up", "--detach", *at, "--port", str(port), "--s3-port", str(s3_port))
            time.sleep(SETTLE_S)
            idle, memory = rest(home, idle_s), memory_mb(home)
            for command in ("status", "ls"):
                run(command, command, *at)
            times["control back after kill -9"] = seconds_to_control(home)
        finally:
            run("down", "down", *at)
        run("up again", "up", "--detach", *at, "--port", str(port), "--s3-port", str(s3_port))
        run("down again", "down", *at)
        return {TIMES: times, IDLE: idle, PSS: memory}


def run_command(command: list[str], home: Home) -> Cost:
    """The cost of a whole command, including the processes of the home that it started."""
    before = {pid: cpu_s(pid) for pid in pids(home)}
    own_s, began_s = children_cpu_s(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall_s = time.monotonic() - began_s
    if done.returncode != 0:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}")
    started_s = sum(cpu_s(pid) for pid in pids(home) if pid not in before)
    return Cost(wall_s, children_cpu_s() - own_s + started_s)


def children_cpu_s() -> float:
    """CPU seconds of this process's children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def pids(home: Home) -> list[int]:
    """Every process whose command line or environment names the home."""
    name = os.fsencode(home.root)
    others = [it.pid for it in processes() if it.pid != os.getpid()]
    return [pid for pid in others if name in first_environment(pid) or names_home(pid, home)]


def names_home(pid: int, home: Home) -> bool:
    """Whether an argument of the process names the home."""
    return any(str(home.root) in argument for argument in arguments(pid))


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, or 0 once it has ended."""
    stat = process_stat(pid)
    return 0.0 if stat is None else stat.cpu_ticks / TICKS_PER_S


def names(home: Home) -> dict[int, str]:
    """The platform's processes by pid."""
    recorded = {it.pid: it.name for it in live_run_files(home)}
    return {pid: recorded.get(pid, "forkserver") for pid in pids(home)}


def rest(home: Home, idle_s: float) -> Row:
    """The share of a core, in percent, that each process takes while no client calls it."""
    found = names(home)
    before = {pid: cpu_s(pid) for pid in found}
    time.sleep(idle_s)
    used = {found[pid]: (cpu_s(pid) - before[pid]) / idle_s * 100 for pid in found}
    return {"all": sum(used.values()), **used}


def memory_mb(home: Home) -> Row:
    """The memory of each process."""
    found = {name: sizes(f"{pid}/smaps_rollup")[b"Pss"] / 1e6 for pid, name in names(home).items()}
    return {"all": sum(found.values()), **found}


def seconds_to_control(home: Home) -> float:
    """Kill control, and wait until it answers a signed call at the gateway again."""
    config, credentials = load_config(home), load_credentials(home)
    why_not = gateway_check(config.gateway_url, credentials)
    record = live_run_file(home, "control")
    if record is None or why_not() is not None:
        raise RuntimeError("control does not run")
    os.kill(record.pid, signal.SIGKILL)
    began_s = time.monotonic()
    while record.alive or why_not() is not None:
        time.sleep(POLL_S)
    return time.monotonic() - began_s


def rows(part: str, measured: Mapping[str, list[dict[str, Row]]]) -> Iterator[dict[str, object]]:
    """A row for each name: the median of each program, with its minimum and maximum."""
    rounds = {program: [it[part] for it in found] for program, found in measured.items()}
    every = dict.fromkeys(name for found in rounds.values() for it in found for name in it)
    for name in every:
        row: dict[str, object] = {"": name}
        for program, found in rounds.items():
            values = [it[name] for it in found if name in it]
            row[program] = spread(values) if values else "-"
        yield row


def spread(values: list[float]) -> str:
    """The median, and the range if there are several values."""
    middle = f"{statistics.median(values):.2f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.2f}-{max(values):.2f})"


if __name__ == "__main__":
    main()
