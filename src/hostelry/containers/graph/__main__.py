"""The model server of a graph: ``python -m hostelry.containers.graph``.

Reads graph.yaml of the model folder, checks it, loads its functions, and serves.
"""

import asyncio
import logging
import math
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import uvloop

from hostelry.base.clock import MonotonicClock, SystemClock
from hostelry.base.copy_key import take_key
from hostelry.base.errors import TerminalError
from hostelry.base.logging import configure_logging
from hostelry.base.stop_event import stop_event
from hostelry.containers.graph.answer_cache import AnswerCache
from hostelry.containers.graph.app import GraphApp
from hostelry.containers.graph.call import GraphDeps
from hostelry.containers.graph.functions import FunctionError, FunctionProcesses
from hostelry.containers.graph.step_times import StepTimes
from hostelry.containers.graph.targets import GatewayTargets
from hostelry.containers.http.listening import http_server, listen, served_on
from hostelry.containers.variables import MAX_PAYLOAD, MIB, reserved_cpus, whole
from hostelry.graph.check import plan_of_text
from hostelry.graph.document import FILE
from hostelry.graph.faults import GraphDocumentError
from hostelry.graph.steps import CacheAction, GraphPlan

EXIT_FAILURE, EXIT_CONFIGURATION = 1, 2
MAX_FILE_BYTES = 1 << 20
DEFAULT_PAYLOAD_MB = 25

log = logging.getLogger("hostelry.containers.graph")


def main() -> int:
    """Serve until a signal; 0 after a drain, 1 after a failure, 2 for a wrong graph."""
    configure_logging("graph")
    key = take_key(os.environ)
    try:
        folder = Path(os.environ.get("HOSTELRY_MODEL_DIR", "/opt/ml/model")).absolute()
        plan = read_plan(folder)
        port = whole(os.environ, "SAGEMAKER_BIND_TO_PORT", 8080, 1, 65535)
        max_mb = whole(os.environ, MAX_PAYLOAD, DEFAULT_PAYLOAD_MB, 1, DEFAULT_PAYLOAD_MB)
        cpus = reserved_cpus(os.environ, len(os.sched_getaffinity(0)))
        functions = FunctionProcesses(
            folder / "code", plan.functions, os.environ, max(1, math.floor(cpus))
        )
        listener = listen(os.environ.get("SAGEMAKER_BIND_HOST") or "127.0.0.1", port)
        uvloop.run(serve(plan, functions, listener, key, max_mb * MIB))
    except FunctionError as error:
        log.error("the server ends: %s", " ".join(str(error).split()))  # noqa: TRY400
        return EXIT_FAILURE
    except (TerminalError, GraphDocumentError) as error:
        log.error("%s", error)  # noqa: TRY400 - the message needs no traceback
        return EXIT_CONFIGURATION
    return 0


def read_plan(folder: Path) -> GraphPlan:
    """The plan of the folder's graph.yaml; raises TerminalError, GraphDocumentError."""
    try:
        with (folder / FILE).open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1).decode()
    except FileNotFoundError:
        raise TerminalError(f"the model's archive has no {FILE}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TerminalError(f"{FILE} cannot be read: {error}") from None
    return plan_of_text(text)


def caches_of(plan: GraphPlan, environment: Mapping[str, str]) -> dict[str, AnswerCache]:
    """The caches of the plan's steps; raises TerminalError where they exceed the reservation."""
    clock = MonotonicClock()
    found = {
        name: AnswerCache(step.action.ttl_s, step.action.max_bytes, clock)
        for name, step in plan.steps.items()
        if isinstance(step.action, CacheAction)
    }
    reserved = whole(environment, "HOSTELRY_MEMORY_BYTES", 0, 0, 1 << 60)
    asked = sum(
        step.action.max_bytes
        for step in plan.steps.values()
        if isinstance(step.action, CacheAction)
    )
    if reserved and asked > reserved:
        raise TerminalError(
            f"the caches of {', '.join(found)} may take {asked} bytes (max_bytes), and the copy "
            f"has reserved {reserved}"
        )
    return found


async def serve(
    plan: GraphPlan,
    functions: FunctionProcesses,
    listener: socket.socket,
    key: str | None,
    max_request_bytes: int,
) -> None:
    """Run until SIGTERM or SIGINT; raises FunctionError, TerminalError."""
    stop = stop_event()
    clock, targets = MonotonicClock(), GatewayTargets(SystemClock())
    is_loaded = asyncio.Event()
    deps = GraphDeps(
        plan=plan,
        targets=targets,
        functions=functions,
        caches=caches_of(plan, os.environ),
        times=StepTimes(clock),
        clock=clock,
    )

    def fault() -> str | None:
        if not is_loaded.is_set():
            return "the functions of code/ are being loaded"
        return None if targets.keys else "the agent has sent no keys yet"

    app = GraphApp(deps, targets, max_request_bytes, clock, fault)
    http = http_server(served_on(listener, app.asgi(key)))
    serving = asyncio.create_task(http.serve(sockets=[listener]))
    try:
        await functions.start()
        is_loaded.set()
        log.info("ready: %d steps, output %s", len(plan.steps), plan.output)
        await stop.wait()
        await app.drain()
    finally:
        http.should_exit = True
        await serving
        await functions.close()
        targets.close()


if __name__ == "__main__":
    raise SystemExit(main())
