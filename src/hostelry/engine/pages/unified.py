"""One pool of equal pages for sequences, cached prefixes and adapters, and the owners of pages.

The pool hands out page numbers and knows nothing of the tensors behind them. Idle pages are its
warm cache: they count as available, and are evicted, in one order over prefix pages and adapters
(`eviction.py`), if free pages are short. Nothing in use is evicted: neither a page of a table, nor
an adapter that is loading, held or pinned.

Invariants, checked by `check_integrity()`:
1. Each page is exactly one of: free, in tables of sequences, an idle prefix page, of one adapter.
   Their numbers add up to the number of pages.
2. A page is in several tables only if it is cached. Its number of users is the number of tables.
3. A key leads to one page, and a page has at most one key. The parent of a cached page is cached,
   and in use if the page is in use.
4. A table's published pages are its first ones, in order, each the parent of the next.
5. The eviction order holds exactly the idle prefix pages without children and the idle adapters.
   Evicting from it reaches every idle page, so that free + idle pages are always available.
6. Held adapters are resident. Loading adapters are neither held nor idle. Pinned pages are within
   the budget.
"""

import math
from array import array
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from hostelry.engine.pages.adapters import AdapterPageTable, AdapterState, PinBudgetError
from hostelry.engine.pages.eviction import EvictionOrder
from hostelry.engine.pages.prefix import PrefixIndex, PrefixKey
from hostelry.engine.pages.supply import OutOfPagesError, PageSupply
from hostelry.engine.pages.tables import (
    FREE,
    IDLE_PREFIX,
    SEQUENCE,
    PageOwners,
    PageTable,
    PoolCounts,
    PoolStats,
    check_places,
    check_tables,
    get_adapter_code,
)

__all__ = ["OutOfPagesError", "PagePool", "PinBudgetError", "PoolStats"]


