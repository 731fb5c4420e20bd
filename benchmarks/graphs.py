"""Cost of a graph above the calls that it makes, compared with other projects' compositions.

A client calls the gateway, which calls the graph's server. The server calls the gateway, which
calls the echo model. ``scatter`` waits for 8 calls of 20 ms each, and its aim is 2 ms more than one
such call. ``further hop`` is the time that each further call of a chain adds, and its aim is 0.5 ms
above a call of the model through the gateway. The peers answer the same requests: an echo model,
called as often in turn or at once, as their manuals compose models. Only one contestant runs at a
time. Each round goes through all of them, every other round in reverse order. Figures are medians
of the rounds, and ratios are medians of each round's ratio of the peer's figure to ours. CPU is the
time of all the contestant's processes, the model's too, minus their time while idle.

``python -m benchmarks.graphs [--setting tiny|short|full] [--peers NAME,...]``
"""

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from benchmarks.gateway_load import JSON, run_load, signed_request
from benchmarks.graph_stack import running_graphs
from benchmarks.load import Load
from benchmarks.peers.composed import Composed, Compositions
from benchmarks.peers.contestant import PeerMissingError
from benchmarks.peers.graph_peers import GRAPH_PEERS
from benchmarks.record import print_table, write_result

SEED = 0
OURS = "hostelry"
CHAINS = (1, 2, 5)
ASKED = Compositions(body=b'{"data": [1.0, 2.0, 3.0, 4.0]}', sleep_ms=20, branches=8, chains=CHAINS)
AIMS_MS = {"scatter above its slowest branch, ms": 2.0, "further hop above its call, ms": 0.5}
IDLE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How long to measure."""

    duration_s: float
    rounds: int
    connections: tuple[int, ...] = (1,)


SETTINGS = {
    "tiny": Setting(duration_s=0.5, rounds=1),
    "short": Setting(duration_s=2.0, rounds=5),
    "full": Setting(duration_s=10.0, rounds=9, connections=(1, 8)),
}
Figures = Mapping[str, float]


def documents() -> dict[str, str]:
    """The graphs by endpoint."""
    chains = {f"chain-{length}": chain(length) for length in CHAINS}
    return {"scatter": scatter(), **chains}


def scatter() -> str:
    """A scatter of equal branches, stacked."""
    names = [f"b{number}" for number in range(ASKED.branches)]
    calls = "".join(f"  {name}: {{call: {{endpoint: echo}}}}\n" for name in names)
    return (
        "output: answer\nsteps:\n  answer: {gather: {of: all, by: stack}}\n"
        f"  all: {{scatter: [{', '.join(names)}]}}\n{calls}"
    )


def chain(length: int) -> str:
    """Calls one after the other, each with the answer of the call before."""
    inputs = ["input", *(f"h{number}" for number in range(length - 1))]
    calls = "".join(
        f"  h{number}: {{call: {{endpoint: echo}}, input: {given}}}\n"
        for number, given in enumerate(inputs)
    )
    return f"output: h{length - 1}\nsteps:\n{calls}"


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.graphs", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    default_workers = min(4, len(os.sched_getaffinity(0)))
    parser.add_argument("--workers", type=int, default=default_workers, help="of the gateway")
    parser.add_argument("--peers", default=",".join(GRAPH_PEERS), help="parted by commas")
    arguments = parser.parse_args(argv)
    setting = SETTINGS[arguments.setting]
    found, missing = rounds(contestants(arguments.peers, arguments.workers), setting)
    tables = {count: table(found, count) for count in setting.connections}
    for count, rows in tables.items():
        print_table(f"Graphs at {count} connections, gateway of {arguments.workers} workers", rows)
    for name, why in missing.items():
        print(f"{name} is not measured: {why}")
    measured = {"workers": arguments.workers, "missing": missing, "tables": tables}
    write_result("graphs", arguments.setting, SEED, measured)


Contestants = dict[str, Callable[[], AbstractContextManager[Composed]]]


def contestants(peers: str, workers: int) -> Contestants:
    """Ours and the named peers. Raises SystemExit for an unknown name."""
    found: Contestants = {OURS: lambda: running_ours(workers)}
    for name in filter(None, peers.split(",")):
        if name not in GRAPH_PEERS:
            raise SystemExit(f"--peers {name}: there are {', '.join(GRAPH_PEERS)}")
        start = GRAPH_PEERS[name]
        found[name] = lambda start=start: start(ASKED)  # type: ignore[misc]  # the loop's value
    return found


@contextlib.contextmanager
def running_ours(workers: int) -> Iterator[Composed]:
    """A gateway, an echo model that reads JSON, and a server for each graph."""
    with running_graphs(documents(), workers, reads_json=True) as graphs:
        stack = graphs.stack
        sleeps = {"X-Amzn-SageMaker-Custom-Attributes": f"sleep_ms={ASKED.sleep_ms}"}
        cases: dict[str, tuple[str, dict[str, str]]] = {
            "call": ("echo", {}),
            "slow call": ("echo", sleeps),
            "scatter": ("scatter", sleeps),
            **{f"chain {length}": (f"chain-{length}", {}) for length in CHAINS},
        }
        requests = {
            name: signed_request(
                stack, "invocations", ASKED.body, {"Content-Type": JSON, **headers}, endpoint
            )
            for name, (endpoint, headers) in cases.items()
        }
        pids = (*stack.gateway_pids, stack.echo_pid, *graphs.pids.values())
        yield Composed(port=stack.gateway_port, requests=requests, pids=pids)


def rounds(
    everyone: Contestants, setting: Setting
) -> tuple[dict[str, dict[int, list[Figures]]], dict[str, str]]:
    """Figures of each round by contestant and connections, and why each missing peer is missing."""
    found: dict[str, dict[int, list[Figures]]] = {name: {} for name in everyone}
    missing: dict[str, str] = {}
    for number in range(setting.rounds):
        for name in everyone if number % 2 == 0 else reversed(everyone):
            if name in missing:
                continue
            try:
                with everyone[name]() as composed:
                    for count in setting.connections:
                        figures = measure(composed, setting.duration_s, count)
                        found[name].setdefault(count, []).append(figures)
            except PeerMissingError as error:
                missing[name] = str(error)
    return {name: it for name, it in found.items() if it}, missing


def measure(composed: Composed, duration_s: float, connections: int) -> Figures:
    """A contestant's figures of one round."""
    began_s = composed.cpu_s
    time.sleep(IDLE_S)
    idle_cpus = (composed.cpu_s - began_s) / IDLE_S
    p50_ms: dict[str, float] = {}
    cpu_ms: dict[str, float] = {}
    for name in composed.requests:
        p50_ms[name], cpu_ms[name] = of_case(composed, name, duration_s, connections, idle_cpus)
    longest = f"chain {CHAINS[-1]}"
    further = CHAINS[-1] - CHAINS[0]
    hop_ms = (p50_ms[longest] - p50_ms["chain 1"]) / further
    return {
        **{f"{name}, ms": value for name, value in p50_ms.items()},
        "scatter above its slowest branch, ms": p50_ms["scatter"] - p50_ms["slow call"],
        "first hop above its call, ms": p50_ms["chain 1"] - p50_ms["call"],
        "further hop, ms": hop_ms,
        "further hop above its call, ms": hop_ms - p50_ms["call"],
        "CPU of a scatter, ms": cpu_ms["scatter"],
        f"CPU of a {longest}, ms": cpu_ms[longest],
        "CPU of a further hop, ms": (cpu_ms[longest] - cpu_ms["chain 1"]) / further,
        "CPUs while idle": idle_cpus,
    }


