"""A composition of models in a benchmark: its requests, and a contestant that answers them."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.peers import process_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Compositions:
    """The requests to each contestant, by the names of its `Composed.requests`.

    ``call`` and ``slow call`` call the model itself, the slow one after `sleep_ms`. ``scatter``
    makes `branches` slow calls at once, and ``chain N`` makes N calls in turn.
    """

    body: bytes
    sleep_ms: int
    branches: int
    chains: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A contestant: whole HTTP requests to `port`, and the processes that work on them."""

    port: int
    requests: Mapping[str, bytes]
    pids: tuple[int, ...]

    @property
    def cpu_s(self) -> float:
        """Processor time of all its processes so far."""
        return sum(process_tree.cpu_s(pid) for pid in self.pids)
