"""Prefix cache: full pages that any sequence with the same beginning may share.

A page's key is a hash of a salt and of all tokens up to the page's end: equal keys mean equal keys
and values. The salt names the contents of base and adapter, so that a replaced adapter never
finds pages that its predecessor computed, whatever its name.

A cached page is in use by one table or more, or idle. A page is cached only together with the page
before it, its parent. A table that uses a page uses its parent, so the descendants of an idle page
are idle too, and evicting leaves first never breaks a chain.

Two sequences may compute the same page at the same time. The first to publish it provides the
shared page. The page of the second is a spare, known to its own table only. If the shared page
loses its last user first, a spare replaces it and the old page is free at once. Therefore no
content occupies two pages longer than tables use both.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence

import msgspec

from hostelry.engine.pages.eviction import Candidate, EvictionOrder

PrefixKey = bytes

_KEY_BYTES = 32


def build_salt(base_id: str, adapter_id: str | None, request_salt: str = "") -> bytes:
    """The salt of pages computed by adapter `adapter_id` (None: no adapter) on base `base_id`.

    Both are content ids, never names. `request_salt` keeps the pages of some requests apart.
    Different arguments give different salts.
    """
    base = base_id.encode()
    adapter = b"-" if adapter_id is None else b"+" + adapter_id.encode()
    own = request_salt.encode()
    lengths = struct.pack("<QQ", len(base), len(own)) if own else struct.pack("<Q", len(base))
    return lengths + base + own + adapter


def hash_pages(salt: bytes, token_ids: Sequence[int], page_tokens: int) -> list[PrefixKey]:
    """The keys of the complete pages of `token_ids`, first page first.

    Raises ValueError when `page_tokens` is below 1 or a token id is not in [0, 2**32).
    """
    if page_tokens < 1:
        raise ValueError(f"page_tokens is {page_tokens}; a page has at least 1 token")
    parent = hash_salt(salt)
    keys = []
    for start in range(0, len(token_ids) - page_tokens + 1, page_tokens):
        parent = hash_page(parent, token_ids[start : start + page_tokens])
        keys.append(parent)
    return keys


def hash_salt(salt: bytes) -> PrefixKey:
    """The key that stands for the parent of a first page."""
    return hashlib.blake2b(salt, digest_size=_KEY_BYTES, person=b"first page").digest()


def hash_page(parent: PrefixKey, token_ids: Sequence[int]) -> PrefixKey:
    """The key of the page with all of `token_ids` that follows the page `parent`.

    Raises ValueError when a token id is not in [0, 2**32).
    """
    try:
        tokens = struct.pack(f"<{len(token_ids)}I", *token_ids)
    except struct.error as error:
        raise ValueError(f"token ids must be whole numbers in [0, 2**32): {error}") from error
    return hashlib.blake2b(parent + tokens, digest_size=_KEY_BYTES).digest()


class PrefixPage(Candidate, eq=False, kw_only=True):
    """One cached page. `num_users` tables hold it. It is idle without users."""

    key: PrefixKey
    page: int
    parent: "PrefixPage | None"
    num_users: int = 1
    num_children: int = 0
    spares: dict[int, None] = msgspec.field(
        default_factory=dict
    )  # pages of equal content, one user each


class PrefixIndex:
    """All cached pages by key. Idle leaves are in the eviction order."""

    def __init__(self, order: EvictionOrder, recompute_cost_s: float) -> None:
        self.num_idle = 0
        self._order = order
        self._recompute_cost_s = recompute_cost_s
        self._pages: dict[PrefixKey, PrefixPage] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def __iter__(self) -> Iterator[PrefixPage]:
        return iter(self._pages.values())

    def find(self, keys: Sequence[PrefixKey]) -> list[PrefixPage]:
        """The cached pages of the longest beginning of `keys`."""
        found: list[PrefixPage] = []
        parent = None
        for key in keys:
            cached = self._pages.get(key)
            if cached is None or cached.parent is not parent:
                break
            found.append(cached)
            parent = cached
        return found

    def take(self, cached: PrefixPage) -> None:
        """Count one more table that holds the page."""
        if not cached.num_users:
            self.num_idle -= 1
            self._order.discard(cached)
        cached.num_users += 1

    def publish(
        self, key: PrefixKey, page: int, parent: PrefixPage | None
    ) -> tuple[PrefixPage, int | None]:
        """Cache `page` under `key`, after `parent`.

        One table holds both pages. Returns the page cached under the key, which may be another page
        of the same content, and the page freed by this, if any. Raises ValueError, changing
        nothing, if the key is cached with another parent: then it is not a hash of the content.
        """
        cached = self._pages.get(key)
        if cached is None:
            cached = PrefixPage(
                cost_per_page_s=self._recompute_cost_s, key=key, page=page, parent=parent
            )
            self._pages[key] = cached
            if parent is not None:
                parent.num_children += 1
            return cached, None
        if cached.parent is not parent:
            raise ValueError(f"the key {key.hex()} is published already, after another page")
        if cached.num_users:
            cached.spares[page] = None
            return cached, None
        freed, cached.page = cached.page, page
        self.take(cached)
        return cached, freed

    def release(self, cached: PrefixPage, page: int, now: float) -> int | None:
        """End one table's use of `page`, of cached content.

        Returns the freed page, if any. A table's pages are released last page first.
        """
        self._order.use(cached, now)
        if page != cached.page:
            del cached.spares[page]
            return page
        cached.num_users -= 1
        if cached.num_users:
            return None
        if cached.spares:
            cached.page, _ = cached.spares.popitem()
            cached.num_users = 1
            return page
        self.num_idle += 1
        if not cached.num_children:
            self._order.add(cached)
        return None

    def evict(self, cached: PrefixPage) -> int:
        """Forget an idle leaf popped from the order. Returns its page, now free."""
        del self._pages[cached.key]
        self.num_idle -= 1
        parent = cached.parent
        if parent is not None:
            parent.num_children -= 1
            if not parent.num_children and not parent.num_users:
                self._order.add(parent)
        return cached.page

    def find_idle_leaves(self) -> list[PrefixPage]:
        """The idle leaves, found by a scan."""
        return [it for it in self if not it.num_users and not it.num_children]

    def check_integrity(self) -> None:
        """Raise AssertionError unless keys, parents and counts agree."""
        num_children = dict.fromkeys(self._pages, 0)
        for key, cached in self._pages.items():
            assert cached.key == key, f"page {cached.page} is found under another key"
            assert cached.num_users or not cached.spares, f"idle page {cached.page} has spares"
            parent = cached.parent
            if parent is None:
                continue
            assert self._pages.get(parent.key) is parent, (
                f"the parent {parent.page} of cached page {cached.page} is not cached"
            )
            assert parent.num_users or not cached.num_users, (
                f"page {cached.page} is in use, its parent {parent.page} is idle"
            )
            num_children[parent.key] += 1
        for key, cached in self._pages.items():
            assert cached.num_children == num_children[key], (
                f"page {cached.page} counts {cached.num_children} children of {num_children[key]}"
            )
        num_idle = sum(not cached.num_users for cached in self)
        assert self.num_idle == num_idle, f"{self.num_idle} idle pages counted of {num_idle}"
        pages = [page for cached in self for page in (cached.page, *cached.spares)]
        assert len(set(pages)) == len(pages), "a page is cached under two keys"
