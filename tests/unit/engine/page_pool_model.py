"""A page pool next to a naive model of it. Every call goes to both, and both must agree.

The model knows the required contents of each page, the refused calls, and the number of available
pages. It finds the next eviction by looking at everything each time. Here the key of a page is the
whole path of pages up to it, so that the key shows the contents of the page.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from hostelry.engine.pages.adapters import AdapterState
from hostelry.engine.pages.eviction import HALF_LIFE_S
from hostelry.engine.pages.unified import OutOfPagesError, PagePool, PinBudgetError

PAGE_COST_S = 0.01
NOWHERE = "nothing was written"


@dataclass(eq=False)
class Score:
    """The priority of an entry, as defined in the module docstring of `eviction`."""

    cost_per_page_s: float
    frequency: float = 0.0
    used_at: float = 0.0
    priority: float = 0.0
    use_number: int = 0


@dataclass(eq=False)
class Content:
    """A published page, and the owners that hold it or a page with equal content."""

    score: Score
    holders: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Sequence:
    """The path of an owner's pages, and the number of its published pages."""

    path: bytes
    num_published: int


@dataclass(eq=False)
class Weights:
    """An adapter that has pages."""

    num_pages: int
    score: Score
    resident: bool = False
    used: bool = False
    num_holds: int = 0


