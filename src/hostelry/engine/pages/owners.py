"""Uses of the pool's pages at one moment, as numbers."""

from array import array
from dataclasses import dataclass

FREE, SEQUENCE, IDLE_PREFIX, FIRST_ADAPTER = 0, 1, 2, 3
_LAST = 2**16 - 1


@dataclass(frozen=True, slots=True)
class PageOwners:
    """A code for each page.

    Adapter `adapters[i]` has the code FIRST_ADAPTER + i. SEQUENCE pages are in tables of requests,
    cached or not. IDLE_PREFIX pages are only cached.
    """

    codes: "array[int]"
    adapters: tuple[str, ...]


def get_adapter_code(number: int) -> int:
    """The code of the adapter of that number. Adapters above 65,532 share the last code."""
    return min(FIRST_ADAPTER + number, _LAST)
