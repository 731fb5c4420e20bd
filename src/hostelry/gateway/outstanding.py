"""How many requests are under way on each copy: from the choice of it until the last byte."""

from collections.abc import Callable


class Outstanding:
    """Counts per copy; a copy with none takes no room."""

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
