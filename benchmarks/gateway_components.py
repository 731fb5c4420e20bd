"""Cost of many components to the gateway: the same load on one of them, and on many in turn.

The gateways run at once, with one worker each and a control that takes their reports of load and
changes a component's route now and then, and get load in turn. The aim is in processor time a
request, which bears a busy machine: with routes of 10,000 components at most 5 % more than with
one.
"""

import contextlib
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from benchmarks.gateway_load import run_load, signed_request
from benchmarks.load import Load
from benchmarks.stack import COMPONENTS_ENDPOINT, Stack, component_name, running_stack
from hostelry.base.clock import monotonic_s
from hostelry.domain.route_delta import (
    DELTA,
    ROUTES_HEADER,
    EndpointDelta,
    RouteDelta,
    after,
    head_of,
    total_change,
    total_of,
    version_of,
)

NUM_COMPONENTS = 10_000
NUM_ASKED = 2000  # different requests, each for another component, which are signed beforehand
AIM_RATIO = 1.05
HELD_S = 20.0  # of a question for newer routes, where there are none


class ChangingRoutes:
    """The routes of one gateway, of which one component changes every `every_s`."""

    def __init__(self, stack: Stack, every_s: float) -> None:
        assert stack.routes is not None, "the stack has components"
        self._every_s = every_s
        self._version = stack.routes.version
        self._endpoint = next(it for it in stack.routes.endpoints if it.name == COMPONENTS_ENDPOINT)
        self._number = 0
        self._due_s = monotonic_s() + every_s
        self.ended = threading.Event()

    def newer(self, have: str) -> bytes | None:
        """The next change; None where there is none in time, or the gateway has others."""
        if self.ended.wait(min(self._due_s - monotonic_s(), HELD_S)) or have != self._version:
            return None
        if self._due_s > monotonic_s():
            return None
        self._due_s += self._every_s
        self._number += 1
        components = self._endpoint.components
        old = components[self._number % len(components)]
        new = replace(old, desired_copies=3 - old.desired_copies)
        change = EndpointDelta(head=head_of(self._endpoint), components=(new,))
        total = total_of(self._version) + total_change(self._endpoint, change)
        delta = RouteDelta(since=self._version, version=version_of(total), changed=(change,))
        self._endpoint, self._version = after(self._endpoint, change), delta.version
        return msgspec.json.encode(delta)


def handler_of(routes: ChangingRoutes) -> type[BaseHTTPRequestHandler]:
    """Control's HTTP: takes reports, and publishes `routes`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            body = routes.newer(asked.get("have", [""])[0])
            self._answer(304 if body is None else 200, body or b"")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(204, b"")

        def log_message(self, *arguments: object) -> None:
            del arguments

        def _answer(self, status: int, body: bytes) -> None:
            with contextlib.suppress(OSError):
                self.send_response(status)
                if status == 200:
                    self.send_header(ROUTES_HEADER, DELTA)
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

    return Handler


class QuietServer(ThreadingHTTPServer):
    """A server to which an end of a connection is none of its errors."""

    daemon_threads = True

    def handle_error(self, *arguments: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def changing_control(stack: Stack, every_s: float) -> Iterator[None]:
    """Control of that stack, which changes a component's route every `every_s`."""
    routes = ChangingRoutes(stack, every_s)
    server = QuietServer(("127.0.0.1", stack.control_port), handler_of(routes))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        routes.ended.set()
        server.shutdown()
        server.server_close()


def measure_components(
    duration_s: float, rounds: int, seed: int, num_components: int = NUM_COMPONENTS
) -> list[dict[str, Any]]:
    """A row for each case: medians of the rounds, and the ratio to the first, one component."""
    num_asked = min(NUM_ASKED, num_components)
    cases = [  # components in the routes, components that are asked, changes a second
        (1, 1, 0.0),
        (num_components, 1, 0.0),
        (num_components, 1, 10.0),
        (num_components, num_asked, 0.0),
        (num_components, num_asked, 10.0),
    ]
    with contextlib.ExitStack() as opened:
        stacks: list[tuple[Stack, list[bytes]]] = []
        for num, asked, per_s in cases:
            stack = opened.enter_context(running_stack(num_components=num))
            opened.enter_context(changing_control(stack, 1 / per_s if per_s else float("inf")))
            stacks.append((stack, requests(stack, num, asked, seed)))
        measured: list[list[dict[str, float]]] = [[] for _ in cases]
        for _ in range(rounds):
            for found, (stack, sent) in zip(measured, stacks, strict=True):
                found.append(measure_once(stack, sent, duration_s))
    rows = [
        {
            "components": num,
            "asked": asked,
            "changes/s": per_s,
            **{key: median(it[key] for it in found) for key in found[0]},
        }
        for found, (num, asked, per_s) in zip(measured, cases, strict=True)
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


def requests(stack: Stack, num_components: int, num_asked: int, seed: int) -> list[bytes]:
    """Signed requests, as many for one component as for many."""
    drawn = random.Random(seed).sample(range(num_components), num_asked)
    return [
        signed_request(
            stack,
            "invocations",
            b"x" * 1024,
            {"X-Amzn-SageMaker-Inference-Component": component_name(drawn[number % len(drawn)])},
            COMPONENTS_ENDPOINT,
        )
        for number in range(NUM_ASKED)
    ]


def resident_bytes(pid: int) -> int:
    """The memory that a process has in RAM."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024
