"""Orders by a counter that only grows, while it grows.

An entry may be behind its item's counter, never ahead, so the smallest is found by bringing the top
up to date until the top is right. Nothing is touched when a counter changes, which is what lets
every running request be charged in every step.
"""

import heapq
from typing import Generic, Protocol, TypeVar


class Counted(Protocol):
    """An item with a counter that never falls; `number` breaks ties and differs between items."""

    counter: float
    number: int


Item = TypeVar("Item", bound=Counted)
Group = TypeVar("Group", bound=Counted)
_SLACK = 64


class CounterHeap(Generic[Item]):
    """Distinct items, smallest counter first. Adding, discarding, looking: O(log n) amortised."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, int, Item]] = []
        self._tickets: dict[Item, int] = {}  # of the live entry of each item
        self._num_tickets = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, item: Item) -> bool:
        return item in self._tickets

    def add(self, item: Item) -> None:
        """Put `item` in; nothing happens when it is in."""
        if item in self._tickets:
            return
        self._num_tickets += 1
        self._tickets[item] = self._num_tickets
        heapq.heappush(self._entries, (item.counter, item.number, self._num_tickets, item))

    def discard(self, item: Item) -> None:
        """Take `item` out; nothing happens when it is not in."""
        if self._tickets.pop(item, None) is None:
            return
        if len(self._entries) > 2 * len(self._tickets) + _SLACK:
            self._entries = [(it.counter, it.number, own, it) for it, own in self._tickets.items()]
            heapq.heapify(self._entries)

    def first(self) -> Item | None:
        """The item with the smallest counter; None when there is none."""
        entries = self._entries
        while entries:
            counter, _, ticket, item = entries[0]
            if self._tickets.get(item) != ticket:
                heapq.heappop(entries)
            elif item.counter != counter:
                heapq.heapreplace(entries, (item.counter, item.number, ticket, item))
            else:
                return item
        return None


class FairOrder(Generic[Group, Item]):
    """Lanes by their tenant's counter, then by their own."""

    def __init__(self) -> None:
        self._tenants: CounterHeap[Group] = CounterHeap()
        self._lanes: dict[Group, CounterHeap[Item]] = {}

    def add(self, tenant: Group, lane: Item) -> None:
        """Put `lane` of `tenant` in; nothing happens when it is in."""
        lanes = self._lanes.get(tenant)
        if lanes is None:
            lanes = self._lanes[tenant] = CounterHeap()
            self._tenants.add(tenant)
        lanes.add(lane)

    def discard(self, tenant: Group, lane: Item) -> None:
        """Take `lane` of `tenant` out; nothing happens when it is not in."""
        lanes = self._lanes.get(tenant)
        if lanes is None:
            return
        lanes.discard(lane)
        if not lanes:
            del self._lanes[tenant]
            self._tenants.discard(tenant)

    def first(self) -> Item | None:
        """The fairest lane; None when there is none."""
        tenant = self._tenants.first()
        return None if tenant is None else self._lanes[tenant].first()
