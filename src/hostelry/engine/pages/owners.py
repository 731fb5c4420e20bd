"""Uses of the pool's pages at one moment, as numbers."""

from array import array
from dataclasses import dataclass

FREE, SEQUENCE, IDLE_PREFIX, FIRST_ADAPTER = 0, 1, 2, 3
_LAST = 2**16 - 1


@dataclass(frozen=True, slots=True)
class PageOwners:
    """A code for each page; adapter `adapters[i]` has the code FIRST_ADAPTER + i.

    SEQUENCE pages are in tables of requests, cached or not; IDLE_PREFIX ones are cached alone.
    """

    codes: "array[int]"
    adapters: tuple[str, ...]


def adapter_code(number: int) -> int:
    """The code of the adapter of that number; beyond 65,532 of them they share the last one."""
    return min(FIRST_ADAPTER + number, _LAST)
