"""The gateway compared with Ray Serve, LitServe and BentoML: the same echo model, the same load.

Only one of them runs at a time. Every round goes through all of them, every other round in reverse
order, and medians of the rounds are compared. Ours verifies a signature on every request, the
others have none to verify. `others' cpus` says how many processors were busy with work outside the
measurement. A disturbed measurement is tried again.
"""

import resource
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.aims import Finding, ratio
from benchmarks.gateway_load import JSON, run_load, signed_request
from benchmarks.load import Load, Measured
from benchmarks.peers import process_tree
from benchmarks.peers.contestant import PeerMissingError
from benchmarks.peers.gateway_peers import BODY, PEERS, Served, running_peer
from benchmarks.stack import running_stack
from benchmarks.wrk import has_wrk, run_wrk
from hostelry.base.clock import monotonic_s
from hostelry.base.ports import free_port

OURS = "hostelry"
NUM_REQUESTS = 64
QUIET_CPUS = 0.1
Rows = Sequence[dict[str, Any]]
LEAST_THROUGHPUT = {"litserve": 4.0, "ray-serve": 20.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A server and the number of workers it is given."""

    name: str
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement of one contestant."""

    contestant: Contestant
    connections: int
    measured: Measured
    others_cpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """The plan of the measurement: duration, connections, workers, rounds and attempts."""

    duration_s: float
    connections: tuple[int, ...]
    workers: tuple[int, ...]
    rounds: int
    attempts: int
    peers: tuple[str, ...]


def hold(contest: Contest) -> tuple[list[dict[str, Any]], dict[str, str], list[Finding]]:
    """The table, why each absent peer is absent, and the findings."""
    samples: list[Sample] = []
    missing: dict[str, str] = {}
    everyone = [
        Contestant(name=name, workers=workers)
        for name in (OURS, *contest.peers)
        for workers in contest.workers
    ]
    for number in range(contest.rounds):
        for contestant in everyone if number % 2 == 0 else reversed(everyone):
            if contestant.name in missing:
                continue
            try:
                samples += measure(contestant, contest)
            except PeerMissingError as error:
                missing[contestant.name] = str(error)
    rows = [
        row(contestant, connections, samples)
        for connections in contest.connections
        for contestant in everyone
        if contestant.name not in missing
    ]
    return rows, missing, findings(rows, contest, missing)


def measure(contestant: Contestant, contest: Contest) -> list[Sample]:
    """Measure one round of one contestant. Raises PeerMissingError."""
    samples = []
    with running(contestant) as (served, requests):
        for connections in contest.connections:
            load = Load(
                port=served.port,
                requests=requests,
                num_connections=connections,
                duration_s=contest.duration_s,
                warm_up_s=min(1.0, contest.duration_s),
            )
            samples.append(least_disturbed(contestant, served, load, contest.attempts))
    return samples


def least_disturbed(contestant: Contestant, served: Served, load: Load, attempts: int) -> Sample:
    """The first of `attempts` measurements with little other work, else the least disturbed one."""
    tried: list[Sample] = []
    while len(tried) < attempts and not (tried and tried[-1].others_cpus < QUIET_CPUS):
        began_s, busy_s = monotonic_s(), busy(served)
        measured = run_wrk(load) if has_wrk() else run_load(load)
        others_cpus = (busy(served) - busy_s) / (monotonic_s() - began_s)
        tried.append(
            Sample(
                contestant=contestant,
                connections=load.num_connections,
                measured=measured,
                others_cpus=max(0.0, others_cpus),
            )
        )
    return min(tried, key=lambda it: it.others_cpus)


@contextmanager
def running(contestant: Contestant) -> Iterator[tuple[Served, list[bytes]]]:
    """Start the contestant, and yield it with requests that it answers."""
    if contestant.name == OURS:
        with running_stack(contestant.workers, reads_json=True) as stack:
            request = signed_request(stack, "invocations", BODY, {"Content-Type": JSON})
            served = Served(
                port=stack.gateway_port, path="", pids=(*stack.gateway_pids, stack.echo_pid)
            )
            yield served, [request] * NUM_REQUESTS
        return
    port = free_port()
    with running_peer(contestant.name, port, contestant.workers) as peer:
        head = f"POST {peer.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {JSON}\r\n"
        request = f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY
        yield peer, [request] * NUM_REQUESTS


def busy(served: Served) -> float:
    """Processor time so far of everything but this server and the load generator."""
    loads = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    ours_s = loads.ru_utime + loads.ru_stime + own.ru_utime + own.ru_stime
    return process_tree.machine_busy_s() - served.cpu_s - ours_s


def row(contestant: Contestant, connections: int, samples: Sequence[Sample]) -> dict[str, Any]:
    """Medians of a contestant's rounds, and their spread."""
    found = [it for it in samples if it.contestant == contestant and it.connections == connections]
    speeds = [it.measured.per_s for it in found]
    return {
        "connections": connections,
        "server": contestant.name,
        "workers": contestant.workers,
        "requests/s": round(statistics.median(speeds)),
        "least": round(min(speeds)),
        "most": round(max(speeds)),
        "p50 ms": statistics.median(it.measured.p50_ms for it in found),
        "p99 ms": statistics.median(it.measured.p99_ms for it in found),
        "others' cpus": statistics.median(it.others_cpus for it in found),
        "errors": sum(it.measured.errors for it in found),
    }


def findings(rows: Rows, contest: Contest, missing: dict[str, str]) -> list[Finding]:
    """Ours at its better number of workers, compared with each peer at its better number."""
    found: list[Finding] = []
    for peer in contest.peers:
        for connections in contest.connections:
            ours, theirs = (
                [it for it in rows if (it["server"], it["connections"]) == (name, connections)]
                for name in (OURS, peer)
            )
            least = LEAST_THROUGHPUT.get(peer) if connections == max(contest.connections) else None
            found += compare_rows(f"{connections} connections", peer, ours, theirs, least)
    return [
        replace(finding, why="not installed")
        if finding.what.rpartition(" ")[2] in missing
        else finding
        for finding in found
    ]


def compare_rows(
    where: str, peer: str, ours: Rows, theirs: Rows, least: float | None
) -> list[Finding]:
    """Throughput and latencies, ours over the peer's."""
    speed = ratio(best(ours, "requests/s", max), best(theirs, "requests/s", max))
    found = [Finding(what=f"{where}: requests/s, ours / {peer}", value=speed, at_least=least)]
    for key in ("p50 ms", "p99 ms"):
        what = f"{where}: {key.removesuffix(' ms')}, ours / {peer}"
        value = ratio(best(ours, key, min), best(theirs, key, min))
        found.append(Finding(what=what, value=value, at_most=1.0))
    return found


def best(rows: Rows, key: str, better: Any) -> float | None:
    """The best value of a column, or None without rows."""
    return float(better(it[key] for it in rows)) if rows else None


def contestants(names: str) -> tuple[str, ...]:
    """Peers from an option's value, separated by commas. Raises ValueError for an unknown name."""
    asked = tuple(name for name in names.split(",") if name)
    for name in asked:
        if name not in PEERS:
            raise ValueError(f"{name}: there are {', '.join(PEERS)}")
    return asked
