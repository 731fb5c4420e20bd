"""Cost of a shadow variant to production: an echo endpoint with and without one, in one run.

All requests are mirrored: to another echo model, to a server that never answers, and to a port that
refuses. Rounds alternate. Each figure is the median over rounds of a round's ratio to the endpoint
without a shadow. ``paced`` sends at a set rate, as clients of models do. ``closed`` sends after
each answer, so that production shares busy processors with the shadow's requests. ``apart`` is the
same with the mirror process and the shadow's copy on a separate processor, which shows the loss of
the gateway's workers alone. The aim is 3 % on the paced latencies.

``cpu`` is the processor time of the gateway's workers for a request, without the mirror process.

``python -m benchmarks.shadow [--setting tiny|short|full] [--in-workers]``
"""

import argparse
import contextlib
import os
import socket
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.gateway_load import run_load, signed_request
from benchmarks.load import Load
from benchmarks.open_load import Due, Generator, Plan
from benchmarks.record import print_table, write_result
from benchmarks.stack import ENDPOINT_NAME, Stack, running_echo, running_stack

SEED = 0
BODY = b"x" * 1024
WARM_UP_S = 0.5
SHADOWED = ("mirrored", "hanging", "refused")
SHARED, APART = "shared", "apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How long and how much to measure."""

    duration_s: float
    rounds: int
    per_s: float = 300.0
    connections: tuple[int, ...] = (1, 32)


