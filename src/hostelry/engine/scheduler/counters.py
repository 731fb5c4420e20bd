"""Priority queues ordered by a counter that grows while its item is queued.

An entry may lag behind its item's counter, but is never ahead of it, so the smallest is found by
updating the top until it is right. A change of a counter touches no queue, so that every running
request can be charged in every step.
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
    """Distinct items, smallest counter first; every operation is O(log n) amortised."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, int, Item]] = []
        self._tickets: dict[Item, int] = {}  # of the live entry of each item
        self._num_tickets = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, item: Item) -> bool:
        return item in self._tickets

    def add(self, item: Item) -> None:
        """Add `item`; no effect when it is in."""
        if item in self._tickets:
            return
        self._num_tickets += 1
        self._tickets[item] = self._num_tickets
        heapq.heappush(self._entries, (item.counter, item.number, self._num_tickets, item))

    def discard(self, item: Item) -> None:
        """Remove `item`; no effect when it is not in."""
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
    """Flows by their tenant's counter, then by their own."""

    def __init__(self) -> None:
        self._tenants: CounterHeap[Group] = CounterHeap()
        self._flows: dict[Group, CounterHeap[Item]] = {}

    def add(self, tenant: Group, flow: Item) -> None:
        """Add `flow` of `tenant`; no effect when it is in."""
        flows = self._flows.get(tenant)
        if flows is None:
            flows = self._flows[tenant] = CounterHeap()
            self._tenants.add(tenant)
        flows.add(flow)

    def discard(self, tenant: Group, flow: Item) -> None:
        """Remove `flow` of `tenant`; no effect when it is not in."""
        flows = self._flows.get(tenant)
        if flows is None:
            return
        flows.discard(flow)
        if not flows:
            del self._flows[tenant]
            self._tenants.discard(tenant)

    def first(self) -> Item | None:
        """The flow that comes first; None when there is none."""
        tenant = self._tenants.first()
        return None if tenant is None else self._flows[tenant].first()
