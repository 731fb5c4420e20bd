"""Time from an agent's order to a copy that has answered, for cold starts and for warm forks.

Each repetition starts the built-in LLM server three times on the same model, one after the other.
*cold* starts a program. *first warm* forks from an interpreter that is started at the same moment
and has to import first. *warm* forks from that interpreter once it is ready. Then some copies run
at once, to measure the memory that they and the interpreter take together.

``python -m benchmarks.copy_start [--setting short|full] [--model DIR] [--smoke]``
"""

import argparse
import asyncio
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.aims import Finding, finding_rows
from benchmarks.models import model_folder
from benchmarks.record import print_table, write_result
from hostelry.base.clock import monotonic_s
from hostelry.base.ports import free_port
from hostelry.domain.copy import CopySpec
from hostelry.domain.model import Container
from hostelry.domain.shape import Requirements, Shape
from hostelry.fleet.agent.model_server import ModelServer, build_http_client
from hostelry.fleet.host.processes import find_members, process_table
from hostelry.fleet.host.usage import memory_use
from hostelry.fleet.launch.environment import (
    CopyPlace,
    build_program_environment,
    select_operator_variables,
)
from hostelry.fleet.launch.launcher import LaunchOrder, ProcessLauncher
from hostelry.fleet.launch.warm import WarmForks
from hostelry.fleet.rules.images import LMI_COMMAND, LMI_RULE

SEED = 20261121
KINDS = ("cold", "first warm", "warm")
STAGES = ("process", "listens", "ready", "answered")
POLL_S = 0.005
LIMIT_S = 120.0
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How often each kind is started, and how many copies run at once for their memory."""

    starts: int
    together: int


SETTINGS = {
    "smoke": Setting(starts=1, together=1),
    "short": Setting(starts=5, together=3),
    "full": Setting(starts=15, together=4),
}


@dataclass(slots=True, kw_only=True)
class Bench:
    """The folder and model of the started copies, and their number of threads."""

    scratch: Path
    model: Path
    threads: int
    http: httpx.AsyncClient
    num_copies: int = 0
    operator: dict[str, str] = field(
        default_factory=lambda: select_operator_variables(os.environ, ())
    )

    def order(self) -> tuple[LaunchOrder, int]:
        """A new copy's order, and its port."""
        self.num_copies += 1
        folder = self.scratch / "copies" / f"c-{self.num_copies}"
        folder.mkdir(parents=True)
        port = free_port()
        spec = CopySpec(
            id=folder.name,
            owner="component/copy-start",
            container=Container(image="lmi", environment={}),
            requirements=Requirements(min_memory_bytes=MIB, cpus=float(self.threads)),
            download_timeout_s=LIMIT_S,
            startup_timeout_s=LIMIT_S,
        )
        place = CopyPlace(
            folder=folder,
            model_folder=self.model,
            port=port,
            region="us-west-2",
            shape=Shape(cpus=self.threads, memory_bytes=2**33),
            machine_cpus=self.threads,
        )
        environment = build_program_environment(self.operator, spec, LMI_RULE, place, {})
        order = LaunchOrder(
            argv=LMI_COMMAND, environment=environment, folder=folder, log=folder / "log"
        )
        return order, port


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.copy_start", description=__doc__)
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--smoke", action="store_true", help="a tiny model and one start of each")
    parser.add_argument("--model", type=Path, help="a model folder; default the demo model")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args(argv)
    name = "smoke" if arguments.smoke else arguments.setting
    with tempfile.TemporaryDirectory() as scratch:
        model = model_folder(arguments.model, Path(scratch), tiny=arguments.smoke)
        measured = asyncio.run(measure(Path(scratch), model, arguments.threads, SETTINGS[name]))
    print_table("From the order to an answer, seconds (medians)", measured["starts"])
    print_table("Copies at once, MiB (shares of what is shared)", measured["memory"])
    print_table("Against the aims", measured["findings"])
    write_result("copy_start", name, SEED, measured)


