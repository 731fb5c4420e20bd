"""Which idle thing in the pool is given up first: one order over prefix pages and adapters.

Each candidate has a priority, and the lowest goes first:

    priority = age + frequency * cost_s / num_pages

- `cost_s` is what its absence would cost the next one who wants it: the time to load an adapter
  again, the time to compute a prefix page again. Divided by its pages it is what a page spent on it
  earns, so that a large adapter is compared fairly with many small ones and with KV pages.
- `frequency` counts uses, the first included; a use counts half after `HALF_LIFE_S`, so that what
  was loved yesterday does not outlive what is loved today.
- `age` is the priority of the last one evicted. It lifts whatever is used later over whatever is
  not used, at the speed at which memory is really short: without pressure nothing ages.

Candidates of equal priority go in the order of their last use. So equal pages used once each are
given up least recently used first. A priority is fixed when its candidate was last used; nothing
has to be recomputed as time passes, which is what lets a heap hold the order.

Source: GreedyDual-Size-Frequency (Cherkasova 1998, HP Labs HPL-98-69), after GreedyDual-Size (Cao
and Irani 1997); frequency, recency and size to keep adapters in idle KV memory: Chameleon
(arXiv:2411.17741). Both kinds in one order is ours: the cost in seconds makes them comparable.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

HALF_LIFE_S = 300.0
"""After this long a use counts half."""

_SLACK = 64


@dataclass(slots=True, eq=False, kw_only=True)
class Candidate:
    """What the order knows of one thing that may become idle."""

    cost_per_page_s: float
    frequency: float = 0.0
    used_at: float = 0.0
    priority: float = 0.0
    use_number: int = 0
    entry_number: int = 0  # of its live entry in the heap; 0: it is not in the order


class EvictionOrder:
    """The idle candidates, lowest priority first; adding, discarding, taking: O(log n) amortised.

    A discarded candidate leaves a dead entry in the heap, which is skipped when it comes up; the
    heap is built anew when more than half of it is dead.
    """

    def __init__(self) -> None:
        self.age = 0.0
        self._heap: list[tuple[float, int, int, Candidate]] = []
        self._num_live = 0
        self._num_uses = 0
        self._num_entries = 0

    def __len__(self) -> int:
        return self._num_live

    def use(self, candidate: Candidate, now: float, weight: float = 1.0) -> None:
        """Count a use that ends at `now` as `weight` uses; it is not in the order meanwhile."""
        # 0.0 first: then a clock that stepped back, and nan, count as no time at all.
        elapsed_s = max(0.0, now - candidate.used_at)
        candidate.frequency = candidate.frequency * 0.5 ** (elapsed_s / HALF_LIFE_S) + weight
        candidate.used_at = now
        candidate.priority = self.age + candidate.frequency * candidate.cost_per_page_s
        self._num_uses += 1
        candidate.use_number = self._num_uses

    def add(self, candidate: Candidate) -> None:
        """From now on it may be taken, at the priority of its last use."""
        self._num_entries += 1
        candidate.entry_number = self._num_entries
        self._num_live += 1
        entry = (candidate.priority, candidate.use_number, self._num_entries, candidate)
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * self._num_live + _SLACK:
            self._heap = [entry for entry in self._heap if _is_live(entry)]
            heapq.heapify(self._heap)

    def discard(self, candidate: Candidate) -> None:
        """It may no longer be taken; nothing happens when it is not in the order."""
        if candidate.entry_number:
            candidate.entry_number = 0
            self._num_live -= 1

    def pop(self) -> Candidate:
        """Take out the first in the order. Raises IndexError when it is empty."""
        while True:
            entry = heapq.heappop(self._heap)
            if _is_live(entry):
                candidate = entry[3]
                self.discard(candidate)
                self.age = max(self.age, candidate.priority)
                return candidate

    def check_integrity(self, expected: Iterable[Candidate]) -> None:
        """Raise AssertionError unless exactly the `expected` candidates are in the order."""
        live = {id(entry[3]) for entry in self._heap if _is_live(entry)}
        wanted = {id(candidate) for candidate in expected}
        assert live == wanted, (
            f"{len(live - wanted)} in the order may not be evicted, "
            f"{len(wanted - live)} that may be are missing from it"
        )
        assert self._num_live == len(live), f"{self._num_live} counted, {len(live)} in the order"


def _is_live(entry: tuple[float, int, int, Candidate]) -> bool:
    return entry[3].entry_number == entry[2]
