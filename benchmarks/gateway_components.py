"""Cost of many components to the gateway: the same load on one of them, and on all of them in turn.

Both gateways run at once, with one worker each and a control that takes their reports of load, and
get load in turn. The aim is in processor time a request, which bears a busy machine: with routes of
10,000 components at most 5 % more than with one.
"""

import contextlib
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gateway_load import run_load, signed_request
from benchmarks.load import Load
from benchmarks.stack import COMPONENTS_ENDPOINT, Stack, component_name, running_stack

NUM_COMPONENTS = 10_000
NUM_ASKED = 2000  # different requests, each for another component, which are signed beforehand
AIM_RATIO = 1.05
HELD_S = 20.0  # of a question for newer routes, of which there are none


class QuietControl(BaseHTTPRequestHandler):
    """Control without changes: takes reports, and has no newer routes."""

    protocol_version = "HTTP/1.1"
    ended = threading.Event()

    def do_GET(self) -> None:
        """No newer routes."""
        self.ended.wait(HELD_S)
        self._answer(304)

    def do_POST(self) -> None:
        """Take the report."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(204)

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""

    def _answer(self, status: int) -> None:
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.end_headers()


@contextlib.contextmanager
def quiet_control(port: int) -> Iterator[None]:
    """A control at that port."""
    server = ThreadingHTTPServer(("127.0.0.1", port), QuietControl)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        QuietControl.ended.set()
        server.shutdown()
        server.server_close()
        QuietControl.ended.clear()


def measure_components(
    duration_s: float, rounds: int, seed: int, num_components: int = NUM_COMPONENTS
) -> list[dict[str, Any]]:
    """A row for one component and one for all: medians of the rounds, and the ratio."""
    with contextlib.ExitStack() as opened:
        cases = []
        for num in (1, num_components):
            stack = opened.enter_context(running_stack(num_components=num))
            opened.enter_context(quiet_control(stack.control_port))
            cases.append((num, stack, requests(stack, num, seed)))
        measured: dict[int, list[dict[str, float]]] = {num: [] for num, _, _ in cases}
        for _ in range(rounds):
            for num, stack, asked in cases:
                measured[num].append(measure_once(stack, asked, duration_s))
    rows = [
        {"components": num, **{key: median(it[key] for it in found) for key in found[0]}}
        for num, found in measured.items()
    ]
    for row in rows:
        row["ratio"] = row["cpu us each"] / rows[0]["cpu us each"]
    return rows


def measure_once(stack: Stack, asked: list[bytes], duration_s: float) -> dict[str, float]:
    """One load of 32 connections."""
    before_s = stack.gateway_cpu_s
    found = run_load(
        Load(
            port=stack.gateway_port,
            requests=asked,
            num_connections=32,
            duration_s=duration_s,
            warm_up_s=min(1.0, duration_s),
        )
    )
    return {
        "cpu us each": (stack.gateway_cpu_s - before_s) / max(found.total, 1) * 1e6,
        "per s": round(found.per_s),
        "p50 ms": found.p50_ms,
        "p99 ms": found.p99_ms,
        "errors": found.errors,
        "memory MB": sum(resident_bytes(pid) for pid in stack.gateway_pids) / 1e6,
    }


def requests(stack: Stack, num_components: int, seed: int) -> list[bytes]:
    """Signed requests, as many for one component as for many."""
    drawn = random.Random(seed).sample(range(num_components), min(NUM_ASKED, num_components))
    return [
        signed_request(
            stack,
            "invocations",
            b"x" * 1024,
            {"X-Amzn-SageMaker-Inference-Component": component_name(drawn[it % len(drawn)])},
            COMPONENTS_ENDPOINT,
        )
        for it in range(NUM_ASKED)
    ]


def resident_bytes(pid: int) -> int:
    """The memory that a process has in RAM."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024
