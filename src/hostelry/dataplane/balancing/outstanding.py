"""Requests in flight on each copy: from the choice of the copy until the last byte."""

from collections.abc import Callable, Container
from typing import Protocol

from hostelry.routing.copy_choice import GatewayShare


class InFlightCounts(Protocol):
    """Requests in flight per copy, of one gateway worker or of all of them together.

    Those of other hosts, where there are any, are included as they were last known.
    """

    @property
    def share(self) -> GatewayShare | None:
        """This host among those with gateways; None where there is no other."""
        ...

    @property
    def total(self) -> int:
        """Requests in flight on all copies."""
        ...

    def of(self, copy_id: str) -> int:
        """Requests in flight on that copy."""
        ...

    def reserve(self, copy_id: str) -> Callable[[], None]:
        """Count one more; returns the function that ends the count, once."""
        ...

    def claim(self, copy_id: str, limit: int) -> Callable[[], None] | None:
        """As `reserve`; None where `limit` are counted already."""
        ...

    def retain(self, copy_ids: Container[str]) -> None:
        """Free what is kept of copies that are not in the routes any more."""
        ...


class Outstanding:
    """Counts of this process alone; a copy without requests takes no memory."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @property
    def share(self) -> GatewayShare | None:
        """None: no other host is known."""
        return None

    @property
    def total(self) -> int:
        """Requests in flight on all copies."""
        return sum(self._counts.values())

    def of(self, copy_id: str) -> int:
        """Requests in flight on that copy."""
        return self._counts.get(copy_id, 0)

    def reserve(self, copy_id: str) -> Callable[[], None]:
        """Count one more; returns the function that ends the count, once."""
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

    def claim(self, copy_id: str, limit: int) -> Callable[[], None] | None:
        """As `reserve`; None where `limit` are counted already."""
        return self.reserve(copy_id) if self.of(copy_id) < limit else None

    def retain(self, copy_ids: Container[str]) -> None:
        """No-op: a copy without requests is not kept."""
