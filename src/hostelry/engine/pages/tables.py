"""The pages of one sequence, in order; the first of them are published."""

from dataclasses import dataclass, field

from hostelry.engine.pages.prefix import PrefixPage


@dataclass(slots=True, eq=False)
class PageTable:
    """A sequence's pages; what `published[i]` says of the content of `pages[i]`.

    A published page is the shared page of its content, or a spare of it.
    """

    pages: list[int] = field(default_factory=list)
    published: list[PrefixPage] = field(default_factory=list)

    def unshared_pages(self) -> list[int]:
        """The pages that only this table knows: spares, and what is not published."""
        published = zip(self.pages, self.published, strict=False)
        spares = [page for page, cached in published if page != cached.page]
        return spares + self.pages[len(self.published) :]
