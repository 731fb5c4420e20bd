"""Overhead of pipelines: echo containers one after the other, compared with direct calls of each.

The time of a hop is the time that a further container adds to a request, minus the time of a direct
call of that container. The aim is 0.5 ms at one connection. Rounds alternate, and figures are
medians. Bodies of 1 MB through five containers show the memory of the gateway before and after.

``python -m benchmarks.pipelines [--setting tiny|short|full]``
"""

import argparse
import contextlib
import dataclasses
import os
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.gateway_load import direct_request, run_load, signed_request
from benchmarks.load import Load
from benchmarks.record import print_table, write_result
from benchmarks.stack import Echo, Stack, running_echo, running_workers
from hostelry.base.files import write_whole
from hostelry.base.ports import free_port
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import CopyRoute, EndpointRoute, RouteSnapshot, VariantRoute
from hostelry.domain.scope import Scope
from hostelry.home.home import Home, UpConfig, new_credentials, save_config, save_credentials

SEED = 0
LENGTHS = (1, 2, 5)
AIM_HOP_MS = 0.5
SMALL, LARGE = 1024, 1 << 20
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How long to measure."""

    duration_s: float
    rounds: int
    connections: tuple[int, ...] = (1,)


SETTINGS = {
    "tiny": Setting(duration_s=0.3, rounds=1),
    "short": Setting(duration_s=2.0, rounds=5),
    "full": Setting(duration_s=10.0, rounds=9, connections=(1, 8, 32)),
}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    default_workers = min(4, len(os.sched_getaffinity(0)))
    parser.add_argument("--workers", type=int, default=default_workers, help="of the gateway")
    arguments = parser.parse_args()
    setting = SETTINGS[arguments.setting]
    with running_pipelines(arguments.workers) as stack:
        rows = [row for count in setting.connections for row in latencies(stack, setting, count)]
        memory = memory_of_large_bodies(stack, setting)
    print_table(f"Pipelines of echo containers, gateway of {arguments.workers} workers", rows)
    print_table("1 MB through five containers, 8 connections", memory)
    measured = {"workers": arguments.workers, "latencies": rows, "memory": memory}
    write_result("pipelines", arguments.setting, SEED, measured)


@contextlib.contextmanager
def running_pipelines(num_workers: int) -> Iterator[Stack]:
    """A gateway whose endpoint ``chain-N`` leads through N echo containers."""
    with contextlib.ExitStack() as stack:
        echoes = [stack.enter_context(running_echo()) for _ in range(max(LENGTHS))]
        home = Home(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "home")
        home.make()
        credentials = new_credentials("111122223333", "us-west-2")
        save_credentials(home, credentials)
        config = UpConfig(
            gateway_port=free_port(), control_port=free_port(), gateway_workers=num_workers
        )
        save_config(home, config)
        scope = Scope(credentials.account_id, credentials.region)
        endpoints = tuple(pipeline(scope, echoes[:length]) for length in LENGTHS)
        snapshot = RouteSnapshot(version="1", endpoints=endpoints)
        write_whole(home.routes, msgspec.json.encode(snapshot))
        workers = stack.enter_context(running_workers(home, config))
        yield Stack(
            credentials=credentials,
            gateway_port=config.gateway_port,
            echo_port=echoes[0].port,
            echo_pid=echoes[0].pid,
            gateway_pids=tuple(worker.pid for worker in workers),
        )


def pipeline(scope: Scope, echoes: list[Echo]) -> EndpointRoute:
    """The endpoint of a pipeline of these containers. With one container, it has a single model."""
    length = len(echoes)
    first, *further = (
        CopyRoute(
            id=f"c-{length}-{number}",
            address=f"http://127.0.0.1:{echo.port}",
            container=f"container-{number}" if length > 1 else None,
        )
        for number, echo in enumerate(echoes, start=1)
    )
    variant = VariantRoute(
        name="AllTraffic",
        weight=1.0,
        routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
        copies=(dataclasses.replace(first, further=tuple(further)),),
    )
    return EndpointRoute(
        scope=scope, name=f"chain-{length}", takes_components=False, variants=(variant,)
    )


def latencies(stack: Stack, setting: Setting, connections: int) -> list[dict[str, Any]]:
    """A row for each length, and a row for the hop."""
    body = bytes(SMALL)
    cases = {"direct": (stack.echo_port, direct_request(body, {}))}
    for length in LENGTHS:
        request = signed_request(stack, "invocations", body, {}, f"chain-{length}")
        cases[f"{length} containers"] = (stack.gateway_port, request)
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(setting.rounds):
        for name, (port, request) in cases.items():
            found[name].append(p50_ms(port, request, setting, connections))
    rounds = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    longest = LENGTHS[-1]
    further = longest - 1
    above_ms = [it[f"{longest} containers"] - it["1 containers"] for it in rounds]
    hops_ms = [it / further - one["direct"] for it, one in zip(above_ms, rounds, strict=True)]
    return [
        {
            "connections": connections,
            "figure": name,
            "p50_ms": statistics.median(values),
            "least": min(values),
            "most": max(values),
            "aim": f"{AIM_HOP_MS:g}" if name.startswith("hop") else "",
        }
        for name, values in (*found.items(), ("hop above its container", hops_ms))
    ]


def p50_ms(port: int, request: bytes, setting: Setting, connections: int) -> float:
    """The median latency of a request."""
    load = Load(
        port=port,
        requests=[request],
        num_connections=connections,
        warm_up_s=0.3,
        duration_s=setting.duration_s,
    )
    measured = run_load(load)
    if measured.errors:
        raise RuntimeError(f"{measured.errors} requests failed")
    return measured.p50_ms


def memory_of_large_bodies(stack: Stack, setting: Setting) -> list[dict[str, Any]]:
    """The memory of the gateway's workers after each round of large bodies."""
    request = signed_request(stack, "invocations", bytes(LARGE), {}, f"chain-{LENGTHS[-1]}")
    rows = [{"round": 0, "p50_ms": 0.0, "gateway_mib": resident_mib(stack)}]
    for number in range(1, setting.rounds + 1):
        took_ms = p50_ms(stack.gateway_port, request, setting, 8)
        rows.append({"round": number, "p50_ms": took_ms, "gateway_mib": resident_mib(stack)})
    return rows


def resident_mib(stack: Stack) -> float:
    """The memory of the gateway's workers."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    pages = (int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in stack.gateway_pids)
    return sum(pages) * page_bytes / MIB


if __name__ == "__main__":
    main()
