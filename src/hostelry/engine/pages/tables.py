"""Page tables of sequences."""

from dataclasses import dataclass, field

from hostelry.engine.pages.prefix import PrefixPage


@dataclass(slots=True, eq=False)
class PageTable:
    """A sequence's pages, in order.

    `published[i]` is the cached content of `pages[i]`. Only the first pages are published. Each of
    them is the shared page of its content, or a spare.
    """

    pages: list[int] = field(default_factory=list)
    published: list[PrefixPage] = field(default_factory=list)

    def unshared_pages(self) -> list[int]:
        """The pages that only this table holds: spares and unpublished pages."""
        published = zip(self.pages, self.published, strict=False)
        spares = [page for page, cached in published if page != cached.page]
        return spares + self.pages[len(self.published) :]
