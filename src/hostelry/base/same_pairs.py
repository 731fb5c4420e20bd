"""Pairs of unchanging objects that were compared, by their identity: none is compared twice."""

from collections.abc import Hashable
from typing import Any

MAX_PAIRS = 100_000


class SamePairs:
    """By key, the last two objects that were found to match; thread-safe.

    Both are kept alive, so that no other object can have their identity; so a key must be of
    something that lasts, whose objects are replaced.
    """

    def __init__(self, max_pairs: int = MAX_PAIRS) -> None:
        self._pairs: dict[Hashable, tuple[Any, Any]] = {}
        self._max_pairs = max_pairs

    def match_of(self, key: Hashable, one: Any) -> Any | None:
        """What this very object was found to match; None: nothing known."""
        known = self._pairs.get(key)
        return None if known is None or known[0] is not one else known[1]

    def add(self, key: Hashable, one: Any, other: Any) -> None:
        """Note that both match."""
        if len(self._pairs) >= self._max_pairs:
            self._pairs = {}
        self._pairs[key] = (one, other)
