"""The interface of every engine under comparison: answer a batch, pause, measure, stop."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from benchmarks.peers import process_tree
from benchmarks.peers.process_tree import Memory

IDLE_WATCH_S = 1.0


class PeerMissingError(RuntimeError):
    """The peer is not installed here. The message says how to install it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request: continue `prompt` by exactly `max_tokens` tokens. Temperature 0 is greedy."""

    prompt: tuple[int, ...]
    adapter: str | None
    max_tokens: int
    temperature: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One request's outcome.

    `arrivals_s` are the instants of its parts, counted from the start of its batch: one for each
    token if the engine reports each, and none if the answer came in one piece.
    """

    num_tokens: int
    arrivals_s: tuple[float, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A batch's outcome. `wall_s` lasts from its first byte sent to its last byte received.

    `others_cpus` is how many processors were busy meanwhile with work outside the contest, and
    `cpu_s` is the processor time that the engine took. A busy machine lengthens `wall_s` only.
    """

    wall_s: float
    answers: tuple[Answer, ...]
    others_cpus: float = 0.0
    cpu_s: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """New tokens of all requests, divided by the time of the whole batch."""
        return sum(answer.num_tokens for answer in self.answers) / self.wall_s


class Batches(Protocol):
    """Answers batches. Raises RuntimeError if a request fails or has too few tokens."""

    def run(self, asks: Sequence[Ask], *, streamed: bool) -> Outcome:
        """Send all at once and wait for all."""
        ...


class Contestant:
    """A running engine: its processes, and how to have it answer."""

    def __init__(
        self, name: str, process: "subprocess.Popen[bytes]", batches: Batches, ready_s: float
    ) -> None:
        self.name = name
        self.ready_s = ready_s
        self.peak_pss_bytes = 0
        self._process = process
        self._batches = batches
        self._paused = False
        self._beside: tuple[int, ...] = ()

    @property
    def pid(self) -> int:
        """The process that was started. Others may be its children."""
        return self._process.pid

    def through(self, name: str, batches: Batches, pids: Sequence[int]) -> "Contestant":
        """The same engine reached another way, whose processes `pids` count as part of it.

        Only one of the two may be used from now on.
        """
        other = Contestant(name, self._process, batches, self.ready_s)
        other._beside = tuple(pids)
        return other

    def named(self, name: str) -> "Contestant":
        """The contestant itself, under another name."""
        self.name = name
        return self

    def run(self, asks: Sequence[Ask], *, streamed: bool = False) -> Outcome:
        """Answer `asks` at once. Raises RuntimeError if a request fails."""
        self.resume()
        before = self._busy_s()
        outcome = self._batches.run(asks, streamed=streamed)
        machine_s, own_s, asker_s = (
            after - earlier for after, earlier in zip(self._busy_s(), before, strict=True)
        )
        for ask, answer in zip(asks, outcome.answers, strict=True):
            if answer.num_tokens != ask.max_tokens:
                raise RuntimeError(
                    f"{self.name} gave {answer.num_tokens} tokens where {ask.max_tokens} were asked"
                )
        others_s = max(0.0, machine_s - own_s - asker_s)
        return replace(outcome, others_cpus=others_s / outcome.wall_s, cpu_s=own_s)

    def _busy_s(self) -> tuple[float, float, float]:
        """Processor time so far of the machine, of this engine, and of the requesting process."""
        own_s = sum(process_tree.cpu_s(pid) for pid in (self._process.pid, *self._beside))
        return process_tree.machine_busy_s(), own_s, time.process_time()

    def measure_memory(self) -> Memory:
        """The memory of the engine now, which also updates the peak."""
        memory = process_tree.memory(self._process.pid)
        self.peak_pss_bytes = max(self.peak_pss_bytes, memory.pss_bytes)
        return memory

    def idle_cpu(self) -> float:
        """The number of processors that the engine keeps busy while it has no work."""
        before_s = process_tree.cpu_s(self._process.pid)
        time.sleep(IDLE_WATCH_S)
        return (process_tree.cpu_s(self._process.pid) - before_s) / IDLE_WATCH_S

    def pause(self) -> None:
        """Take no processor time until `resume` or the next `run`."""
        if not self._paused:
            process_tree.pause(self._process.pid)
            self._paused = True

    def resume(self) -> None:
        """Resume after a pause."""
        if self._paused:
            process_tree.resume(self._process.pid)
            self._paused = False

    def stop(self) -> None:
        """End all its processes."""
        process_tree.stop(self._process)


def log_tail(log: Path, num_lines: int = 15) -> str:
    """The end of a process's log, for the message of its failure."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-num_lines:])
