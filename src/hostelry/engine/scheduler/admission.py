"""Admission of waiting requests and loads of adapters under page, slot and token budgets.

Flows are taken in fair order from the queues of `residency.py`. For the fairest flow:

    condition                                      result
    ---------------------------------------------  ---------------------------------------------
    batch full, or no rows left in the step        no request starts, adapters may still be loaded
    adapter in host memory, pages for it and for   pages reserved, upload planned, pages for the
      its request's prompt                           prompt promised to that request
    adapter evicted since it was resident          requeued by the adapter's state
    adapter not in the batch, no adapter slot      blocked in `no_adapter_slot`
    too few pages                                  blocked
    otherwise                                      starts

A blocked flow is starved from then on. A later flow may overtake it while that flow's tenant (in
one tenant: that flow) has at most `overtake_tokens` more service. Beyond that the batch drains
until the blocked flow fits. For the request that has been starved longest:

    condition                                      result
    ---------------------------------------------  ---------------------------------------------
    starved for at most `max_wait_s`               no reservation
    its adapter is absent or being fetched         no longer starved: it waits for the fetch
    otherwise                                      reservation: it is served before all others

While a reservation lasts, no request starts that could take the pages it needs. If it lacks an
adapter slot, the adapter that ends soonest is drained: none of its requests start.
Source: the reservation generalises SGLang's drain of the adapter with the least left to do.
"""

from collections import deque
from collections.abc import Iterator

from hostelry.engine.pages.adapters import AdapterState
from hostelry.engine.pages.unified import PagePool
from hostelry.engine.scheduler.decisions import SchedulerLimits
from hostelry.engine.scheduler.fair_queue import FairQueue
from hostelry.engine.scheduler.records import (
    Flow,
    RequestStatus,
    ScheduledAdapter,
    Sequence,
    StepDraft,
)
from hostelry.engine.scheduler.residency import FlowQueue, Residency
from hostelry.engine.scheduler.running import RunningBatch


