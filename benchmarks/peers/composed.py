"""A composition of models in a benchmark: what it is asked, and one that answers."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.peers import process_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Compositions:
    """What is asked of each contestant, in the names of its `Composed.requests`.

    ``call`` and ``slow call`` ask the model itself, the latter so that it waits `sleep_ms`;
    ``scatter`` asks it `branches` times at once with that wait, ``chain N`` N times in turn.
    """

    body: bytes
    sleep_ms: int
    branches: int
    chains: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A contestant that answers: whole HTTP requests to `port`, and processes that work on them."""

    port: int
    requests: Mapping[str, bytes]
    pids: tuple[int, ...]

    @property
    def cpu_s(self) -> float:
        """Processor time of all its processes so far."""
        return sum(process_tree.cpu_s(pid) for pid in self.pids)
