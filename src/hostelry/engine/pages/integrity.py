"""Integrity checks over several parts of the pool. Each scans everything."""

from collections.abc import Iterable, Mapping

from hostelry.engine.pages.prefix import PrefixIndex
from hostelry.engine.pages.tables import PageTable


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
