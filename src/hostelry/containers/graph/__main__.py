"""The model server of a graph: ``python -m hostelry.containers.graph``.

It reads and checks graph.yaml of the model folder, loads the graph's functions, and serves.
"""

import asyncio
import logging
import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import uvloop

from hostelry.base.clock import MonotonicClock, SystemClock
from hostelry.base.errors import TerminalError
from hostelry.base.guards import take_key
from hostelry.base.logging import configure_logging
from hostelry.containers.graph.app import GraphApp
from hostelry.containers.graph.call import AnswerCache, GraphDeps
from hostelry.containers.graph.functions import FunctionProcesses
from hostelry.containers.graph.step_times import StepTimes
from hostelry.containers.graph.targets import GatewayTargets
from hostelry.containers.http.serving_app import (
    listen_by_variables,
    run_app,
    run_server,
    serve_http,
)
from hostelry.containers.variables import MAX_PAYLOAD, MIB, OWN_MODEL_DIR, reserved_cpus, whole
from hostelry.graph.check import build_plan
from hostelry.graph.document import FILE
from hostelry.graph.steps import CacheAction, GraphDocumentError, GraphPlan

MAX_FILE_BYTES = 1 << 20
DEFAULT_PAYLOAD_MB = 25

LOG = logging.getLogger("hostelry.containers.graph")


def main() -> int:
    """Serve until a signal. Returns the exit status (see `run_server`)."""
    configure_logging("graph")
    return run_server(partial(start, take_key(os.environ)))


def start(key: str | None) -> str | None:
    """Serve as the variables say. Returns the reason of a failure. Raises TerminalError."""
    folder = Path(os.environ.get("HOSTELRY_MODEL_DIR", OWN_MODEL_DIR)).absolute()
    try:
        plan = read_plan(folder)
    except GraphDocumentError as error:
        raise TerminalError(str(error)) from None
    cpus = reserved_cpus(os.environ, len(os.sched_getaffinity(0)))
    functions = FunctionProcesses(
        folder / "code", plan.functions, os.environ, max(1, math.floor(cpus))
    )
    return uvloop.run(serve(plan, functions, key))


def read_plan(folder: Path) -> GraphPlan:
    """The plan of the folder's graph.yaml. Raises TerminalError, GraphDocumentError."""
    try:
        with (folder / FILE).open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1).decode()
    except FileNotFoundError:
        raise TerminalError(f"the model's archive has no {FILE}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TerminalError(f"{FILE} cannot be read: {error}") from None
    return build_plan(text)


def build_caches(plan: GraphPlan, environment: Mapping[str, str]) -> dict[str, AnswerCache]:
    """The caches of the plan's steps. Raises TerminalError if they exceed the reserved memory."""
    clock = MonotonicClock()
    actions = {
        name: step.action
        for name, step in plan.steps.items()
        if isinstance(step.action, CacheAction)
    }
    reserved = whole(environment, "HOSTELRY_MEMORY_BYTES", 0, 0, 1 << 60)
    asked = sum(action.max_bytes for action in actions.values())
    if reserved and asked > reserved:
        raise TerminalError(
            f"the caches of {', '.join(actions)} may take {asked} bytes (max_bytes), and the copy "
            f"has reserved {reserved}"
        )
    return {name: AnswerCache(it.ttl_s, it.max_bytes, clock) for name, it in actions.items()}


async def serve(plan: GraphPlan, functions: FunctionProcesses, key: str | None) -> str | None:
    """Run until SIGTERM or SIGINT. Returns the reason if the start fails. Raises TerminalError."""
    max_mb = whole(os.environ, MAX_PAYLOAD, DEFAULT_PAYLOAD_MB, 1, DEFAULT_PAYLOAD_MB)
    listener = listen_by_variables()
    clock, targets = MonotonicClock(), GatewayTargets(SystemClock())
    is_loaded = asyncio.Event()
    deps = GraphDeps(
        plan=plan,
        targets=targets,
        functions=functions,
        caches=build_caches(plan, os.environ),
        times=StepTimes(clock),
        clock=clock,
    )

    def find_fault() -> str | None:
        if not is_loaded.is_set():
            return "the functions of code/ are being loaded"
        return None if targets.keys else "the agent has sent no keys yet"

    async def load() -> None:
        await functions.start()
        is_loaded.set()
        LOG.info("ready: %d steps, output %s", len(plan.steps), plan.output)

    app = GraphApp(deps, targets, max_mb * MIB, clock, find_fault)
    try:
        async with serve_http(app, listener, key):
            return await run_app(app, load())
    finally:
        await functions.close()
        targets.close()


if __name__ == "__main__":
    raise SystemExit(main())
