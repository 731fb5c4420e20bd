"""How many requests are under way on each copy: from the choice of it until the last byte."""

from collections.abc import Callable, Iterable
from typing import Protocol


class InFlightCounts(Protocol):
    """Requests under way per copy, of one gateway worker or of all of them together."""

    @property
    def total(self) -> int:
        """Requests under way on all copies."""
        ...

    def of(self, copy_id: str) -> int:
        """Requests under way on that copy."""
        ...

    def reserve(self, copy_id: str) -> Callable[[], None]:
        """Count one more; returns the function that gives the place back (once)."""
        ...

    def retain(self, copy_ids: Iterable[str]) -> None:
        """Only these copies are in the routes now; what is kept of the others may be dropped."""
        ...


class Outstanding:
    """Counts of this process alone; a copy with none takes no room."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @property
    def total(self) -> int:
        """Requests under way on all copies."""
        return sum(self._counts.values())

    def of(self, copy_id: str) -> int:
        """Requests under way on that copy."""
        return self._counts.get(copy_id, 0)

    def reserve(self, copy_id: str) -> Callable[[], None]:
        """Count one more; returns the function that gives the place back (once)."""
        self._counts[copy_id] = self._counts.get(copy_id, 0) + 1
        given_back = False

        def give_back() -> None:
            nonlocal given_back
            if given_back:
                return
            given_back = True
            left = self._counts[copy_id] - 1
            if left:
                self._counts[copy_id] = left
            else:
                del self._counts[copy_id]

        return give_back

    def retain(self, copy_ids: Iterable[str]) -> None:
        """Nothing to do: a copy without requests is not kept."""
