"""Overhead of the gateway: an echo model server called directly and through it, in one run.

Signatures are verified. The claim: p50 +0.3 ms at one connection, +1 ms for a chunk at 256 streams,
and 8,000 requests a second at 32 connections, on two cores. This is 4 times LitServe and 20 times
Ray Serve with the same model, at lower latencies than either and BentoML.

``python -m benchmarks.gateway_overhead [--setting tiny|short|full] [--peers NAME,...]``. The peers
come with ``python -m benchmarks.peers install ray-serve litserve bentoml``.
"""

import argparse
import os
import random
from dataclasses import dataclass
from typing import Any

import msgspec

from benchmarks.aims import finding_rows
from benchmarks.gateway_components import AIM_RATIO, NUM_COMPONENTS, measure_components
from benchmarks.gateway_contest import Contest, contestants, hold
from benchmarks.gateway_load import direct_request, run_load, signed_request
from benchmarks.load import Load
from benchmarks.peers.gateway_peers import PEERS
from benchmarks.record import print_table, write_result
from benchmarks.stack import Stack, running_stack
from benchmarks.wrk import has_wrk

SEED = 20261121
NUM_DISTINCT_REQUESTS = 64
MOST_IN_CONTEST = 32  # connections


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How long and how much to measure."""

    duration_s: float
    connections: tuple[int, ...]
    payload_bytes: tuple[int, ...]
    num_streams: int
    rounds: int
    chunks_per_s: float = 20.0


SETTINGS = {
    "tiny": Setting(
        duration_s=0.3, connections=(2,), payload_bytes=(1024,), num_streams=4, rounds=1
    ),
    "short": Setting(
        duration_s=3.0,
        connections=(1, 32, 256),
        payload_bytes=(1024, 1 << 20),
        num_streams=256,
        rounds=3,
    ),
    "full": Setting(
        duration_s=15.0,
        connections=(1, 32, 256),
        payload_bytes=(1024, 1 << 20),
        num_streams=256,
        rounds=5,
    ),
}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    parser.add_argument("--seed", type=int, default=SEED)
    default_workers = min(4, len(os.sched_getaffinity(0)))
    parser.add_argument("--workers", type=int, default=default_workers, help="of the gateway")
    parser.add_argument(
        "--peers",
        type=contestants,
        default=",".join(PEERS),
        help="servers to measure beside it, parted by commas; empty for none [default: all]",
    )
    parser.add_argument(
        "--components", type=int, default=NUM_COMPONENTS, help="of routes with many"
    )
    parser.add_argument("--attempts", type=int, default=1, help="at a disturbed measurement")
    parser.add_argument("--rounds", type=int, help="of the contest, instead of the setting's")
    arguments = parser.parse_args()
    setting, seed = SETTINGS[arguments.setting], arguments.seed
    measured = measure_overhead(setting, seed, arguments.workers)
    measured["components"] = measure_components(
        setting.duration_s, setting.rounds, seed, arguments.components
    )
    print_table(
        f"One component and many, a gateway of 1 worker (aim: ratio {AIM_RATIO:g} at most)",
        measured["components"],
    )
    contest = Contest(
        duration_s=setting.duration_s,
        connections=tuple(it for it in setting.connections if it <= MOST_IN_CONTEST),
        workers=tuple(sorted({1, arguments.workers})),
        rounds=arguments.rounds or setting.rounds,
        attempts=arguments.attempts,
        peers=arguments.peers,
    )
    if arguments.peers:
        measured |= measure_contest(contest)
    write_result("gateway_overhead", arguments.setting, seed, measured)


def measure_overhead(setting: Setting, seed: int, workers: int) -> dict[str, Any]:
    """Compare calls directly and through the gateway."""
    with running_stack(workers) as stack:
        invocations = measure_invocations(stack, setting, random.Random(seed))
        streams = measure_streams(stack, setting)
    title = f"Invocations, direct and through a gateway of {workers} workers (signatures verified)"
    print_table(title, invocations)
    print_table(f"{setting.num_streams} token streams: a chunk's age on arrival", streams)
    return {"workers": workers, "invocations": invocations, "streams": streams}


def measure_contest(contest: Contest) -> dict[str, Any]:
    """Compare the gateway with the peers."""
    rows, missing, findings = hold(contest)
    generator = "wrk" if has_wrk() else "benchmarks.load"
    print_table(f"The same echo model, load by {generator}, medians of {contest.rounds}", rows)
    for name, why in missing.items():
        print(f"{name}: not installed; {why}")
    print_table("Findings", finding_rows(findings))
    return {
        "generator": generator,
        "contest": rows,
        "missing": missing,
        "findings": finding_rows(findings),
    }


def measure_invocations(
    stack: Stack, setting: Setting, source: random.Random
) -> list[dict[str, Any]]:
    """A row for each payload and number of connections."""
    rows: list[dict[str, Any]] = []
    for payload_bytes in setting.payload_bytes:
        bodies = [source.randbytes(payload_bytes) for _ in range(num_bodies(payload_bytes))]
        direct = [direct_request(body, {}) for body in bodies]
        signed = [signed_request(stack, "invocations", body, {}) for body in bodies]
        rows += [
            {"payload": f"{payload_bytes // 1024} KB"}
            | compare(stack, setting, (direct, signed), num_connections)
            for num_connections in setting.connections
        ]
    return rows


def measure_streams(stack: Stack, setting: Setting) -> list[dict[str, Any]]:
    """One row for many streams at once, in which each chunk has the time at which it was sent."""
    interval_ms = round(1000 / setting.chunks_per_s)
    headers = {"X-Amzn-SageMaker-Custom-Attributes": f"chunks=1000000;interval_ms={interval_ms}"}
    direct = [direct_request(b"{}", headers)]
    signed = [signed_request(stack, "invocations-response-stream", b"{}", headers)]
    row = compare(stack, setting, (direct, signed), setting.num_streams, streams=True)
    return [{"chunks/s each": setting.chunks_per_s} | row]


def compare(
    stack: Stack,
    setting: Setting,
    loads: tuple[list[bytes], list[bytes]],
    num_connections: int,
    streams: bool = False,
) -> dict[str, Any]:
    """The same load, directly and through the gateway, and the gateway's overhead."""
    to_copy, to_gateway = loads
    load = Load(
        port=stack.echo_port,
        requests=to_copy,
        num_connections=num_connections,
        duration_s=setting.duration_s,
        warm_up_s=min(0.5, setting.duration_s),
        streams=streams,
    )
    direct = run_load(load)
    before_s = stack.gateway_cpu_s
    gateway = run_load(msgspec.structs.replace(load, port=stack.gateway_port, requests=to_gateway))
    cpu_s = stack.gateway_cpu_s - before_s
    return {
        "connections": num_connections,
        "direct/s": round(direct.per_s),
        "gateway/s": round(gateway.per_s),
        "ratio": gateway.per_s / direct.per_s if direct.per_s else 0.0,
        "direct p50 ms": direct.p50_ms,
        "gateway p50 ms": gateway.p50_ms,
        "+p50 ms": gateway.p50_ms - direct.p50_ms,
        "direct p99 ms": direct.p99_ms,
        "gateway p99 ms": gateway.p99_ms,
        "+p99 ms": gateway.p99_ms - direct.p99_ms,
        "gateway cpu us each": cpu_s / gateway.total * 1e6 if gateway.total else 0.0,
        "errors": direct.errors + gateway.errors,
    }


def num_bodies(payload_bytes: int) -> int:
    """How many different requests to make of a payload, so that they stay under 16 MB together."""
    return max(1, min(NUM_DISTINCT_REQUESTS, (16 << 20) // payload_bytes))


if __name__ == "__main__":
    main()
