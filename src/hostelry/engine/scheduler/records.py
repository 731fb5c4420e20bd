"""The scheduler's records of tenants, adapters, flows and requests, and their priority queues."""

import heapq
from collections import deque
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec

from hostelry.engine.pages.adapters import AdapterState
from hostelry.engine.scheduler.decisions import Chunk, Submission, Upload
from hostelry.engine.scheduler.tenants import CompletionInterval, TenantPolicy, TokenBucket

# Priority queues ordered by a counter that grows while its item is queued.
#
# An entry may lag behind its item's counter, but is never ahead of it. Therefore updating the top
# until it is right finds the smallest. A change of a counter touches no queue, so that every
# running request can be charged in every step.


class Counted(Protocol):
    """An item with a counter that never falls. `number` differs between items and breaks ties."""

    counter: float
    number: int


Item = TypeVar("Item", bound=Counted)
Group = TypeVar("Group", bound=Counted)
_SLACK = 64


class CounterHeap(Generic[Item]):
    """Distinct items, smallest counter first. Every operation is O(log n) amortised."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, int, Item]] = []
        self._tickets: dict[Item, int] = {}  # of the live entry of each item
        self._num_tickets = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, item: Item) -> bool:
        return item in self._tickets

    def add(self, item: Item) -> None:
        """Add `item`, unless it is in the heap."""
        if item in self._tickets:
            return
        self._num_tickets += 1
        self._tickets[item] = self._num_tickets
        heapq.heappush(self._entries, (item.counter, item.number, self._num_tickets, item))

    def discard(self, item: Item) -> None:
        """Remove `item`, if it is in the heap."""
        if self._tickets.pop(item, None) is None:
            return
        if len(self._entries) > 2 * len(self._tickets) + _SLACK:
            self._entries = [(it.counter, it.number, own, it) for it, own in self._tickets.items()]
            heapq.heapify(self._entries)

    def first(self) -> Item | None:
        """The item with the smallest counter. None if the heap is empty."""
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
        """Add `flow` of `tenant`, unless it is in the order."""
        flows = self._flows.get(tenant)
        if flows is None:
            flows = self._flows[tenant] = CounterHeap()
            self._tenants.add(tenant)
        flows.add(flow)

    def discard(self, tenant: Group, flow: Item) -> None:
        """Remove `flow` of `tenant`, if it is in the order."""
        flows = self._flows.get(tenant)
        if flows is None:
            return
        flows.discard(flow)
        if not flows:
            del self._flows[tenant]
            self._tenants.discard(tenant)

    def first(self) -> Item | None:
        """The flow that comes first. None if the order is empty."""
        tenant = self._tenants.first()
        return None if tenant is None else self._flows[tenant].first()


class RequestStatus(Enum):
    """Whether a request waits, owns pages, or has ended."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class Tenant(msgspec.Struct, eq=False, kw_only=True):
    """A tenant. `counter` is its service so far: charged tokens divided by its weight."""

    name: str
    policy: TenantPolicy
    bucket: TokenBucket | None
    counter: float = 0.0
    number: int = 0  # of the request that made it wait, for ties
    token_cost: float = 1.0  # what one charged token adds to the counter
    num_waiting: int = 0
    num_running: int = 0
    num_departed: int = 0  # requests that left its queues so far, to run or for good
    flows: "dict[str | None, Flow]" = msgspec.field(default_factory=dict)
    waiting: "CounterHeap[Flow]" = msgspec.field(default_factory=CounterHeap)  # flows with requests
    last_flow: "Flow | None" = None  # the last to have become empty
    prune_at: int = 64
    completion_interval: CompletionInterval = msgspec.field(default_factory=CompletionInterval)

    @property
    def num_in_flight(self) -> int:
        """Requests that have not ended."""
        return self.num_waiting + self.num_running


class ScheduledAdapter(msgspec.Struct, eq=False, kw_only=True):
    """An adapter that a request waits for or runs with, or that is being moved.

    The pool may have evicted a `RESIDENT` adapter meanwhile. `Residency.is_evicted` finds out.
    """

    key: str
    num_pages: int
    reload_cost_s: float
    state: AdapterState
    flows: "dict[Flow, None]" = msgspec.field(default_factory=dict)  # with waiting requests
    num_running: int = 0
    is_held: bool = False  # kept in the pool for the request it was loaded for
    promised_pages: int = 0  # kept free for the KV cache of that request


class Flow(msgspec.Struct, eq=False, kw_only=True):
    """The requests of one tenant for one adapter, first come, first served."""

    tenant: Tenant
    key: str | None
    counter: float = 0.0
    number: int = 0
    adapter: ScheduledAdapter | None = None
    requests: "deque[Sequence]" = msgspec.field(default_factory=deque)  # may hold ended ones
    num_waiting: int = 0
    num_running: int = 0
    queue: "FairOrder[Tenant, Flow] | None" = None  # of `Residency`, None while its adapter moves

    @property
    def head(self) -> "Sequence":
        """The next request. The flow has one as long as `num_waiting` is not 0."""
        return self.requests[0]

    @property
    def rank(self) -> tuple[float, int, float, int]:
        """Position in the fair order, smallest first."""
        return self.tenant.counter, self.tenant.number, self.counter, self.number


class Sequence(msgspec.Struct, eq=False, kw_only=True):
    """A request, as counts of tokens and pages."""

    id: str
    number: int  # in order of arrival
    flow: Flow
    submission: Submission
    num_prompt: int  # copied from the submission, as the next two: every step reads them
    num_keys: int
    max_tokens: int
    num_tokens: int  # prompt and output so far
    num_departed_before: int
    num_ahead: int  # of its tenant, when it arrived
    status: RequestStatus = RequestStatus.WAITING
    num_computed: int = 0  # tokens whose keys and values are in pages
    num_charged: int = 0  # prompt tokens charged or found in the cache, not charged again
    token_capacity: int = 0  # tokens that its pages hold
    num_published: int = 0  # of its pages
    starved_since: float | None = None  # when its turn came without the pages or slot it needs
    failed_num_pages: int = -1  # pages that were available when its start failed for pages


class StepDraft(msgspec.Struct, eq=False, kw_only=True):
    """The step being planned: remaining budget, decisions so far."""

    now: float
    budget: int  # rows left
    scored_budget: int  # of these, of requests whose prompt is scored
    chunks: list[Chunk] = msgspec.field(default_factory=list)
    preempted: list[str] = msgspec.field(default_factory=list)
    uploads: list[Upload] = msgspec.field(default_factory=list)
    num_started: int = 0
