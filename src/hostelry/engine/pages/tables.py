"""The pages of one sequence, in order; the first of them are published."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hostelry.engine.pages.prefix import PrefixIndex, PrefixPage


@dataclass(slots=True, eq=False)
class Table:
    """A sequence's pages; what `published[i]` says of the content of `pages[i]`.

    The first `num_found` were found in the cache when the sequence began. A published page is the
    shared page of its content, or a spare of it.
    """

    pages: list[int] = field(default_factory=list)
    published: list[PrefixPage] = field(default_factory=list)
    num_found: int = 0

    def unshared_pages(self) -> list[int]:
        """The pages that only this table knows: spares, and what is not published."""
        published = zip(self.pages, self.published, strict=False)
        spares = [page for page, cached in published if page != cached.page]
        return spares + self.pages[len(self.published) :]


def check_tables(tables: Mapping[str, Table], prefixes: PrefixIndex) -> None:
    """Raise AssertionError unless tables and cached pages agree on who uses what."""
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
                assert spares.pop(page, None) is cached, f"page {page} of {owner} is no spare"
    assert not spares, f"pages {sorted(spares)} are spares of no sequence"
    for cached, number in num_users.items():
        assert cached.num_users == number, (
            f"cached page {cached.page} counts {cached.num_users} users; {number} tables hold it"
        )