SETTINGS = {
    "tiny": Setting(duration_s=0.5, rounds=1, per_s=50.0, connections=(2,)),
    "short": Setting(duration_s=3.0, rounds=5),
    "full": Setting(duration_s=15.0, rounds=7),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one endpoint in one round."""

    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    mirror_us: float
    errors: int


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    default_workers = min(4, len(os.sched_getaffinity(0)))
    parser.add_argument("--workers", type=int, default=default_workers, help="of the gateway")
    parser.add_argument("--in-workers", action="store_true", help="without a mirror process")
    arguments = parser.parse_args()
    in_workers = arguments.in_workers
    rows = measure(SETTINGS[arguments.setting], arguments.workers, in_workers=in_workers)
    print_table(f"A 100 % shadow, gateway of {arguments.workers} workers: ratios to none", rows)
    measured = {"workers": arguments.workers, "in_workers": in_workers, "rows": rows}
    write_result("shadow", arguments.setting, SEED, measured)


def measure(setting: Setting, workers: int, *, in_workers: bool) -> list[dict[str, Any]]:
    """A row for each load and kind of shadow."""
    with running_echo() as shadow, deaf_port() as deaf, closed_port() as closed:
        ports = dict(zip(SHADOWED, (shadow.port, deaf, closed), strict=True))
        shadows = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        with running_stack(workers, shadows=shadows, mirrors_in_workers=in_workers) as stack:
            loads = ["paced", *(f"closed, {num} connections" for num in setting.connections)]
            rows = [row for load in loads for row in compare_shadows(stack, setting, load)]
            with on_two_sides(stack, shadow.pid) as are_apart:
                if are_apart:
                    rows += [
                        row
                        for load in loads
                        for row in compare_shadows(stack, setting, load, APART)
                    ]
        return rows


@contextlib.contextmanager
def on_two_sides(stack: Stack, shadow_pid: int) -> Iterator[bool]:
    """Have the shadow's copy and the mirror process on the last processor, the rest on the others.

    Yields False, and moves no process, with one processor or without a mirror process.
    """
    usable = os.sched_getaffinity(0)
    if len(usable) == 1 or stack.mirror_pid is None:
        yield False
        return
    last = {max(usable)}
    for pid in (0, stack.echo_pid, *stack.gateway_pids):
        move(pid, usable - last)
    for pid in (shadow_pid, stack.mirror_pid):
        move(pid, last)
    try:
        yield True
    finally:
        os.sched_setaffinity(0, usable)


def move(pid: int, processors: set[int]) -> None:
    """Have a process with all its threads on these processors. A `pid` of 0 is this process."""
    for thread in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
        os.sched_setaffinity(int(thread.name), processors)


def compare_shadows(
    stack: Stack, setting: Setting, load: str, processors: str = SHARED
) -> list[dict[str, Any]]:
    """A row for each kind of shadow under one load."""
    rounds: list[dict[str, Figures]] = []
    names = (ENDPOINT_NAME, *SHADOWED)
    for number in range(setting.rounds):
        order = names if number % 2 == 0 else tuple(reversed(names))
        rounds.append({name: measure_endpoint(stack, setting, load, name) for name in order})
    return [
        {
            "load": load,
            "processors": processors,
            "shadow": name,
            "p50": ratio(rounds, name, "p50_ms"),
            "p99": ratio(rounds, name, "p99_ms"),
            "requests/s": ratio(rounds, name, "per_s"),
            "p50 ms without": statistics.median(it[ENDPOINT_NAME].p50_ms for it in rounds),
            "p99 ms without": statistics.median(it[ENDPOINT_NAME].p99_ms for it in rounds),
            "cpu": ratio(rounds, name, "cpu_us"),
            "cpu us without": statistics.median(it[ENDPOINT_NAME].cpu_us for it in rounds),
            "mirror us": statistics.median(it[name].mirror_us for it in rounds),
            "errors": sum(it[name].errors for it in rounds),
        }
        for name in SHADOWED
    ]


def ratio(rounds: list[dict[str, Figures]], name: str, figure: str) -> float:
    """The median over rounds of a figure of `name`, as a ratio to the endpoint without a shadow."""
    both = [(getattr(it[name], figure), getattr(it[ENDPOINT_NAME], figure)) for it in rounds]
    return statistics.median(mine / alone for mine, alone in both)


def measure_endpoint(stack: Stack, setting: Setting, load: str, endpoint: str) -> Figures:
    """One endpoint under one load."""
    request = signed_request(stack, "invocations", BODY, {}, endpoint)
    before_s, mirror_before_s = stack.gateway_cpu_s, stack.mirror_cpu_s
    if load == "paced":
        outcome = uvloop.run(Generator(pace_request(stack, setting, request)).run())
        kept = [it for it in outcome.answers if it.began_s >= WARM_UP_S]
        taken_ms = sorted((it.ended_s - it.began_s) * 1000 for it in kept)
        total, per_s = len(outcome.answers), len(taken_ms) / setting.duration_s
        p50_ms, p99_ms = (taken_ms[int(len(taken_ms) * part)] for part in (0.5, 0.99))
        errors = sum(it.status != 200 for it in outcome.answers)
    else:
        found = run_load(
            Load(
                port=stack.gateway_port,
                requests=[request],
                num_connections=int(load.split()[1]),
                duration_s=setting.duration_s,
                warm_up_s=WARM_UP_S,
            )
        )
        total, per_s, errors = found.total, found.per_s, found.errors
        p50_ms, p99_ms = found.p50_ms, found.p99_ms
    return Figures(
        per_s=per_s,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        cpu_us=(stack.gateway_cpu_s - before_s) / total * 1e6,
        mirror_us=(stack.mirror_cpu_s - mirror_before_s) / total * 1e6,
        errors=errors,
    )


def pace_request(stack: Stack, setting: Setting, request: bytes) -> Plan:
    """The same request again and again, at even times."""
    num = int((WARM_UP_S + setting.duration_s) * setting.per_s)
    due = [Due(at_s=number / setting.per_s, message=request) for number in range(num)]
    return Plan(port=stack.gateway_port, requests=due)


@contextlib.contextmanager
def deaf_port() -> Iterator[int]:
    """A port on which the kernel accepts connections, but no process serves them."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        yield listening.getsockname()[1]


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """A port that is taken, and refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


if __name__ == "__main__":
    main()