class PagePool:
    """`num_pages` pages numbered from 0.

    `pin_budget_pages` bounds the pages of all pinned adapters. `recompute_cost_s` is the time to
    compute one page of a prompt, which a cached page saves.
    """

    def __init__(
        self, num_pages: int, *, pin_budget_pages: int = 0, recompute_cost_s: float = 0.01
    ) -> None:
        if num_pages < 1:
            raise ValueError(f"num_pages is {num_pages}; a pool has at least 1")
        if not 0 <= pin_budget_pages <= num_pages:
            raise ValueError(f"pin_budget_pages is {pin_budget_pages}; allowed: 0 to {num_pages}")
        _check_cost("recompute_cost_s", recompute_cost_s)
        self.num_pages = num_pages
        self._tables: dict[str, PageTable] = {}
        self._order = EvictionOrder()
        self._prefixes = PrefixIndex(self._order, recompute_cost_s)
        self._adapters = AdapterPageTable(self._order, pin_budget_pages)
        self._counts = PoolCounts()
        self._supply = PageSupply(
            num_pages, self._order, self._prefixes, self._adapters, self._counts
        )

    # Sequences

    def begin(self, owner: str, keys: Sequence[PrefixKey]) -> int:
        """Start the table of `owner` with the cached pages of the longest beginning of `keys`.

        Returns their number. Raises ValueError if `owner` has pages already.
        """
        if owner in self._tables:
            raise ValueError(f"{owner} has pages already; release them before it begins again")
        found = self._prefixes.find(keys)
        self._counts.num_prefix_hits += len(found)
        self._counts.num_prefix_misses += len(keys) - len(found)
        if found:
            for cached in found:
                self._prefixes.take(cached)
            self._tables[owner] = PageTable([cached.page for cached in found], found)
        return len(found)

    def count_shared(self, keys: Sequence[PrefixKey]) -> int:
        """The number of pages that `begin` would find."""
        return len(self._prefixes.find(keys))

    def grow(self, owner: str, num_pages: int, now: float) -> list[int]:
        """Give `owner` further pages until it has `num_pages`.

        Returns the new pages. Idle pages and adapters are evicted as needed. Raises
        OutOfPagesError, changing nothing, if that is not enough, and ValueError for a negative
        number.
        """
        table = self._tables.get(owner)
        missing = num_pages if table is None else num_pages - len(table.pages)
        if missing <= 0:
            if num_pages < 0:
                raise ValueError(f"{owner} cannot have {num_pages} pages")
            return []
        new = self._supply.take(owner, missing)
        if table is None:
            table = self._tables[owner] = PageTable()
        table.pages += new
        return new

    def publish(self, owner: str, index: int, key: PrefixKey) -> None:
        """Share the `index`-th page of `owner`, which is complete and never written again.

        Pages are published in order. If the content is published already, the published page stays
        shared. Raises ValueError if the owner has no such page, if an earlier page is not
        published, or if the page or the key is published with other content.
        """
        table = self._tables.get(owner)
        num_pages = 0 if table is None else len(table.pages)
        if table is None or not 0 <= index < num_pages:
            raise ValueError(f"{owner} has {num_pages} pages; there is no page {index} to publish")
        published = table.published
        if index < len(published):
            if published[index].key != key:
                raise ValueError(f"page {index} of {owner} is published with another key")
            return
        if index > len(published):
            raise ValueError(f"page {index} of {owner} is published before page {len(published)}")
        parent = published[-1] if published else None
        page = table.pages[index]
        cached, freed = self._prefixes.publish(key, page, parent)
        published.append(cached)
        self._counts.num_published_pages += 1
        if freed is not None:
            self._supply.free.append(freed)
        self._counts.num_duplicate_pages += freed is not None or cached.page != page

    def release(self, owner: str, now: float) -> None:
        """Release all pages of `owner`.

        Published pages stay as idle cache, the others are free. No effect for an owner without
        pages.
        """
        table = self._tables.pop(owner, None)
        if table is None:
            return
        published = table.published
        self._supply.free += table.pages[len(published) :][::-1]
        for index in range(len(published) - 1, -1, -1):
            freed = self._prefixes.release(published[index], table.pages[index], now)
            if freed is not None:
                self._supply.free.append(freed)

    def pages(self, owner: str) -> Sequence[int]:
        """The owner's pages in order.

        Empty for an unknown owner. Not to be changed. The page at an index stays the same as long
        as the owner has it.
        """
        table = self._tables.get(owner)
        return () if table is None else table.pages

    # Adapters

    def reserve_adapter(
        self, key: str, num_pages: int, *, reload_cost_s: float, now: float
    ) -> tuple[int, ...]:
        """Give an absent adapter its pages, in ascending order.

        It is then LOADING. `reload_cost_s` is the time to load it again. Raises, changing nothing,
        OutOfPagesError if too few pages are free or idle, PinBudgetError if it is pinned and
        exceeds the budget, and ValueError if it has pages already or a number is out of range.
        """
        if num_pages < 1:
            raise ValueError(f"adapter {key} cannot have {num_pages} pages")
        _check_cost(f"reload_cost_s of adapter {key}", reload_cost_s)
        self._adapters.check_new(key, num_pages)
        pages = tuple(sorted(self._supply.take(f"adapter {key}", num_pages)))
        self._adapters.insert(key, pages, reload_cost_s, now)
        self._supply.evicted.pop(key, None)
        self._counts.num_adapter_loads += 1
        return pages

    def activate_adapter(self, key: str) -> None:
        """Make an adapter RESIDENT, whose weights are in its pages. Raises ValueError otherwise."""
        self._adapters.activate(key)

    def drop_adapter(self, key: str) -> None:
        """Release an adapter's pages, if it has any.

        A pin stays. Raises ValueError while held. Nothing may write to its pages any more: they may
        be given to another owner at once.
        """
        self._supply.free += reversed(self._adapters.remove(key))

    def hold_adapter(self, key: str) -> None:
        """Keep an adapter while a request uses it. Raises ValueError unless it is resident."""
        self._adapters.hold(key)
        self._counts.num_adapter_holds += 1

    def unhold_adapter(self, key: str, now: float) -> None:
        """End one hold of an adapter. Raises ValueError if it is not held."""
        self._adapters.unhold(key, now)

    def pin_adapter(self, key: str, num_pages: int = 0) -> None:
        """Keep an adapter once it is resident.

        `num_pages` is its size if it has no pages yet. Pinning again changes nothing else. Raises
        PinBudgetError, changing nothing, if all pins together would exceed the budget, and
        ValueError for a negative size.
        """
        if num_pages < 0:
            raise ValueError(f"adapter {key} cannot have {num_pages} pages")
        self._adapters.pin(key, num_pages)

    def unpin_adapter(self, key: str) -> None:
        """Make an adapter evictable when idle. No effect if it is not pinned."""
        self._adapters.unpin(key)

    def adapter_state(self, key: str) -> AdapterState:
        """ABSENT (no pages), LOADING or RESIDENT."""
        return self._adapters.get_state(key)

    def adapter_pages(self, key: str) -> tuple[int, ...]:
        """The adapter's pages in ascending order. Empty if it is absent."""
        return self._adapters.pages(key)

    def take_evicted(self) -> list[str]:
        """The adapters evicted since the last call and not given pages again, in that order."""
        evicted = list(self._supply.evicted)
        self._supply.evicted.clear()
        return evicted

    # Numbers

    @property
    def num_free(self) -> int:
        """Pages that hold nothing."""
        return len(self._supply.free)

    @property
    def num_idle(self) -> int:
        """Pages of idle prefixes and adapters, which can be evicted."""
        return self._supply.num_idle

    @property
    def num_available(self) -> int:
        """Free and idle pages: the most that can be taken."""
        return self._supply.num_available

    @property
    def num_cached_pages(self) -> int:
        """Pages that `begin` may find, in use or idle."""
        return len(self._prefixes)

    @property
    def num_adapter_pages(self) -> int:
        """Pages of all adapters, loading and resident."""
        return self._adapters.num_pages

    @property
    def pin_budget_pages(self) -> int:
        """The most pages of all pinned adapters."""
        return self._adapters.pin_budget_pages

    @property
    def num_pinned_pages(self) -> int:
        """Pages reserved for pinned adapters, in the pool or not."""
        return self._adapters.num_pinned_pages

    def stats(self) -> PoolStats:
        """All numbers as one value."""
        num_idle = self._prefixes.num_idle
        num_adapter_pages = self._adapters.num_pages
        return PoolStats(
            num_pages=self.num_pages,
            num_free=len(self._supply.free),
            num_sequence_pages=self.num_pages
            - len(self._supply.free)
            - num_idle
            - num_adapter_pages,
            num_cached_pages=len(self._prefixes),
            num_idle_prefix_pages=num_idle,
            num_adapter_pages=num_adapter_pages,
            num_idle_adapter_pages=self._adapters.num_idle_pages,
            num_pinned_pages=self._adapters.num_pinned_pages,
            num_sequences=len(self._tables),
            num_adapters=len(self._adapters),
            counts=replace(self._counts),
        )

    def owners(self) -> PageOwners:
        """The use of each page now. Takes about 30 ns per page."""
        codes = array("H", (SEQUENCE,)) * self.num_pages
        for page in self._supply.free:
            codes[page] = FREE
        if self._prefixes.num_idle:
            for cached in self._prefixes:
                if not cached.num_users:
                    codes[cached.page] = IDLE_PREFIX
        keys = [adapter.key for adapter in self._adapters]
        for number, adapter in enumerate(self._adapters):
            code = get_adapter_code(number)
            for page in adapter.pages:
                codes[page] = code
        return PageOwners(codes, tuple(keys))

    def check_integrity(self) -> None:
        """Raise AssertionError, naming the fault, unless all invariants above hold."""
        self._prefixes.check_integrity()
        self._adapters.check_integrity()
        self._order.check_integrity(
            [*self._prefixes.find_idle_leaves(), *self._adapters.find_idle()]
        )
        check_tables(self._tables, self._prefixes)
        check_places(self.num_pages, self._places())

    def _places(self) -> Iterator[tuple[int, str]]:
        """Each page with its place. A page that several tables share is in the cache, once."""
        yield from ((page, "free") for page in self._supply.free)
        yield from ((cached.page, "cached") for cached in self._prefixes)
        for adapter in self._adapters:
            yield from ((page, f"of adapter {adapter.key}") for page in adapter.pages)
        for owner, table in self._tables.items():
            yield from ((page, f"of {owner}") for page in table.unshared_pages())


def _check_cost(what: str, cost_s: float) -> None:
    if not 0 <= cost_s < math.inf:
        raise ValueError(f"{what} is {cost_s}; seconds are finite and not negative")