class Admission:
    """Starts requests and loads of adapters within the budgets."""

    def __init__(
        self,
        limits: SchedulerLimits,
        pool: PagePool,
        fair_queue: FairQueue,
        residency: Residency,
        batch: RunningBatch,
    ) -> None:
        self._limits = limits
        self._pool = pool
        self._fair_queue = fair_queue
        self._residency = residency
        self._batch = batch
        self._starved: deque[tuple[float, Sequence]] = deque()  # since when, in that order
        self._reserved: Flow | None = None
        self._reserved_pages = 0
        self._drained: ScheduledAdapter | None = None
        self._may_load = True

    def run(self, step: StepDraft) -> None:
        """Start requests and plan uploads of adapters for this step."""
        self._reserve(step)
        self._admit(step)
        if not self._batch and self._residency.break_promises(step.now):
            self._admit(step)  # promises to several may have kept each of them from starting

    # Reservation

    def _reserve(self, step: StepDraft) -> None:
        """Serve the request that starved for too long, or reserve its pages and slot."""
        residency = self._residency
        flow = self._reserved = self._find_longest_starved(step.now)
        self._reserved_pages = 0
        adapter = residency.protected = None if flow is None else flow.adapter
        if (
            flow is None
            or self._serve(flow, step)
            or (residency.break_promises(step.now) and self._serve(flow, step))
        ):
            self._reserved = self._drained = residency.protected = None
            return
        count_pages = self._limits.count_pages
        self._reserved_pages = count_pages(flow.head.num_tokens) + self._batch.num_growth_pages
        if adapter is not None and adapter.state is AdapterState.IN_HOST:
            self._reserved_pages += adapter.num_pages
        self._drain(adapter)

    def _find_longest_starved(self, now: float) -> Flow | None:
        """The flow of the request that starved longest, if for more than `max_wait_s`."""
        for _ in range(len(self._starved)):
            since, sequence = self._starved[0]
            if sequence.status is not RequestStatus.WAITING or sequence.starved_since != since:
                self._starved.popleft()  # it ran since, or ended
                continue
            if now - since <= self._limits.max_wait_s:
                return None
            adapter = sequence.flow.adapter
            if adapter is None or adapter.state not in (AdapterState.ABSENT, AdapterState.FETCHING):
                return sequence.flow
            # Its adapter left host memory: it waits for the fetch, not for pages or a slot.
            sequence.starved_since = None
            self._starved.popleft()
        return None

    def _serve(self, flow: Flow, step: StepDraft) -> bool:
        """Start the head of the reserved flow, or the load it needs. True if the head started."""
        adapter = flow.adapter
        if adapter is not None and adapter.state is AdapterState.RESIDENT:
            self._residency.is_evicted(adapter)
        if adapter is not None and adapter.state is not AdapterState.RESIDENT:
            if adapter.state is AdapterState.IN_HOST:
                self._load(flow, adapter, step)
            return False
        can_start = self._can_start(step) and self._has_adapter_slot(flow)
        return can_start and self._start(flow, step)

    def _drain(self, adapter: ScheduledAdapter | None) -> None:
        """Choose the adapter that gives up its slot: the adapter that ends soonest."""
        if adapter is None or adapter.num_running or self._has_free_slot:
            self._drained = None
        elif self._drained is None or not self._drained.num_running:
            self._drained = min(self._residency.active, key=self._count_tokens_left)

    def _count_tokens_left(self, adapter: ScheduledAdapter) -> int:
        """The most tokens until the last of an adapter's running requests has ended."""
        own = (it for it in self._batch if it.flow.adapter is adapter)
        return max(it.max_tokens - it.num_tokens for it in own)

    # The loop

    def _admit(self, step: StepDraft) -> None:
        """Take flows in fair order until budgets, pages or flows are used up."""
        self._may_load = True
        blocked: list[Flow] = []
        aside: list[Flow] = []
        self._block_without_slot(blocked, step.now)
        while len(aside) < self._limits.prefetch_lookahead:
            flow = self._find_fairest(step)
            if flow is None:
                break
            if not self._may_overtake(flow, blocked):
                self._set_aside(flow, aside)
            elif not self._advance(flow, step):
                if flow.adapter is not self._drained or flow.adapter is None:
                    blocked.append(flow)
                    self._mark_starved(flow.head, step.now)
                self._set_aside(flow, aside)
        for flow in aside:
            if flow.queue is None:
                self._residency.enqueue(flow)

    @property
    def _has_free_slot(self) -> bool:
        limit = self._limits.max_adapters
        return limit is None or self._residency.num_active < limit

    def _block_without_slot(self, blocked: list[Flow], now: float) -> None:
        if self._has_free_slot:
            return
        flow = self._residency.no_adapter_slot.first()
        if flow is not None:
            blocked.append(flow)
            self._mark_starved(flow.head, now)

    def _find_fairest(self, step: StepDraft) -> Flow | None:
        """The fairest flow of the open queues. None if they are empty."""
        best: Flow | None = None
        for queue in self._iterate_open_queues(step):
            flow = queue.first()
            if flow is not None and (best is None or flow.rank < best.rank):
                best = flow
        return best

    def _iterate_open_queues(self, step: StepDraft) -> Iterator[FlowQueue]:
        """The queues whose flows can make progress under the budgets left."""
        residency = self._residency
        if self._can_start(step):
            yield residency.ready
            if self._has_free_slot:
                yield residency.no_adapter_slot
        if self._may_load and residency.may_load:
            yield residency.in_host

    def _can_start(self, step: StepDraft) -> bool:
        if len(self._batch) >= self._limits.max_batch_size or step.budget < 1:
            return False
        return self._pool.num_available > self._batch.reserve

    def _may_overtake(self, flow: Flow, blocked: list[Flow]) -> bool:
        """True if the flow is at most `overtake_tokens` of service ahead of every blocked flow."""
        slack = self._limits.overtake_tokens
        for other in blocked:
            if other.tenant is flow.tenant:
                ahead = flow.counter - other.counter
            else:
                ahead = flow.tenant.counter - other.tenant.counter
            if ahead > slack:
                return False
        return True

    def _set_aside(self, flow: Flow, aside: list[Flow]) -> None:
        """Take a flow out of this step, so that others are considered.

        After a flow whose adapter cannot be loaded no other adapter is loaded: smaller adapters
        would take its pages again and again.
        """
        if flow.queue is self._residency.in_host:
            self._may_load = False
        elif flow.queue is not self._residency.no_adapter_slot or self._has_free_slot:
            self._residency.dequeue(flow)
            aside.append(flow)

    def _advance(self, flow: Flow, step: StepDraft) -> bool:
        """Load the flow's adapter or start its head. False if pages or slots are short."""
        adapter = flow.adapter
        if adapter is not None:
            if adapter.state is AdapterState.IN_HOST:
                return self._load(flow, adapter, step)
            if self._residency.is_evicted(adapter):
                return True
            if not self._has_adapter_slot(flow):
                if adapter is not self._drained:
                    self._residency.enqueue(flow, self._residency.no_adapter_slot)
                return False
        return self._start(flow, step)

    def _has_adapter_slot(self, flow: Flow) -> bool:
        """True if the flow's adapter is, or may become, one of the batch's distinct adapters."""
        adapter, limit, reserved = flow.adapter, self._limits.max_adapters, self._reserved
        if adapter is None or limit is None:
            return True
        if reserved is None or flow is reserved:
            return adapter.num_running > 0 or self._has_free_slot
        if adapter is self._drained:
            return False
        other = reserved.adapter
        num_reserved = int(other is not None and other is not adapter and not other.num_running)
        return adapter.num_running > 0 or self._residency.num_active + num_reserved < limit

    def _count_usable_pages(self, flow: Flow) -> int:
        """Pages that a flow may take: neither the reserve nor pages promised to others."""
        usable = self._pool.num_available - self._batch.reserve
        if flow is not self._reserved:
            usable -= self._reserved_pages
        if flow.adapter is None or not flow.adapter.promised_pages:
            promised = self._residency.promised_pages
            if self._reserved is not None and self._reserved.adapter is not None:
                promised -= self._reserved.adapter.promised_pages  # counted as reserved
            usable -= promised
        return usable

    def _load(self, flow: Flow, adapter: ScheduledAdapter, step: StepDraft) -> bool:
        """Plan the copy of an adapter into pages, if its request will fit too."""
        kv_pages = self._limits.count_pages(flow.head.num_tokens)
        if adapter.num_pages + kv_pages > self._count_usable_pages(flow):
            return False
        step.uploads.append(self._residency.load(adapter, kv_pages, step.now))
        if self._limits.load_charge_tokens:
            self._fair_queue.charge(flow, self._limits.load_charge_tokens * adapter.num_pages)
        return True

    def _start(self, flow: Flow, step: StepDraft) -> bool:
        usable = self._count_usable_pages(flow)
        if self._reserved is not None and flow is not self._reserved:
            return self._start_outside_reservation(flow, usable, step)
        return self._start_within(flow, usable, step)

    def _start_outside_reservation(self, flow: Flow, usable: int, step: StepDraft) -> bool:
        """Start a request that leaves the reserved pages alone, however long its answer."""
        count_pages, sequence = self._limits.count_pages, flow.head
        most = count_pages(sequence.max_tokens)
        if most > usable or not self._start_within(flow, usable, step):
            return False
        self._reserved_pages += most - count_pages(sequence.num_tokens)
        return True

    def _start_within(self, flow: Flow, usable: int, step: StepDraft) -> bool:
        sequence = flow.head
        if not self._may_fit(sequence, usable):
            return False
        if not self._batch.start(sequence, step, self._pool.num_available - usable):
            sequence.failed_num_pages = usable
            return False
        step.num_started += 1
        if not flow.num_waiting:
            self._residency.leave(flow, step.now)
        return True

    def _may_fit(self, sequence: Sequence, usable: int) -> bool:
        """True if a start is worth trying. A failed start is not repeated without more pages."""
        limits = self._limits
        if usable < 1 or (usable <= sequence.failed_num_pages and self._batch):
            return False
        num_pages = limits.count_pages(sequence.num_tokens)
        if num_pages <= usable:
            return True
        num_cachable = (sequence.num_tokens - 1) // limits.page_tokens
        keys = sequence.submission.cached_keys[:num_cachable]
        return num_pages - self._pool.count_shared(keys) <= usable

    def _mark_starved(self, sequence: Sequence, now: float) -> None:
        """Record since when a request whose turn it is lacks pages or a slot."""
        if sequence.starved_since is None and self._reserved is None:
            sequence.starved_since = now
            self._starved.append((now, sequence))
