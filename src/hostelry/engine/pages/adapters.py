"""Adapters in the pool: their state, holds and pins.

A key is a content id: two versions of one name are two adapters here.

    state     holds  pinned  may be evicted
    --------  -----  ------  ----------------------------
    LOADING   0      either  no
    RESIDENT  > 0    either  no
    RESIDENT  0      yes     no
    RESIDENT  0      no      yes: idle, in the eviction order

A pin reserves pages of the budget once the adapter's size is known, in the pool or not. A pinned
adapter that was dropped keeps its reservation.
"""

from collections.abc import Iterator
from enum import Enum

from hostelry.engine.pages.eviction import Candidate, EvictionOrder


class AdapterState(Enum):
    """The position of an adapter's weights, from far to near.

    The page pool knows `ABSENT`, `LOADING` and `RESIDENT`. The scheduler also tracks transfers into
    host memory. The disk or remote source of an absent adapter is the loader's `StorageTier`.
    """

    ABSENT = "absent"  # neither in host memory nor in the pool
    FETCHING = "fetching"  # named in a plan's fetches, not reported yet
    IN_HOST = "in host memory"
    LOADING = "loading"  # its pages are reserved, the copy into them is in progress
    RESIDENT = "resident"  # its weights are in its pages


class PinBudgetError(Exception):
    """Pinning `adapter` needs `num_pages` pages, and `num_left` of the `budget` are left."""

    def __init__(self, adapter: str, num_pages: int, num_left: int, budget: int) -> None:
        super().__init__(
            f"adapter {adapter} takes {num_pages} pages; {num_left} of the {budget} pages for "
            "pinned adapters are left: unpin another, or raise the budget"
        )
        self.adapter = adapter
        self.num_pages = num_pages
        self.num_left = num_left
        self.budget = budget


class PooledAdapter(Candidate, eq=False, kw_only=True):
    """An adapter that has pages."""

    key: str
    pages: tuple[int, ...]
    is_resident: bool = False
    is_used: bool = False
    num_holds: int = 0


