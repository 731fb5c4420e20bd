"""Who may start, and whose adapter is loaded, when pages, places and tokens are short.

Lanes are taken in fair order from the shelves of `residency.py`. One that cannot go on for lack of
pages or of an adapter place has lost; others may pass it, but only as far as `overtake_tokens`
allows: beyond that the batch drains until the loser fits. And a request that lost for longer than
`max_wait_s` has a reservation: it comes first, and nobody starts who would take the pages it needs
or, where the places for adapters are taken, who would keep the one place that is soonest free.

Source: the reservation generalises SGLang's drain of the adapter with the least left to do.
"""

from collections import deque
from collections.abc import Iterator

from hostelry.engine.pages.unified import PagePool
from hostelry.engine.scheduler.fair_queue import FairQueue
from hostelry.engine.scheduler.limits import Limits
from hostelry.engine.scheduler.records import Adapter, Lane, Place, Sequence, State, Step
from hostelry.engine.scheduler.residency import Residency, Shelf
from hostelry.engine.scheduler.running import RunningBatch


class Admission:
    """Starts requests and loads of adapters, as far as the budgets go."""

    def __init__(
        self,
        limits: Limits,
        pool: PagePool,
        queue: FairQueue,
        residency: Residency,
        batch: RunningBatch,
    ) -> None:
        self._limits = limits
        self._pool = pool
        self._queue = queue
        self._residency = residency
        self._batch = batch
        self._lost: deque[tuple[float, Sequence]] = deque()  # when, in that order
        self._reserved: Lane | None = None
        self._reserved_pages = 0
        self._drained: Adapter | None = None
        self._may_load = True

    def run(self, step: Step) -> None:
        """Start and load what is to be started and loaded now."""
        self._reserve(step)
        self._admit(step)
        if not self._batch and self._residency.break_promises(step.now):
            self._admit(step)  # promises to several may have kept each of them from starting

    # Reservation

    def _reserve(self, step: Step) -> None:
        """Serve the request that lost for too long, or keep for it what it needs."""
        residency = self._residency
        lane = self._reserved = self._starving(step.now)
        self._reserved_pages = 0
        adapter = residency.kept = None if lane is None else lane.adapter
        if lane is None or self._serve(lane, step):
            self._reserved = self._drained = residency.kept = None
            return
        if residency.break_promises(step.now) and self._serve(lane, step):
            self._reserved = self._drained = residency.kept = None
            return
        pages_for = self._limits.pages_for
        self._reserved_pages = pages_for(lane.head.num_tokens) + self._batch.num_growth_pages
        if adapter is not None and adapter.place is Place.IN_HOST:
            self._reserved_pages += adapter.num_pages
        self._drain(adapter)

    def _starving(self, now: float) -> Lane | None:
        """The lane of the one that lost first, if that is long ago; not while it is fetched."""
        for _ in range(len(self._lost)):
            lost_at, sequence = self._lost[0]
            if sequence.state is not State.WAITING or sequence.lost_at != lost_at:
                self._lost.popleft()
                continue
            if now - lost_at <= self._limits.max_wait_s:
                return None
            adapter = sequence.lane.adapter
            if adapter is None or adapter.place not in (Place.ABSENT, Place.FETCHING):
                return sequence.lane
            sequence.lost_at = None  # it lost to nobody: its weights are not even near
            self._lost.popleft()
        return None

    def _serve(self, lane: Lane, step: Step) -> bool:
        """Whether the head of the reserved lane started; its load is started if that is next."""
        adapter = lane.adapter
        if adapter is not None and adapter.place is Place.RESIDENT:
            self._residency.is_evicted(adapter)
        if adapter is not None and adapter.place is not Place.RESIDENT:
            if adapter.place is Place.IN_HOST:
                self._load(lane, adapter, step)
            return False
        can_start = self._can_start(step) and self._has_place(lane)
        return can_start and self._start(lane, step)

    def _drain(self, adapter: Adapter | None) -> None:
        """Choose the adapter whose place the reserved one gets: the one with the least to do."""
        if adapter is None or adapter.num_running or self._has_free_place:
            self._drained = None
        elif self._drained is None or not self._drained.num_running:
            self._drained = min(self._residency.active, key=self._num_left)

    def _num_left(self, adapter: Adapter) -> int:
        """Tokens until the last of an adapter's running requests has ended, at most."""
        own = (it for it in self._batch if it.lane.adapter is adapter)
        return max(it.max_tokens - it.num_tokens for it in own)

    # The loop

    def _admit(self, step: Step) -> None:
        """Take lanes in fair order until budgets, pages or lanes end."""
        self._may_load = True
        bars: list[Lane] = []
        aside: list[Lane] = []
        self._bar_placeless(bars, step.now)
        while len(aside) < self._limits.prefetch_lookahead:
            lane = self._fairest(step)
            if lane is None:
                break
            if not self._may_pass(lane, bars):
                self._set_aside(lane, aside)
            elif not self._advance(lane, step):
                if lane.adapter is not self._drained or lane.adapter is None:
                    bars.append(lane)
                    self._lose(lane.head, step.now)
                self._set_aside(lane, aside)
        for lane in aside:
            if lane.shelf is None:
                self._residency.shelve(lane)

    @property
    def _has_free_place(self) -> bool:
        limit = self._limits.max_adapters
        return limit is None or self._residency.num_active < limit

    def _bar_placeless(self, bars: list[Lane], now: float) -> None:
        if self._has_free_place:
            return
        lane = self._residency.placeless.first()
        if lane is not None:
            bars.append(lane)
            self._lose(lane.head, now)

    def _fairest(self, step: Step) -> Lane | None:
        """The lane whose turn it is, of those on open shelves."""
        best: Lane | None = None
        for shelf in self._open_shelves(step):
            lane = shelf.first()
            if lane is not None and (best is None or lane.rank < best.rank):
                best = lane
        return best

    def _open_shelves(self, step: Step) -> Iterator[Shelf]:
        residency = self._residency
        if self._can_start(step):
            yield residency.ready
            if self._has_free_place:
                yield residency.placeless
        if self._may_load and residency.may_load:
            yield residency.in_host

    def _can_start(self, step: Step) -> bool:
        if len(self._batch) >= self._limits.max_batch_size or step.budget < 1:
            return False
        return self._pool.num_available > self._batch.reserve

    def _may_pass(self, lane: Lane, bars: list[Lane]) -> bool:
        """Whether the lane has had too little service to let those who lost go first."""
        slack = self._limits.overtake_tokens
        for bar in bars:
            if bar.tenant is lane.tenant:
                ahead = lane.counter - bar.counter
            else:
                ahead = lane.tenant.counter - bar.tenant.counter
            if ahead > slack:
                return False
        return True

    def _set_aside(self, lane: Lane, aside: list[Lane]) -> None:
        """Look at others; after a lane whose adapter is to be loaded no other is loaded."""
        if lane.shelf is self._residency.in_host:
            self._may_load = False
        elif lane.shelf is not self._residency.placeless or self._has_free_place:
            self._residency.unshelve(lane)
            aside.append(lane)

    def _advance(self, lane: Lane, step: Step) -> bool:
        """One step nearer for a lane; False when pages or places are short."""
        adapter = lane.adapter
        if adapter is not None:
            if adapter.place is Place.IN_HOST:
                return self._load(lane, adapter, step)
            if self._residency.is_evicted(adapter):
                return True
            if not self._has_place(lane):
                if adapter is not self._drained:
                    self._residency.shelve(lane, self._residency.placeless)
                return False
        return self._start(lane, step)

    def _has_place(self, lane: Lane) -> bool:
        """Whether the lane's adapter may be one of the batch's distinct ones."""
        adapter, limit, reserved = lane.adapter, self._limits.max_adapters, self._reserved
        if adapter is None or limit is None:
            return True
        if reserved is None or lane is reserved:
            return adapter.num_running > 0 or self._has_free_place
        if adapter is self._drained:
            return False
        kept = reserved.adapter
        num_kept = int(kept is not None and kept is not adapter and not kept.num_running)
        return adapter.num_running > 0 or self._residency.num_active + num_kept < limit

    def _room(self, lane: Lane) -> int:
        """Pages that a lane may take: not the reserve, nor what others were promised."""
        room = self._pool.num_available - self._batch.reserve
        if lane is not self._reserved:
            room -= self._reserved_pages
        if lane.adapter is None or not lane.adapter.promised_pages:
            promised = self._residency.promised_pages
            if self._reserved is not None and self._reserved.adapter is not None:
                promised -= self._reserved.adapter.promised_pages  # counted as reserved
            room -= promised
        return room

    def _load(self, lane: Lane, adapter: Adapter, step: Step) -> bool:
        """Start the copy of an adapter into pages, if its request will fit beside it."""
        kv_pages = self._limits.pages_for(lane.head.num_tokens)
        if adapter.num_pages + kv_pages > self._room(lane):
            return False
        step.uploads.append(self._residency.load(adapter, kv_pages, step.now))
        if self._limits.load_charge_tokens:
            self._queue.charge(lane, self._limits.load_charge_tokens * adapter.num_pages)
        return True

    def _start(self, lane: Lane, step: Step) -> bool:
        room = self._room(lane)
        if self._reserved is not None and lane is not self._reserved:
            return self._start_beside(lane, room, step)
        return self._start_within(lane, room, step)

    def _start_beside(self, lane: Lane, room: int, step: Step) -> bool:
        """Start a request that, however long its answer, leaves what is kept for another."""
        pages_for, sequence = self._limits.pages_for, lane.head
        most = pages_for(sequence.max_tokens)
        if most > room or not self._start_within(lane, room, step):
            return False
        self._reserved_pages += most - pages_for(sequence.num_tokens)
        return True

    def _start_within(self, lane: Lane, room: int, step: Step) -> bool:
        sequence = lane.head
        if not self._may_fit(sequence, room):
            return False
        if not self._batch.start(sequence, step, self._pool.num_available - room):
            sequence.failed_room = room
            return False
        step.num_started += 1
        if not lane.num_waiting:
            self._residency.leave(lane, step.now)
        return True

    def _may_fit(self, sequence: Sequence, room: int) -> bool:
        """A quick look before anything is taken; a failed try is not repeated without more room."""
        limits = self._limits
        if room < 1 or (room <= sequence.failed_room and self._batch):
            return False
        num_pages = limits.pages_for(sequence.num_tokens)
        if num_pages <= room:
            return True
        num_cachable = (sequence.num_tokens - 1) // limits.page_tokens
        keys = sequence.submission.prefix_keys[:num_cachable]
        return num_pages - self._pool.num_shared(keys) <= room

    def _lose(self, sequence: Sequence, now: float) -> None:
        """Note since when a request whose turn it is cannot go on."""
        if sequence.lost_at is None and self._reserved is None:
            sequence.lost_at = now
            self._lost.append((now, sequence))
