"""Eviction order of the pool's idle prefix pages and adapters.

Each candidate has a priority, and the lowest is evicted first:

    priority = age + frequency * cost_s / num_pages

- `cost_s` is the cost of a miss: the time to load an adapter again, or to compute a prefix page
  again. Divided by its pages it is the benefit of each page, so that a large adapter is compared
  fairly with many small ones and with KV pages.
- `frequency` counts uses, the first included. A use counts half after `HALF_LIFE_S`, so that
  adapters popular yesterday do not outlive those popular today.
- `age` is the priority of the last evicted candidate. It raises recently used candidates over
  unused ones as fast as memory is needed. Without evictions nothing ages.

    of two candidates                                   evicted first
    --------------------------------------------------  -----------------------------------------
    equal cost, pages and frequency                     the least recently used
    one is cheaper to have again, per page              the cheaper one
    one was used more often lately                      the other
    an unused one that is dear, after many evictions    the dear one: `age` has overtaken it

A priority is fixed at the candidate's last use. It does not change as time passes, so that a heap
can hold the order.

Source: GreedyDual-Size-Frequency (Cherkasova 1998, HP Labs HPL-98-69), after GreedyDual-Size (Cao
and Irani 1997). Frequency, recency and size to keep adapters in idle KV memory: Chameleon
(arXiv:2411.17741). One order over both kinds, by cost in seconds, is our own.
"""

import heapq
from collections.abc import Iterable

import msgspec

HALF_LIFE_S = 300.0
"""After this long a use counts half."""

_SLACK = 64


class Candidate(msgspec.Struct, eq=False, kw_only=True):
    """A prefix page or adapter, as the order sees it, whether idle or not."""

    cost_per_page_s: float
    frequency: float = 0.0
    used_at: float = 0.0
    priority: float = 0.0
    use_number: int = 0
    entry_number: int = 0  # of its live entry in the heap. 0: not in the order


class EvictionOrder:
    """The idle candidates, lowest priority first.

    Every operation is O(log n) amortised. A discarded candidate leaves a dead entry in the heap,
    which `pop` skips. The heap is rebuilt if more than half of it is dead.
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
        """Count a use that ends at `now` as `weight` uses. The candidate is not in the order."""
        # 0.0 first: then a clock that stepped back, and nan, count as no time at all.
        elapsed_s = max(0.0, now - candidate.used_at)
        candidate.frequency = candidate.frequency * 0.5 ** (elapsed_s / HALF_LIFE_S) + weight
        candidate.used_at = now
        candidate.priority = self.age + candidate.frequency * candidate.cost_per_page_s
        self._num_uses += 1
        candidate.use_number = self._num_uses

    def add(self, candidate: Candidate) -> None:
        """Add a candidate, at the priority of its last use."""
        self._num_entries += 1
        candidate.entry_number = self._num_entries
        self._num_live += 1
        entry = (candidate.priority, candidate.use_number, self._num_entries, candidate)
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * self._num_live + _SLACK:
            self._heap = [entry for entry in self._heap if _is_live(entry)]
            heapq.heapify(self._heap)

    def discard(self, candidate: Candidate) -> None:
        """Remove a candidate, if it is in the order."""
        if candidate.entry_number:
            candidate.entry_number = 0
            self._num_live -= 1

    def pop(self) -> Candidate:
        """Remove and return the first candidate. Raises IndexError if the order is empty."""
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
        idle = {id(candidate) for candidate in expected}
        assert live == idle, (
            f"{len(live - idle)} in the order may not be evicted, "
            f"{len(idle - live)} that may be are missing from it"
        )
        assert self._num_live == len(live), f"{self._num_live} counted, {len(live)} in the order"


def _is_live(entry: tuple[float, int, int, Candidate]) -> bool:
    return entry[3].entry_number == entry[2]
