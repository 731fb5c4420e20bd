"""What the scheduler remembers of tenants, adapters, lanes and requests while they last."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from hostelry.engine.scheduler.counters import CounterHeap, FairOrder
from hostelry.engine.scheduler.decisions import Chunk, Submission, Upload
from hostelry.engine.scheduler.quotas import Pace, TokenBucket
from hostelry.engine.scheduler.tenants import TenantPolicy


class Place(Enum):
    """Where an adapter's weights are, on their way from far to near."""

    ABSENT = "absent"
    FETCHING = "fetching"  # named in a plan's fetches, not reported yet
    IN_HOST = "in host memory"
    LOADING = "loading"  # its pages are reserved, the copy is under way
    RESIDENT = "resident"  # in the pool; it may have been evicted unnoticed


class State(Enum):
    """Where a request is."""

    WAITING = "waiting"
    RUNNING = "running"
    GONE = "gone"


@dataclass(slots=True, eq=False, kw_only=True)
class Tenant:
    """`counter` is its service so far, in charged tokens divided by its weight."""

    name: str
    policy: TenantPolicy
    bucket: TokenBucket | None
    counter: float = 0.0
    number: int = 0  # of the request that made it wait, for ties
    token_cost: float = 1.0  # what one charged token adds to the counter
    num_waiting: int = 0
    num_running: int = 0
    num_departed: int = 0  # requests that left its queues so far, to run or for good
    lanes: "dict[str | None, Lane]" = field(default_factory=dict)
    waiting: "CounterHeap[Lane]" = field(default_factory=CounterHeap)  # lanes with requests
    last_lane: "Lane | None" = None  # the last to have become empty
    prune_at: int = 64
    pace: Pace = field(default_factory=Pace)

    @property
    def num_in_flight(self) -> int:
        """Requests that have not ended."""
        return self.num_waiting + self.num_running


@dataclass(slots=True, eq=False, kw_only=True)
class Adapter:
    """One adapter that somebody waits for or runs with, or that is on its way."""

    key: str
    num_pages: int
    reload_cost_s: float
    place: Place
    lanes: "dict[Lane, None]" = field(default_factory=dict)  # with waiting requests
    num_running: int = 0
    is_held: bool = False  # kept in the pool for the one it was loaded for
    promised_pages: int = 0  # kept free for the KV cache of the one it was loaded for


@dataclass(slots=True, eq=False, kw_only=True)
class Lane:
    """The waiting requests of one tenant for one adapter, first come, first served."""

    tenant: Tenant
    key: str | None
    counter: float = 0.0
    number: int = 0
    adapter: Adapter | None = None
    queue: "deque[Sequence]" = field(default_factory=deque)  # may hold requests that are gone
    num_waiting: int = 0
    num_running: int = 0
    shelf: "FairOrder[Tenant, Lane] | None" = None

    @property
    def head(self) -> "Sequence":
        """Its next request; there is one as long as `num_waiting` is not 0."""
        return self.queue[0]

    @property
    def rank(self) -> tuple[float, int, float, int]:
        """Its place in the fair order, smallest first."""
        return self.tenant.counter, self.tenant.number, self.counter, self.number


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """One request: counts of tokens and pages."""

    id: str
    number: int  # in order of arrival
    lane: Lane
    submission: Submission
    num_prompt: int  # this and the next two are the submission's, nearer by hand in every step
    num_keys: int
    max_tokens: int
    num_tokens: int  # prompt and output so far
    num_departed_before: int
    num_ahead: int  # of its tenant, when it came
    state: State = State.WAITING
    num_computed: int = 0  # tokens whose keys and values are in pages
    num_charged: int = 0  # prompt tokens charged or found in the cache; not charged again
    num_slots: int = 0  # tokens that its pages hold
    num_published: int = 0  # of its pages
    lost_at: float | None = None  # its turn came and something it needs was not to be had
    failed_room: int = -1  # pages that were to be had when its start failed for pages


@dataclass(slots=True, eq=False, kw_only=True)
class Step:
    """Budgets and decisions of the step being planned."""

    now: float
    budget: int  # rows left
    chunks: list[Chunk] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    uploads: list[Upload] = field(default_factory=list)
    num_started: int = 0