def of_case(
    composed: Composed, name: str, duration_s: float, connections: int, idle_cpus: float
) -> tuple[float, float]:
    """Median latency and CPU time of a call, in ms. Raises RuntimeError if calls fail."""
    load = Load(
        port=composed.port,
        requests=[composed.requests[name]],
        num_connections=connections,
        warm_up_s=0.3,
        duration_s=duration_s,
    )
    began_s = composed.cpu_s
    measured = run_load(load)
    idle_s = idle_cpus * (load.warm_up_s + duration_s)
    cpu_s = composed.cpu_s - began_s - idle_s
    if measured.errors or not measured.total:
        raise RuntimeError(f"{name}: {measured.errors} calls failed, {measured.total} answered")
    return measured.p50_ms, cpu_s / measured.total * 1000


def table(found: Mapping[str, Mapping[int, list[Figures]]], count: int) -> list[dict[str, Any]]:
    """A row for each figure: medians of all contestants, and the peers' ratios to ours."""
    ours = found[OURS][count]
    peers = {name: it[count] for name, it in found.items() if name != OURS}
    return [
        {
            "figure": figure,
            OURS: statistics.median(it[figure] for it in ours),
            "least": min(it[figure] for it in ours),
            "most": max(it[figure] for it in ours),
            "aim": f"{AIMS_MS[figure]:g}" if figure in AIMS_MS else "",
            **{name: statistics.median(it[figure] for it in peers[name]) for name in peers},
            **{f"{name} / ours": ratio_of(figure, peers[name], ours) for name in peers},
        }
        for figure in ours[0]
    ]


def ratio_of(figure: str, peer: Sequence[Figures], ours: Sequence[Figures]) -> float | str:
    """The median of the rounds' ratios, or "-" if a figure of ours is not above 0."""
    pairs = [(it[figure], our[figure]) for it, our in zip(peer, ours, strict=True)]
    if any(our <= 0 for _, our in pairs):
        return "-"
    return statistics.median(it / our for it, our in pairs)


if __name__ == "__main__":
    main()
