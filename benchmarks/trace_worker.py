"""A trace in a separate process, so that memory and caches belong to that run alone.

``python -m benchmarks.trace_worker`` reads a `Job` (msgspec JSON) and prints a `Result`.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.engine_options import engine_config
from benchmarks.peers import process_tree
from benchmarks.trace import Arrival, Served, run_trace
from hostelry.engine.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An engine and its traces, which run one after the other. `warm_up` is not counted."""

    model: str
    options: dict[str, Any]
    adapters: dict[str, str]
    traces: tuple[tuple[Arrival, ...], ...]
    warm_up: tuple[Arrival, ...] = ()
    give_up_after_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceResult:
    """The outcome of one trace. `counts` has the increase of the engine's own counts."""

    served: tuple[Served, ...]
    took_s: float
    counts: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The measurements of a job. `stats` are the engine's own numbers after the last trace."""

    traces: tuple[TraceResult, ...]
    load_s: float
    register_s: float
    pss_bytes: int
    peak_rss_bytes: int
    stats: dict[str, int]
    warnings: tuple[str, ...]


def run_job(job: Job, *, isolated: bool = True) -> Result:
    """Run the job in a new process. Raises RuntimeError with the process's output if it fails.

    Without `isolated` the job runs in this process, quickly, and its memory is this process's.
    """
    if not isolated:
        return perform(job)
    threads = job.options.get("num_threads")
    env = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.trace_worker"],
        input=msgspec.json.encode(job),
        capture_output=True,
        env=env,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the engine's process failed:\n{done.stderr.decode()[-3000:]}")
    return msgspec.json.decode(done.stdout, type=Result)


def perform(job: Job) -> Result:
    """Run the job in this process."""
    started_s = time.perf_counter()
    engine = Engine.load(Path(job.model), engine_config(job.options))
    loaded_s = time.perf_counter()
    for name, folder in job.adapters.items():
        engine.load_adapter(name, Path(folder))
    registered_s = time.perf_counter()
    run_trace(engine, job.warm_up, job.give_up_after_s)
    results: list[TraceResult] = []
    for trace in job.traces:
        before = count_statistics(engine)
        served, took_s = run_trace(engine, trace, job.give_up_after_s)
        counts = {name: value - before[name] for name, value in count_statistics(engine).items()}
        results.append(TraceResult(served=tuple(served), took_s=took_s, counts=counts))
        abandon(engine, len(trace))
    memory = process_tree.memory(os.getpid())
    return Result(
        traces=tuple(results),
        load_s=loaded_s - started_s,
        register_s=registered_s - loaded_s,
        pss_bytes=memory.pss_bytes,
        peak_rss_bytes=memory.peak_rss_bytes,
        stats=count_statistics(engine),
        warnings=tuple(engine.warnings),
    )


def count_statistics(engine: Engine) -> dict[str, int]:
    """Every whole number among the engine's statistics, by its name."""
    found: dict[str, int] = {}
    unread: list[dict[str, Any]] = [msgspec.to_builtins(engine.stats)]
    for level in unread:
        found |= {name: it for name, it in level.items() if isinstance(it, int)}
        unread += [it for it in level.values() if isinstance(it, dict)]
    return found


def abandon(engine: Engine, num_requests: int) -> None:
    """Abort the requests of an unfinished trace, so that the next trace has an idle engine."""
    for number in range(num_requests):
        engine.abort(str(number))
    while engine.has_work:
        engine.step()


def main() -> None:
    """Entry point. All other output goes to the log."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    result = perform(msgspec.json.decode(sys.stdin.buffer.read(), type=Job))
    answers.write(msgspec.json.encode(result))
    answers.flush()


if __name__ == "__main__":
    main()
