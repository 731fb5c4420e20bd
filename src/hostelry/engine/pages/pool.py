"""Fixed-size pages, each free or owned by exactly one owner.

The pool hands out page numbers only; the runner holds the tensors behind them. Invariants, checked
by `check_integrity()`: every page is free or in one owner's table, never both and never twice; the
free pages and the owned pages together are all pages.
"""

from collections.abc import Sequence


class OutOfPagesError(Exception):
    """More pages were asked for than are free; nothing was changed."""


class PagePool:
    """`num_pages` pages numbered from 0; an owner's pages keep the order they were given in."""

    def __init__(self, num_pages: int) -> None:
        if num_pages < 1:
            raise ValueError(f"num_pages is {num_pages}; a pool has at least 1")
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))  # last out is first in: warm pages first
        self._tables: dict[str, list[int]] = {}

    @property
    def num_free(self) -> int:
        """Pages nobody owns."""
        return len(self._free)

    def pages(self, owner: str) -> Sequence[int]:
        """The owner's pages, oldest first; empty for an unknown owner. Not to be changed."""
        return self._tables.get(owner, ())

    def grow(self, owner: str, num_pages: int) -> list[int]:
        """Give `owner` further pages until it has `num_pages`; returns the new ones.

        Raises OutOfPagesError, changing nothing, when too few are free.
        """
        missing = num_pages - len(self.pages(owner))
        if missing <= 0:
            return []
        if missing > len(self._free):
            raise OutOfPagesError(f"{owner} needs {missing} more pages; {len(self._free)} are free")
        new = [self._free.pop() for _ in range(missing)]
        self._tables.setdefault(owner, []).extend(new)
        return new

    def release(self, owner: str) -> int:
        """Free all pages of `owner`; returns how many there were."""
        pages = self._tables.pop(owner, [])
        self._free.extend(reversed(pages))
        return len(pages)

    def check_integrity(self) -> None:
        """Raise AssertionError unless every page is free or owned exactly once."""
        seen = list(self._free)
        for pages in self._tables.values():
            seen.extend(pages)
        assert len(seen) == self.num_pages, f"{len(seen)} pages accounted of {self.num_pages}"
        assert set(seen) == set(range(self.num_pages)), "a page is owned twice or unknown"
        assert all(self._tables.values()), "an owner without pages is still listed"