class AdapterPageTable:
    """The adapters that have pages, and the pins. Idle adapters are in the eviction order."""

    def __init__(self, order: EvictionOrder, pin_budget_pages: int) -> None:
        self.num_pages = 0
        self.num_idle_pages = 0
        self.num_pinned_pages = 0
        self.pin_budget_pages = pin_budget_pages
        self._order = order
        self._adapters: dict[str, PooledAdapter] = {}
        self._pins: dict[str, int] = {}  # reserved pages, 0 while the size is unknown

    def __len__(self) -> int:
        return len(self._adapters)

    def __iter__(self) -> Iterator[PooledAdapter]:
        return iter(self._adapters.values())

    def get_state(self, key: str) -> AdapterState:
        """ABSENT without pages, LOADING without weights in them, else RESIDENT."""
        adapter = self._adapters.get(key)
        if adapter is None:
            return AdapterState.ABSENT
        return AdapterState.RESIDENT if adapter.is_resident else AdapterState.LOADING

    def pages(self, key: str) -> tuple[int, ...]:
        """The adapter's pages in ascending order. Empty if it is absent."""
        adapter = self._adapters.get(key)
        return () if adapter is None else adapter.pages

    def check_new(self, key: str, num_pages: int) -> None:
        """Raise ValueError if the adapter has pages, PinBudgetError if its pin is too small."""
        if key in self._adapters:
            raise ValueError(f"adapter {key} is {self.get_state(key).value} already")
        if key in self._pins:
            self._check_budget(key, num_pages)

    def insert(self, key: str, pages: tuple[int, ...], reload_cost_s: float, now: float) -> None:
        """Give a new adapter its pages. It is loading for a request, which counts as a use."""
        adapter = PooledAdapter(cost_per_page_s=reload_cost_s / len(pages), key=key, pages=pages)
        self._order.use(adapter, now)
        self._adapters[key] = adapter
        self.num_pages += len(pages)
        if key in self._pins:
            self._set_reserved(key, len(pages))

    def activate(self, key: str) -> None:
        """Make a loading adapter resident. Raises ValueError unless it is loading."""
        adapter = self._adapters.get(key)
        if adapter is None or adapter.is_resident:
            raise ValueError(f"adapter {key} is {self.get_state(key).value}, not loading")
        adapter.is_resident = True
        self._settle(adapter)

    def remove(self, key: str) -> tuple[int, ...]:
        """Forget an adapter that nothing holds, and return its pages.

        Raises ValueError while held.
        """
        adapter = self._adapters.get(key)
        if adapter is None:
            return ()
        if adapter.num_holds:
            raise ValueError(f"adapter {key} is held {adapter.num_holds} times; unhold it first")
        self._unsettle(adapter)
        return self._forget(adapter)

    def hold(self, key: str) -> None:
        """Count one more hold. Raises ValueError unless it is resident."""
        adapter = self._adapters.get(key)
        if adapter is None or not adapter.is_resident:
            raise ValueError(f"adapter {key} is {self.get_state(key).value}, not resident; load it")
        self._unsettle(adapter)
        adapter.num_holds += 1

    def unhold(self, key: str, now: float) -> None:
        """End one hold, which ends a use. Raises ValueError if it is not held."""
        adapter = self._adapters.get(key)
        if adapter is None or not adapter.num_holds:
            raise ValueError(f"adapter {key} is not held")
        adapter.num_holds -= 1
        self._order.use(adapter, now, 1.0 if adapter.is_used else 0.0)  # the load was the first
        adapter.is_used = True
        self._settle(adapter)

    def pin(self, key: str, num_pages: int) -> None:
        """Reserve pages for an adapter, in the pool or not.

        Pinning again may set its size. Raises PinBudgetError, changing nothing.
        """
        adapter = self._adapters.get(key)
        known = max(num_pages, self._pins.get(key, 0))
        promised = known if adapter is None else len(adapter.pages)
        self._check_budget(key, promised)
        if adapter is not None and key not in self._pins:
            self._unsettle(adapter)
        self._set_reserved(key, promised)

    def unpin(self, key: str) -> None:
        """Give up the reservation, if there is one."""
        if key not in self._pins:
            return
        self.num_pinned_pages -= self._pins.pop(key)
        adapter = self._adapters.get(key)
        if adapter is not None:
            self._settle(adapter)

    def evict(self, adapter: PooledAdapter) -> tuple[int, ...]:
        """Forget an idle adapter popped from the order. Returns its pages, now free."""
        self.num_idle_pages -= len(adapter.pages)
        return self._forget(adapter)

    def find_idle(self) -> list[PooledAdapter]:
        """The idle adapters, found by a scan."""
        return [adapter for adapter in self if self._is_idle(adapter)]

    def check_integrity(self) -> None:
        """Raise AssertionError unless states, holds, pins and counts agree."""
        for key, adapter in self._adapters.items():
            assert adapter.key == key, f"adapter {adapter.key} is found as {key}"
            assert adapter.pages, f"adapter {key} has no pages"
            assert adapter.num_holds >= 0, f"adapter {key} is held {adapter.num_holds} times"
            assert adapter.is_resident or not adapter.num_holds, (
                f"adapter {key} is held {adapter.num_holds} times and not resident"
            )
            assert self._pins.get(key, len(adapter.pages)) == len(adapter.pages), (
                f"adapter {key} has {len(adapter.pages)} pages, its pin {self._pins[key]}"
            )
        num_pages = sum(len(adapter.pages) for adapter in self)
        assert self.num_pages == num_pages, f"{self.num_pages} adapter pages counted of {num_pages}"
        num_idle = sum(len(adapter.pages) for adapter in self.find_idle())
        assert self.num_idle_pages == num_idle, (
            f"{self.num_idle_pages} pages of idle adapters counted of {num_idle}"
        )
        num_pinned = sum(self._pins.values())
        assert self.num_pinned_pages == num_pinned <= self.pin_budget_pages, (
            f"{num_pinned} pages are pinned, {self.num_pinned_pages} counted; "
            f"the budget is {self.pin_budget_pages}"
        )

    def _is_idle(self, adapter: PooledAdapter) -> bool:
        return adapter.is_resident and not adapter.num_holds and adapter.key not in self._pins

    def _settle(self, adapter: PooledAdapter) -> None:
        if self._is_idle(adapter):
            self.num_idle_pages += len(adapter.pages)
            self._order.add(adapter)

    def _unsettle(self, adapter: PooledAdapter) -> None:
        if self._is_idle(adapter):
            self.num_idle_pages -= len(adapter.pages)
            self._order.discard(adapter)

    def _forget(self, adapter: PooledAdapter) -> tuple[int, ...]:
        del self._adapters[adapter.key]
        self.num_pages -= len(adapter.pages)
        return adapter.pages

    def _check_budget(self, key: str, num_pages: int) -> None:
        num_left = self.pin_budget_pages - self.num_pinned_pages + self._pins.get(key, 0)
        if num_pages > num_left:
            raise PinBudgetError(key, num_pages, num_left, self.pin_budget_pages)

    def _set_reserved(self, key: str, num_pages: int) -> None:
        self.num_pinned_pages += num_pages - self._pins.get(key, 0)
        self._pins[key] = num_pages
