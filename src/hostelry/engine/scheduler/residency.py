"""Queues of flows by the state of their adapter, and the decisions that move adapters.

Each flow with waiting requests stands in one queue, each queue in fair order:

    adapter's state                               queue             next
    --------------------------------------------  ----------------  --------------------------
    ABSENT                                        absent            fetch into host memory
    FETCHING, LOADING                             none              wait for the engine's report
    IN_HOST                                       in_host           copy into pages of the pool
    RESIDENT, or the base model                   ready             start the request
    RESIDENT, all adapter slots of the batch used no_adapter_slot   wait for a slot

A flow whose adapter is being moved stands in no queue, so that thousands of them cost nothing. An
adapter that was loaded for a request is held, and pages for that request's KV cache are promised,
until the request starts: otherwise the next load could evict it again, forever.
"""

from hostelry.engine.pages.adapters import AdapterState
from hostelry.engine.pages.unified import PagePool
from hostelry.engine.scheduler.decisions import Submission, Upload
from hostelry.engine.scheduler.records import FairOrder, Flow, ScheduledAdapter, Tenant

FlowQueue = FairOrder[Tenant, Flow]


class Residency:
    """The adapters of waiting and running requests, and the queues of flows."""

    def __init__(self, pool: PagePool, lookahead: int) -> None:
        self.ready: FlowQueue = FairOrder()
        self.no_adapter_slot: FlowQueue = FairOrder()
        self.in_host: FlowQueue = FairOrder()
        self.absent: FlowQueue = FairOrder()
        self.protected: ScheduledAdapter | None = None  # its promise is not broken
        self.num_active = 0  # distinct adapters of running requests
        self.promised_pages = 0
        self._pool = pool
        self._lookahead = lookahead
        self._adapters: dict[str, ScheduledAdapter] = {}
        self._hosted: set[str] = set()
        self._fetching: set[str] = set()
        self._promised: dict[ScheduledAdapter, None] = {}  # loading, or held until a start

    @property
    def may_load(self) -> bool:
        """Whether another adapter may be loaded into pages ahead of its turn."""
        return len(self._promised) < self._lookahead

    @property
    def active(self) -> list[ScheduledAdapter]:
        """The adapters of running requests."""
        return [it for it in self._adapters.values() if it.num_running]

    # Flows

    def enter(self, flow: Flow, submission: Submission) -> None:
        """Add a flow that has waiting requests from now on."""
        if flow.key is not None:
            flow.adapter = self._get_adapter(flow.key, submission)
            flow.adapter.flows[flow] = None
        self.enqueue(flow)

    def leave(self, flow: Flow, now: float) -> None:
        """Remove a flow that has no waiting requests any more."""
        self.dequeue(flow)
        adapter = flow.adapter
        if adapter is not None:
            del adapter.flows[flow]
            if not adapter.flows:
                self._break_promise(adapter, now)
            self._forget(adapter)

    def enqueue(self, flow: Flow, queue: FlowQueue | None = None) -> None:
        """Move a flow into `queue`, by default the queue for its adapter's state."""
        if queue is None:
            queue = self._find_queue(flow.adapter)
        if flow.queue is not queue:
            self.dequeue(flow)
            if queue is not None:
                queue.add(flow.tenant, flow)
                flow.queue = queue

    def dequeue(self, flow: Flow) -> None:
        """Take a flow out of its queue, if it is in one."""
        if flow.queue is not None:
            flow.queue.discard(flow.tenant, flow)
            flow.queue = None

    # Decisions

    def fetch(self) -> tuple[str, ...]:
        """The adapters to bring into host memory now, fairest first, within the look-ahead."""
        fetches = []
        while len(self._fetching) < self._lookahead:
            flow = self.absent.first()
            if flow is None or flow.adapter is None:
                break
            self._fetching.add(flow.adapter.key)
            self._move(flow.adapter, AdapterState.FETCHING)
            fetches.append(flow.adapter.key)
        return tuple(fetches)

    def load(self, adapter: ScheduledAdapter, kv_pages: int, now: float) -> Upload:
        """Reserve available pages for an adapter, and promise `kv_pages` to its next request."""
        pages = self._pool.reserve_adapter(
            adapter.key, adapter.num_pages, reload_cost_s=adapter.reload_cost_s, now=now
        )
        self._promised[adapter] = None
        adapter.promised_pages = kv_pages
        self.promised_pages += kv_pages
        self._move(adapter, AdapterState.LOADING)
        return Upload(adapter.key, pages)

    def is_evicted(self, adapter: ScheduledAdapter) -> bool:
        """True if the pool evicted a resident adapter. Its flows are then requeued."""
        if self._pool.adapter_state(adapter.key) is AdapterState.RESIDENT:
            return False
        self._move(adapter, self._find_state(adapter.key))
        return True

    def start(self, adapter: ScheduledAdapter, now: float) -> None:
        """Count one more request that runs with the adapter, which the pool holds already."""
        self._break_promise(adapter, now)
        adapter.num_running += 1
        if adapter.num_running == 1:
            self.num_active += 1
            for flow in adapter.flows:
                self.enqueue(flow)

    def stop(self, adapter: ScheduledAdapter, now: float) -> None:
        """Count one request fewer that runs with the adapter."""
        self._pool.unhold_adapter(adapter.key, now)
        adapter.num_running -= 1
        if not adapter.num_running:
            self.num_active -= 1
            self._forget(adapter)

    def break_promises(self, now: float) -> bool:
        """Make unused loaded adapters evictable. True if there were any."""
        broken = [it for it in self._promised if it.is_held and it is not self.protected]
        for adapter in broken:
            self._break_promise(adapter, now)
        return bool(broken)

    # Reports of the engine

    def note_in_host(self, key: str) -> None:
        """Record that the adapter's weights are in host memory."""
        self._hosted.add(key)
        self._fetching.discard(key)
        adapter = self._adapters.get(key)
        if adapter is not None and adapter.state in (AdapterState.ABSENT, AdapterState.FETCHING):
            self._move(adapter, AdapterState.IN_HOST)
            self._forget(adapter)

    def note_left_host(self, key: str) -> None:
        """Record that the adapter's weights left host memory, or will not arrive."""
        self._hosted.discard(key)
        self._fetching.discard(key)
        adapter = self._adapters.get(key)
        if adapter is not None and adapter.state in (AdapterState.FETCHING, AdapterState.IN_HOST):
            self._move(adapter, AdapterState.ABSENT)
            self._forget(adapter)

    def note_uploaded(self, key: str) -> None:
        """Record that the adapter's weights are in its pages. Raises ValueError without pages."""
        if self._pool.adapter_state(key) is not AdapterState.RESIDENT:
            self._pool.activate_adapter(key)
        adapter = self._adapters.get(key)
        if adapter is None or adapter.state is AdapterState.RESIDENT:
            return
        if adapter.flows:
            self._pool.hold_adapter(key)
            adapter.is_held = True
            self._promised[adapter] = None
        self._move(adapter, AdapterState.RESIDENT)
        self._forget(adapter)

    def fail(self, key: str, now: float) -> list[Flow]:
        """The flows that wait for an adapter that cannot be loaded.

        Empty for a resident adapter. It is absent from now on, and fetched again for the next
        request.
        """
        state = self._pool.adapter_state(key)
        if state is AdapterState.RESIDENT:
            return []
        if state is AdapterState.LOADING:
            self._pool.drop_adapter(key)
        self._hosted.discard(key)
        self._fetching.discard(key)
        adapter = self._adapters.get(key)
        if adapter is None:
            return []
        self._break_promise(adapter, now)
        self._move(adapter, AdapterState.ABSENT)
        flows = list(adapter.flows)
        self._forget(adapter)
        return flows

    def check_integrity(self) -> None:
        """Raise AssertionError where states, queues and counts do not agree."""
        assert self.num_active == len(self.active), "active adapters are miscounted"
        assert self.promised_pages == sum(it.promised_pages for it in self._promised)
        for key, adapter in self._adapters.items():
            self._check(key, adapter)

    def _check(self, key: str, adapter: ScheduledAdapter) -> None:
        state, pooled = adapter.state, self._pool.adapter_state(key)
        is_resident = pooled is AdapterState.RESIDENT
        assert adapter.key == key, f"adapter {adapter.key} is found as {key}"
        assert (state is AdapterState.FETCHING) <= (key in self._fetching), f"{key} is not fetched"
        assert (state is AdapterState.LOADING) <= (pooled is state), f"{key} does not load"
        assert not adapter.num_running or is_resident, f"{key} runs unloaded"
        assert not adapter.is_held or is_resident, f"{key} is held unloaded"
        assert not adapter.is_held or adapter in self._promised, f"{key} is held for no request"
        assert adapter in self._promised or not adapter.promised_pages, f"{key} promises"
        expected = self._find_queue(adapter)
        for flow in adapter.flows:
            lacks_slot = flow.queue is self.no_adapter_slot and expected is self.ready
            assert flow.num_waiting, f"flow {flow.key} waits for nothing"
            assert flow.queue is expected or lacks_slot, f"flow {flow.key} is misplaced"
            assert not (lacks_slot and adapter.num_running), f"{flow.key} has its slot"

    def _get_adapter(self, key: str, submission: Submission) -> ScheduledAdapter:
        adapter = self._adapters.get(key)
        if adapter is None:
            adapter = self._adapters[key] = ScheduledAdapter(
                key=key,
                num_pages=submission.adapter_pages,
                reload_cost_s=submission.reload_cost_s,
                state=self._find_state(key),
            )
        return adapter

    def _find_state(self, key: str) -> AdapterState:
        """The pool's state, or for an adapter without pages its place outside the pool."""
        state = self._pool.adapter_state(key)
        if state is not AdapterState.ABSENT:
            return state
        if key in self._hosted:
            return AdapterState.IN_HOST
        return AdapterState.FETCHING if key in self._fetching else AdapterState.ABSENT

    def _find_queue(self, adapter: ScheduledAdapter | None) -> FlowQueue | None:
        if adapter is None or adapter.state is AdapterState.RESIDENT:
            return self.ready
        if adapter.state is AdapterState.IN_HOST:
            return self.in_host
        return self.absent if adapter.state is AdapterState.ABSENT else None

    def _move(self, adapter: ScheduledAdapter, state: AdapterState) -> None:
        adapter.state = state
        for flow in adapter.flows:
            self.enqueue(flow)

    def _break_promise(self, adapter: ScheduledAdapter, now: float) -> None:
        if adapter not in self._promised:
            return
        del self._promised[adapter]
        self.promised_pages -= adapter.promised_pages
        adapter.promised_pages = 0
        if adapter.is_held:
            adapter.is_held = False
            self._pool.unhold_adapter(adapter.key, now)

    def _forget(self, adapter: ScheduledAdapter) -> None:
        """Drop the record of an adapter that no request waits for or runs with.

        `_find_state` finds the state of a moving adapter again, from the pool and the sets of keys.
        """
        if not adapter.flows and not adapter.num_running and adapter not in self._promised:
            self._adapters.pop(adapter.key, None)