class ModelledPool:
    """The pool under test and its model. Each method makes a call on both."""

    def __init__(self, num_pages: int, pin_budget_pages: int) -> None:
        self.pool = PagePool(
            num_pages, pin_budget_pages=pin_budget_pages, recompute_cost_s=PAGE_COST_S
        )
        self.budget = pin_budget_pages
        self.now = 0.0
        self.memory: list[object] = [NOWHERE] * num_pages
        self.sequences: dict[str, Sequence] = {}
        self.contents: dict[bytes, Content] = {}
        self.adapters: dict[str, Weights] = {}
        self.pins: dict[str, int] = {}
        self.evicted: list[str] = []
        self._age = 0.0
        self._num_uses = 0

    # Calls

    def begin(self, owner: str, path: bytes) -> None:
        """Begin `owner` with keys for all prefixes of `path`."""
        keys = [path[: length + 1] for length in range(len(path))]
        if self.pool.pages(owner):
            self._refused(ValueError, lambda: self.pool.begin(owner, keys))
            return
        num_found = 0
        while num_found < len(keys) and keys[num_found] in self.contents:
            num_found += 1
        assert self.pool.count_shared(keys) == num_found
        assert self.pool.begin(owner, keys) == num_found
        for key in keys[:num_found]:
            self.contents[key].holders.add(owner)
        self.sequences[owner] = Sequence(path, num_found)

    def grow(self, owner: str, num_pages: int) -> None:
        """Grow `owner` to `num_pages`, which may be too many."""
        sequence = self.sequences.setdefault(owner, Sequence(b"", 0))
        before = list(self.pool.pages(owner))
        missing = num_pages - len(before)
        if missing > self.num_available():
            self._refused(OutOfPagesError, lambda: self.pool.grow(owner, num_pages, self.now))
            return
        self._make_room(missing)
        new = self.pool.grow(owner, num_pages, self.now)
        assert len(new) == max(missing, 0)
        assert list(self.pool.pages(owner)) == before + new
        sequence.path += bytes(max(0, num_pages - len(sequence.path)))
        for index, page in enumerate(new, start=len(before)):
            self.memory[page] = sequence.path[: index + 1]

    def publish(self, owner: str, index: int) -> None:
        """Publish the `index`-th page of `owner`, which may be missing, too early or published."""
        sequence = self.sequences.get(owner)
        num_pages = len(self.pool.pages(owner))
        if sequence is None or not index < num_pages or index > sequence.num_published:
            self._refused(ValueError, lambda: self.pool.publish(owner, index, b"any"))
            return
        key = sequence.path[: index + 1]
        self.pool.publish(owner, index, key)
        if index == sequence.num_published:
            sequence.num_published += 1
            content = self.contents.setdefault(key, Content(Score(PAGE_COST_S)))
            content.holders.add(owner)

    def release(self, owner: str) -> None:
        """Release `owner`, which may hold nothing."""
        self.pool.release(owner, self.now)
        sequence = self.sequences.pop(owner, Sequence(b"", 0))
        for index in reversed(range(sequence.num_published)):
            content = self.contents[sequence.path[: index + 1]]
            self._use(content.score, 1.0)
            content.holders.remove(owner)
        assert not self.pool.pages(owner)

    def reserve(self, key: str, num_pages: int, cost_s: float = 0.01) -> None:
        """Reserve pages for an adapter that may have some, be pinned, or be too large."""

        def call() -> tuple[int, ...]:
            return self.pool.reserve_adapter(key, num_pages, reload_cost_s=cost_s, now=self.now)

        if num_pages < 1 or key in self.adapters:
            self._refused(ValueError, call)
        elif key in self.pins and self._pinned_with(key, num_pages) > self.budget:
            self._refused(PinBudgetError, call)
        elif num_pages > self.num_available():
            self._refused(OutOfPagesError, call)
        else:
            self._make_room(num_pages)
            pages = call()
            assert list(pages) == sorted(set(pages))
            assert len(pages) == num_pages
            weights = Weights(num_pages, Score(cost_s / num_pages))
            self._use(weights.score, 1.0)
            self.adapters[key] = weights
            if key in self.pins:
                self.pins[key] = num_pages
            self.evicted = [it for it in self.evicted if it != key]
            for page in pages:
                self.memory[page] = key

    def activate(self, key: str) -> None:
        """Activate an adapter, which may not be loading."""
        weights = self.adapters.get(key)
        if weights is None or weights.resident:
            self._refused(ValueError, lambda: self.pool.activate_adapter(key))
        else:
            self.pool.activate_adapter(key)
            weights.resident = True

    def drop(self, key: str) -> None:
        """Drop an adapter, which may be absent or held."""
        if key in self.adapters and self.adapters[key].num_holds:
            self._refused(ValueError, lambda: self.pool.drop_adapter(key))
        else:
            self.pool.drop_adapter(key)
            self.adapters.pop(key, None)

    def hold(self, key: str) -> None:
        """Hold an adapter, which may not be resident."""
        weights = self.adapters.get(key)
        if weights is None or not weights.resident:
            self._refused(ValueError, lambda: self.pool.hold_adapter(key))
        else:
            self.pool.hold_adapter(key)
            weights.num_holds += 1

    def unhold(self, key: str) -> None:
        """Unhold an adapter, which may not be held."""
        weights = self.adapters.get(key)
        if weights is None or not weights.num_holds:
            self._refused(ValueError, lambda: self.pool.unhold_adapter(key, self.now))
        else:
            self.pool.unhold_adapter(key, self.now)
            weights.num_holds -= 1
            self._use(weights.score, 1.0 if weights.used else 0.0)
            weights.used = True

    def pin(self, key: str, num_pages: int) -> None:
        """Pin an adapter, perhaps again, or over the budget."""
        known = self.adapters.get(key)
        promised = max(num_pages, self.pins.get(key, 0)) if known is None else known.num_pages
        if num_pages < 0:
            self._refused(ValueError, lambda: self.pool.pin_adapter(key, num_pages))
        elif self._pinned_with(key, promised) > self.budget:
            self._refused(PinBudgetError, lambda: self.pool.pin_adapter(key, num_pages))
        else:
            self.pool.pin_adapter(key, num_pages)
            self.pins[key] = promised

    def unpin(self, key: str) -> None:
        """Unpin an adapter, which may not be pinned."""
        self.pool.unpin_adapter(key)
        self.pins.pop(key, None)

    def take_evicted(self) -> None:
        """Take the evicted adapters, in order."""
        assert self.pool.take_evicted() == self.evicted
        self.evicted = []

    # Invariants

    def num_free(self) -> int:
        """The number of pages that no owner holds, counted from the holders."""
        held = {page for owner in self.sequences for page in self.pool.pages(owner)}
        idle = [content for content in self.contents.values() if not content.holders]
        num_adapter_pages = sum(weights.num_pages for weights in self.adapters.values())
        return len(self.memory) - len(held) - len(idle) - num_adapter_pages

    def num_available(self) -> int:
        """Free pages, and the pages of idle contents and idle adapters."""
        idle = [content for content in self.contents.values() if not content.holders]
        return self.num_free() + len(idle) + sum(it.num_pages for _, it in self._idle_adapters())

    def check(self) -> None:
        """Assert that pool and model agree on all visible state, and no page was overwritten."""
        pool = self.pool
        pool.check_integrity()
        assert pool.num_free == self.num_free()
        assert pool.num_available == self.num_available() == pool.num_free + pool.num_idle
        assert pool.num_cached_pages == len(self.contents)
        assert pool.num_pinned_pages == sum(self.pins.values())
        assert pool.num_adapter_pages == sum(it.num_pages for it in self.adapters.values())
        for owner, sequence in self.sequences.items():
            for index, page in enumerate(pool.pages(owner)):
                assert self.memory[page] == sequence.path[: index + 1]
        for key, weights in self.adapters.items():
            state = AdapterState.RESIDENT if weights.resident else AdapterState.LOADING
            assert pool.adapter_state(key) is state
            assert [self.memory[page] for page in pool.adapter_pages(key)] == (
                [key] * weights.num_pages
            )

    def give_everything_back(self) -> None:
        """Release everything. Afterwards one owner can have all pages."""
        for owner in list(self.sequences):
            self.release(owner)
        for key, weights in list(self.adapters.items()):
            while weights.num_holds:
                self.unhold(key)
            if not weights.resident:
                self.drop(key)
        for key in list(self.pins):
            self.unpin(key)
        self.check()
        self.grow("last", len(self.memory))
        self.check()
        assert self.pool.num_available == 0

    # Helpers of the model

    def _refused(self, error: type[Exception], call: Callable[[], object]) -> None:
        before = self.pool.stats()
        with pytest.raises(error):
            call()
        assert self.pool.stats() == before

    def _pinned_with(self, key: str, num_pages: int) -> int:
        return sum((self.pins | {key: num_pages}).values())

    def _use(self, score: Score, weight: float) -> None:
        elapsed_s = self.now - score.used_at
        score.frequency = score.frequency * 0.5 ** (elapsed_s / HALF_LIFE_S) + weight
        score.used_at = self.now
        score.priority = self._age + score.frequency * score.cost_per_page_s
        self._num_uses += 1
        score.use_number = self._num_uses

    def _idle_adapters(self) -> Iterator[tuple[str, Weights]]:
        for key, weights in self.adapters.items():
            if weights.resident and not weights.num_holds and key not in self.pins:
                yield key, weights

    def _make_room(self, num_pages: int) -> None:
        num_free = self.num_free()
        while num_free < num_pages:
            num_free += self._evict()

    def _evict(self) -> int:
        parents = {key[:-1] for key in self.contents}
        candidates: list[tuple[Score, bytes | str]] = [
            (content.score, key)
            for key, content in self.contents.items()
            if not content.holders and key not in parents
        ]
        candidates += [(weights.score, key) for key, weights in self._idle_adapters()]
        score, key = min(candidates, key=lambda it: (it[0].priority, it[0].use_number))
        self._age = max(self._age, score.priority)
        if isinstance(key, bytes):
            del self.contents[key]
            return 1
        self.evicted.append(key)
        return self.adapters.pop(key).num_pages


def pool_in_use() -> PagePool:
    """12 pages: `writer` has two, two are idle, `on` is held, `off` idle, `wait` loading."""
    pool = PagePool(12, pin_budget_pages=3)
    pool.grow("reader", 2, 0.0)
    pool.publish("reader", 0, b"first")
    pool.publish("reader", 1, b"second")
    pool.release("reader", 1.0)
    pool.grow("writer", 2, 1.0)
    pool.publish("writer", 0, b"other")
    for key, num_pages in (("on", 2), ("off", 2), ("wait", 1)):
        pool.reserve_adapter(key, num_pages, reload_cost_s=0.01, now=1.0)
    pool.activate_adapter("on")
    pool.activate_adapter("off")
    pool.hold_adapter("on")
    pool.check_integrity()
    return pool
