"""Search for markers in text that arrives in pieces."""

from collections.abc import Sequence
from dataclasses import dataclass

PIECE_CHARACTERS = 4096  # searched at once, as a search may go to the end of what is held


@dataclass(frozen=True, slots=True)
class Cut:
    """Text before the first marker, that marker (None: none is complete), and what follows.

    Without a marker `after` is the end of the text that may begin one.
    """

    before: str
    marker: str | None
    after: str


def cut_at(text: str, markers: Sequence[str]) -> Cut:
    """`text` at its first marker; no marker may be the beginning of another."""
    found = [(start, marker) for marker in markers if (start := text.find(marker)) >= 0]
    if found:
        start, marker = min(found)
        return Cut(text[:start], marker, text[start + len(marker) :])
    kept = len(text) - num_begun(text, markers)
    return Cut(text[:kept], None, text[kept:])


def num_begun(text: str, markers: Sequence[str]) -> int:
    """Length of the longest end of `text` that is the beginning of a marker."""
    longest = max((len(marker) for marker in markers), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        end = text[len(text) - length :]
        if any(marker.startswith(end) for marker in markers):
            return length
    return 0
