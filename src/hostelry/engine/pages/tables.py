"""Page tables, owners of pages and statistics of the pool, and their integrity checks."""

from array import array
from collections.abc import Iterable, Mapping

import msgspec

from hostelry.engine.pages.prefix import PrefixIndex, PrefixPage


class PageTable(msgspec.Struct, eq=False):
    """A sequence's pages, in order.

    `published[i]` is the cached content of `pages[i]`. Only the first pages are published. Each of
    them is the shared page of its content, or a spare.
    """

    pages: list[int] = msgspec.field(default_factory=list)
    published: list[PrefixPage] = msgspec.field(default_factory=list)

    def unshared_pages(self) -> list[int]:
        """The pages that only this table holds: spares and unpublished pages."""
        published = zip(self.pages, self.published, strict=False)
        spares = [page for page, cached in published if page != cached.page]
        return spares + self.pages[len(self.published) :]


def check_tables(tables: Mapping[str, PageTable], prefixes: PrefixIndex) -> None:
    """Raise AssertionError unless tables and cached pages agree on users and spares."""
    num_users = dict.fromkeys(prefixes, 0)
    spares = {page: cached for cached in prefixes for page in cached.spares}
    for owner, table in tables.items():
        assert table.pages, f"{owner} is listed without pages"
        assert len(table.published) <= len(table.pages), f"{owner} published more than it has"
        parent = None
        for page, cached in zip(table.pages, table.published, strict=False):
            assert cached in num_users, f"page {page} of {owner} is published and not cached"
            assert cached.parent is parent, f"page {page} of {owner} does not follow its parent"
            parent = cached
            if page == cached.page:
                num_users[cached] += 1
            else:
                assert spares.pop(page, None) is cached, f"page {page} of {owner} is not a spare"
    assert not spares, f"pages {sorted(spares)} are spares of no sequence"
    for cached, number in num_users.items():
        assert cached.num_users == number, (
            f"cached page {cached.page} counts {cached.num_users} users; {number} tables hold it"
        )


def check_places(num_pages: int, places: Iterable[tuple[int, str]]) -> None:
    """Raise AssertionError unless each of `num_pages` pages is in exactly one place."""
    seen: dict[int, str] = {}
    for page, place in places:
        assert 0 <= page < num_pages, f"page {page}, {place}, is not of this pool"
        assert page not in seen, f"page {page} is {seen[page]} and {place}"
        seen[page] = place
    missing = [page for page in range(num_pages) if page not in seen]
    assert not missing, f"pages {missing} are nowhere"


FREE, SEQUENCE, IDLE_PREFIX, FIRST_ADAPTER = 0, 1, 2, 3
_LAST = 2**16 - 1


class PageOwners(msgspec.Struct, frozen=True):
    """A code for each page.

    Adapter `adapters[i]` has the code FIRST_ADAPTER + i. SEQUENCE pages are in tables of requests,
    cached or not. IDLE_PREFIX pages are only cached.
    """

    codes: "array[int]"
    adapters: tuple[str, ...]


def get_adapter_code(number: int) -> int:
    """The code of the adapter of that number. Adapters above 65,532 share the last code."""
    return min(FIRST_ADAPTER + number, _LAST)


class PoolCounts(msgspec.Struct):
    """Events since the start. Only the pool itself writes them."""

    num_prefix_hits: int = 0  # pages that `begin` found
    num_prefix_misses: int = 0  # pages that `begin` asked for and did not find
    num_published_pages: int = 0  # complete pages, duplicates included
    num_duplicate_pages: int = 0  # computed although the same content was published meanwhile
    num_adapter_holds: int = 0
    num_adapter_loads: int = 0
    num_evicted_prefix_pages: int = 0
    num_evicted_adapters: int = 0
    num_evicted_adapter_pages: int = 0


class PoolStats(msgspec.Struct, frozen=True, kw_only=True):
    """Pages by use now, and counts since the start.

    `num_pages` = `num_free` + `num_sequence_pages` + `num_idle_prefix_pages` + `num_adapter_pages`.
    Cached pages may be shared, idle or not. Pages of idle adapters are part of the adapters' pages.
    Pinned pages are reserved, with or without the adapter in the pool.
    """

    num_pages: int
    num_free: int
    num_sequence_pages: int
    num_cached_pages: int
    num_idle_prefix_pages: int
    num_adapter_pages: int
    num_idle_adapter_pages: int
    num_pinned_pages: int
    num_sequences: int
    num_adapters: int
    counts: PoolCounts
