"""Supply of pages: free pages first, then pages of evicted prefixes and adapters."""

from hostelry.engine.pages.adapters import AdapterPageTable, PooledAdapter
from hostelry.engine.pages.eviction import EvictionOrder
from hostelry.engine.pages.prefix import PrefixIndex, PrefixPage
from hostelry.engine.pages.tables import PoolCounts


class OutOfPagesError(Exception):
    """More pages were requested than are free or idle. Nothing was changed."""


class PageSupply:
    """The free pages, and the eviction that frees more.

    `free` ends with the page to be given out next. `evicted` has, in order, the evicted adapters
    that `PagePool.take_evicted` has not returned yet.
    """

    def __init__(
        self,
        num_pages: int,
        order: EvictionOrder,
        prefixes: PrefixIndex,
        adapters: AdapterPageTable,
        counts: PoolCounts,
    ) -> None:
        self.free = list(range(num_pages - 1, -1, -1))  # LIFO: warm pages first
        self.evicted: dict[str, None] = {}
        self._num_pages = num_pages
        self._order = order
        self._prefixes = prefixes
        self._adapters = adapters
        self._counts = counts

    @property
    def num_idle(self) -> int:
        """Pages that eviction would free."""
        return self._prefixes.num_idle + self._adapters.num_idle_pages

    @property
    def num_available(self) -> int:
        """Free and idle pages."""
        return len(self.free) + self.num_idle

    def take(self, owner: str, num_pages: int) -> list[int]:
        """Take `num_pages` >= 1 pages for `owner`, evicting if too few are free.

        Raises OutOfPagesError, changing nothing, if that is not enough.
        """
        free = self.free
        if num_pages > len(free):
            self._evict_until(owner, num_pages)
        if num_pages == 1:
            return [free.pop()]
        new = free[-num_pages:]
        del free[-num_pages:]
        new.reverse()
        return new

    def _evict_until(self, owner: str, num_pages: int) -> None:
        if num_pages > self.num_available:
            raise OutOfPagesError(
                f"{owner} needs {num_pages} more pages; {len(self.free)} of {self._num_pages} are "
                f"free and {self.num_idle} idle"
            )
        while len(self.free) < num_pages:
            candidate = self._order.pop()
            if isinstance(candidate, PrefixPage):
                self.free.append(self._prefixes.evict(candidate))
                self._counts.num_evicted_prefix_pages += 1
            else:
                assert isinstance(candidate, PooledAdapter), (
                    "candidates are prefix pages or adapters"
                )
                self.free += reversed(self._adapters.evict(candidate))
                self.evicted[candidate.key] = None
                self._counts.num_evicted_adapters += 1
                self._counts.num_evicted_adapter_pages += len(candidate.pages)
