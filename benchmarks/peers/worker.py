"""An engine without a server, in a separate process: batches as JSON lines over its pipes.

The worker reads a `Setup` first, writes ``ready``, then answers one line of asks after the other.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from benchmarks.peers.contestant import Ask, Contestant, Outcome, log_tail

READY = b"ready\n"

Answering = Callable[[Sequence[Ask]], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The engine of a worker: model folder, adapters by name, threads, and its own options."""

    model: str
    adapters: dict[str, str]
    num_threads: int
    options: dict[str, Any]


class WorkerBatches:
    """The end of the pipes that sends requests."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log

    def run(self, asks: Sequence[Ask], *, streamed: bool) -> Outcome:
        """Send all at once and wait for all. Every token's time is known either way."""
        writer, reader = _pipes(self._process)
        writer.write(msgspec.json.encode(list(asks)) + b"\n")
        writer.flush()
        line = reader.readline()
        if not line:
            raise RuntimeError(f"the worker ended:\n{log_tail(self._log)}")
        return msgspec.json.decode(line, type=Outcome)


def start_worker(name: str, module: str, setup: Setup, log: Path) -> Contestant:
    """A worker that is ready. Raises RuntimeError with the end of its log if it fails."""
    started_s = time.monotonic()
    # Threads that spin while they wait for work would take processors from other processes.
    env = {**os.environ, "OMP_NUM_THREADS": str(setup.num_threads), "TOKENIZERS_PARALLELISM": "0"}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            env=env,
            process_group=0,  # an interrupt ends the rounds, not the engines
        )
    writer, reader = _pipes(process)
    writer.write(msgspec.json.encode(setup) + b"\n")
    writer.flush()
    if reader.readline() != READY:
        process.kill()
        process.wait()
        raise RuntimeError(f"{name} did not start:\n{log_tail(log)}")
    ready_s = time.monotonic() - started_s
    return Contestant(name, process, WorkerBatches(process, log), ready_s)


def work(prepare: Callable[[Setup], Answering]) -> None:
    """The end that answers. Output of other code goes to the log, not between the answers."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answering = prepare(msgspec.json.decode(sys.stdin.buffer.readline(), type=Setup))
    answers.write(READY)
    answers.flush()
    for line in sys.stdin.buffer:
        outcome = answering(msgspec.json.decode(line, type=list[Ask]))
        answers.write(msgspec.json.encode(outcome) + b"\n")
        answers.flush()


def _pipes(process: "subprocess.Popen[bytes]") -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None  # both were asked for
    assert process.stdout is not None
    return process.stdin, process.stdout