async def measure(scratch: Path, model: Path, threads: int, setting: Setting) -> dict[str, Any]:
    """Both tables and their findings."""
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    async with build_http_client() as http:
        bench = Bench(scratch=scratch, model=model, threads=threads, http=http)
        if setting.starts > 1:
            await start_once(bench, None)  # fills the page cache, and is not counted
        for left in reversed(range(setting.starts)):
            runs["cold"].append(await start_once(bench, None))
            warm = WarmForks(scratch, bench.operator)
            runs["first warm"].append(await start_once(bench, warm))
            runs["warm"].append(await start_once(bench, warm))
            if left:
                warm.close()
        memory = [
            await memory_together(bench, kind, forks, setting.together)
            for kind, forks in (("cold", None), ("warm", warm))
        ]
        warm.close()
    starts = [start_row(kind, runs[kind], runs["cold"]) for kind in KINDS]
    return {"starts": starts, "memory": memory, "findings": finding_rows(findings(starts, memory))}


async def start_once(bench: Bench, warm: WarmForks | None) -> dict[str, float]:
    """Seconds from the order until each stage. The copy is stopped afterwards."""
    launcher = ProcessLauncher(warm=warm)
    order, port = bench.order()
    began_at_s = monotonic_s()
    process = await launcher.start(order)
    reached = {"process": monotonic_s() - began_at_s}
    if process.start_kind != ("cold" if warm is None else "warm"):
        raise RuntimeError(f"the start was {process.start_kind}: {order.log.read_text()}")
    try:
        server = ModelServer(f"http://127.0.0.1:{port}", bench.http)
        await until_answered(bench.http, port, {200, 500, 503})
        reached["listens"] = monotonic_s() - began_at_s
        await until_answered(bench.http, port, {200})
        reached["ready"] = monotonic_s() - began_at_s
        answer = await server.prove(LMI_RULE.probe, LIMIT_S)
        if answer.fault is not None:
            raise RuntimeError(f"{answer.fault}\n{order.log.read_text()}")
        reached["answered"] = monotonic_s() - began_at_s
    finally:
        await launcher.stop(order.folder, process.identity, 5.0)
    return reached


async def until_answered(http: httpx.AsyncClient, port: int, statuses: set[int]) -> None:
    """Return once GET /ping answers with one of `statuses`."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                if (await http.get(f"http://127.0.0.1:{port}/ping")).status_code in statuses:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(POLL_S)


async def memory_together(
    bench: Bench, kind: str, warm: WarmForks | None, count: int
) -> dict[str, Any]:
    """The memory of `count` copies that have answered, together with the interpreter."""
    launcher = ProcessLauncher(warm=warm)
    started = []
    for _ in range(count):
        order, port = bench.order()
        started.append((order, await launcher.start(order)))
        await until_answered(bench.http, port, {200})
        await ModelServer(f"http://127.0.0.1:{port}", bench.http).prove(LMI_RULE.probe, LIMIT_S)
    table = process_table()
    found = [find_members(table, order.folder, process.identity) for order, process in started]
    interpreter = warm.processes if warm is not None else []
    use = memory_use([*(it for mine in found for it in mine), *interpreter])
    resident, held = use.resident_bytes / MIB, use.held_bytes / MIB
    for order, process in started:
        await launcher.stop(order.folder, process.identity, 5.0)
    return {
        "start": kind,
        "copies": count,
        "resident": resident,
        "a copy": resident / count,
        "without mapped files": held,
    }


def start_row(
    kind: str, runs: Sequence[dict[str, float]], cold: Sequence[dict[str, float]]
) -> dict[str, Any]:
    """Medians of the stages, the range of the whole, and its speed compared with a cold start."""
    answered = [run["answered"] for run in runs]
    stages = {stage: statistics.median(run[stage] for run in runs) for stage in STAGES}
    base = statistics.median(run["answered"] for run in cold)
    return {
        "start": kind,
        **stages,
        "lowest": min(answered),
        "highest": max(answered),
        "times faster": base / stages["answered"],
        "starts": len(runs),
    }


def findings(starts: Sequence[dict[str, Any]], memory: Sequence[dict[str, Any]]) -> list[Finding]:
    """The claims of a warm start."""
    _, first, warm = starts
    taken = memory[1]["resident"] / memory[0]["resident"]
    return [
        Finding(what="a forked process is there, s", value=warm["process"], at_most=0.1),
        Finding(what="warm: times faster than cold", value=warm["times faster"], at_least=4.0),
        Finding(what="first warm: times faster", value=first["times faster"], at_least=1.0),
        Finding(what="memory of warm copies, of cold ones'", value=taken, at_most=1.0),
    ]


if __name__ == "__main__":
    main()
