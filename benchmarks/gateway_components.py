"""Cost of many components to the gateway: the same load on one of them, and on many in turn.

Two gateways get load in turn. Each has one worker, and a control that takes its reports of load and
changes a component's route now and then. Loads with and without changes use the same gateway. The
aim is in processor time of a request, which is valid on a busy machine: with routes of 10,000
components at most 5 % more than with one, and with changes at most 5 % more than without.
"""

import contextlib
import math
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec.structs import replace

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
    build_head,
    get_total,
    get_version,
    total_change,
)

NUM_COMPONENTS = 10_000
NUM_ASKED = 2000  # different requests, each for another component, which are signed beforehand
AIM_RATIO = 1.05
CPU = "cpu us each"  # processor time a request, in microseconds
HELD_S = 20.0  # the time that a query for newer routes is held if none come


class ChangingRoutes:
    """The routes of one gateway. `change` has one component of them change now and then."""

    def __init__(self, stack: Stack) -> None:
        assert stack.routes is not None, "the stack has components"
        self._version = stack.routes.version
        self._endpoint = next(it for it in stack.routes.endpoints if it.name == COMPONENTS_ENDPOINT)
        self._number = 0
        self._every_s = self._due_s = math.inf
        self._is_ended = False
        self._woken = threading.Condition()

    def change(self, per_s: float) -> None:
        """From now on, change a component `per_s` times a second, or never for 0."""
        with self._woken:
            self._every_s = 1 / per_s if per_s else math.inf
            self._due_s = monotonic_s() + self._every_s
            self._woken.notify_all()

    def end(self) -> None:
        """Answer every query at once."""
        with self._woken:
            self._is_ended = True
            self._woken.notify_all()

    def newer(self, have: str) -> bytes | None:
        """The next change, or None if none comes in time or the gateway has another version."""
        give_up_at_s = monotonic_s() + HELD_S
        with self._woken:
            while not self._is_ended and monotonic_s() < min(self._due_s, give_up_at_s):
                self._woken.wait(min(self._due_s, give_up_at_s) - monotonic_s())
            if self._due_s > monotonic_s() or have != self._version:
                return None
            return self._next()

    def _next(self) -> bytes:
        self._due_s += self._every_s
        self._number += 1
        components = self._endpoint.components
        old = components[self._number % len(components)]
        new = replace(old, desired_copies=3 - old.desired_copies)
        change = EndpointDelta(head=build_head(self._endpoint), components=(new,))
        total = get_total(self._version) + total_change(self._endpoint, change)
        delta = RouteDelta(since=self._version, version=get_version(total), changed=(change,))
        self._endpoint, self._version = after(self._endpoint, change), delta.version
        return msgspec.json.encode(delta)


def handler_of(routes: ChangingRoutes) -> type[BaseHTTPRequestHandler]:
    """Control's HTTP handler, which takes reports and publishes `routes`."""

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
    """A server that does not report closed connections as errors."""

    daemon_threads = True

    def handle_error(self, *arguments: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def changing_control(stack: Stack) -> Iterator[ChangingRoutes]:
    """Run the control of that stack, and yield its routes so that the caller can change them."""
    routes = ChangingRoutes(stack)
    server = QuietServer(("127.0.0.1", stack.control_port), handler_of(routes))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield routes
    finally:
        routes.end()
        server.shutdown()
        server.server_close()


def measure_components(
    duration_s: float, rounds: int, seed: int, num_components: int = NUM_COMPONENTS
) -> list[dict[str, Any]]:
    """A row for each case: medians of the rounds, and their ratios to the case without changes."""
    num_asked = min(NUM_ASKED, num_components)
    cases = [  # components in the routes, components that get requests, changes a second
        (1, 1, 0.0),
        (num_components, 1, 0.0),
        (num_components, 1, 10.0),
        (num_components, num_asked, 0.0),
        (num_components, num_asked, 10.0),
    ]
    measured: list[list[dict[str, float]]] = [[] for _ in cases]
    with contextlib.ExitStack() as opened:
        stacks: dict[int, tuple[Stack, ChangingRoutes]] = {}
        for num in (1, num_components):
            stack = opened.enter_context(running_stack(num_components=num))
            stacks[num] = stack, opened.enter_context(changing_control(stack))
        sent = [requests(stacks[num][0], num, asked, seed) for num, asked, _ in cases]
        for number in range(rounds):
            turns = list(zip(measured, cases, sent, strict=True))
            for found, (num, _, per_s), asked_for in turns[:: -1 if number % 2 else 1]:
                stack, routes = stacks[num]
                routes.change(per_s)
                found.append(measure_once(stack, asked_for, duration_s))
                routes.change(0)
    without = [cases.index((num, asked, 0.0)) for num, asked, _ in cases]
    rows = [
        {
            "components": num,
            "asked": asked,
            "changes/s": per_s,
            **{key: median(it[key] for it in found) for key in found[0]},
            "ratio without changes": median(
                it[CPU] / same[CPU] for it, same in zip(found, measured[other], strict=True)
            ),
        }
        for found, other, (num, asked, per_s) in zip(measured, without, cases, strict=True)
    ]
    for row in rows:
        row["ratio"] = row[CPU] / rows[0][CPU]
    return rows


def measure_once(stack: Stack, asked: list[bytes], duration_s: float) -> dict[str, float]:
    """Run one load of 32 connections."""
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
        CPU: (stack.gateway_cpu_s - before_s) / max(found.total, 1) * 1e6,
        "per s": round(found.per_s),
        "p50 ms": found.p50_ms,
        "p99 ms": found.p99_ms,
        "errors": found.errors,
        "memory MB": sum(resident_bytes(pid) for pid in stack.gateway_pids) / 1e6,
    }


def requests(stack: Stack, num_components: int, num_asked: int, seed: int) -> list[bytes]:
    """Signed requests. Their number is the same for one component and for many."""
    drawn = random.Random(seed).sample(range(num_components), num_asked)
    return [
        signed_request(
            stack,
            "invocations",
            b"x" * 1024,
            {"X-Amzn-SageMaker-Inference-Component": component_name(drawn[number % num_asked])},
            COMPONENTS_ENDPOINT,
        )
        for number in range(NUM_ASKED)
    ]


def resident_bytes(pid: int) -> int:
    """The memory that a process has in RAM."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024
