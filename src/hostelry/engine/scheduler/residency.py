"""Where the adapters of waiting requests are, and what to do to bring them near.

Lanes with waiting requests stand on shelves, each in fair order:

    absent   -> their adapters are to be fetched into host memory
    in_host  -> their adapters are to be copied into pages of the pool
    ready    -> resident, or the base model: they may start
    placeless-> resident, but all places for distinct adapters were taken when their turn came

While its adapter is on its way a lane stands on none, so that thousands of them cost nothing. An
adapter that was loaded for a request is held, and pages for that request's KV cache are promised,
until the request starts: else the next load could evict what this one brought, for ever.
"""

from hostelry.engine.pages.unified import AdapterState, PagePool
from hostelry.engine.scheduler.counters import FairOrder
from hostelry.engine.scheduler.decisions import Submission, Upload
from hostelry.engine.scheduler.records import Adapter, Lane, Place, Tenant

Shelf = FairOrder[Tenant, Lane]


class Residency:
    """The adapters that matter now, and the shelves of lanes."""

    def __init__(self, pool: PagePool, lookahead: int) -> None:
        self.ready: Shelf = FairOrder()
        self.placeless: Shelf = FairOrder()
        self.in_host: Shelf = FairOrder()
        self.absent: Shelf = FairOrder()
        self.kept: Adapter | None = None  # its promise is not broken
        self.num_active = 0  # distinct adapters of running requests
        self.promised_pages = 0
        self._pool = pool
        self._lookahead = lookahead
        self._adapters: dict[str, Adapter] = {}
        self._hosted: set[str] = set()
        self._fetching: set[str] = set()
        self._promised: dict[Adapter, None] = {}  # loading, or held until somebody starts

    @property
    def may_load(self) -> bool:
        """Whether another adapter may be brought into pages ahead of its turn."""
        return len(self._promised) < self._lookahead

    @property
    def active(self) -> list[Adapter]:
        """The adapters of running requests."""
        return [it for it in self._adapters.values() if it.num_running]

    # Lanes

    def enter(self, lane: Lane, submission: Submission) -> None:
        """A lane has waiting requests from now on."""
        if lane.key is not None:
            lane.adapter = self._adapter(lane.key, submission)
            lane.adapter.lanes[lane] = None
        self.shelve(lane)

    def leave(self, lane: Lane, now: float) -> None:
        """A lane has no waiting requests any more."""
        self.unshelve(lane)
        adapter = lane.adapter
        if adapter is not None:
            del adapter.lanes[lane]
            if not adapter.lanes:
                self._break_promise(adapter, now)
            self._forget(adapter)

    def shelve(self, lane: Lane, shelf: Shelf | None = None) -> None:
        """Put a lane on `shelf`, or where its adapter's place says; off any other."""
        if shelf is None:
            shelf = self._shelf(lane.adapter)
        if lane.shelf is not shelf:
            self.unshelve(lane)
            if shelf is not None:
                shelf.add(lane.tenant, lane)
                lane.shelf = shelf

    def unshelve(self, lane: Lane) -> None:
        """Take a lane off its shelf, if it is on one."""
        if lane.shelf is not None:
            lane.shelf.discard(lane.tenant, lane)
            lane.shelf = None

    # Decisions

    def fetch(self) -> tuple[str, ...]:
        """The adapters to bring into host memory now, fairest first, within the look-ahead."""
        fetches = []
        while len(self._fetching) < self._lookahead:
            lane = self.absent.first()
            if lane is None or lane.adapter is None:
                break
            self._fetching.add(lane.adapter.key)
            self._move(lane.adapter, Place.FETCHING)
            fetches.append(lane.adapter.key)
        return tuple(fetches)

    def load(self, adapter: Adapter, kv_pages: int, now: float) -> Upload:
        """Reserve pages, which are to be had, and promise `kv_pages` to who waits."""
        pages = self._pool.reserve_adapter(
            adapter.key, adapter.num_pages, reload_cost_s=adapter.reload_cost_s, now=now
        )
        self._promised[adapter] = None
        adapter.promised_pages = kv_pages
        self.promised_pages += kv_pages
        self._move(adapter, Place.LOADING)
        return Upload(adapter.key, pages)

    def is_evicted(self, adapter: Adapter) -> bool:
        """Whether a resident adapter was evicted meanwhile; its lanes are moved if so."""
        if self._pool.adapter_state(adapter.key) is AdapterState.RESIDENT:
            return False
        self._move(adapter, self._place(adapter.key))
        return True

    def start(self, adapter: Adapter, now: float) -> None:
        """One more request runs with it; the pool holds it for that request already."""
        self._break_promise(adapter, now)
        adapter.num_running += 1
        if adapter.num_running == 1:
            self.num_active += 1
            for lane in adapter.lanes:
                self.shelve(lane)

    def stop(self, adapter: Adapter, now: float) -> None:
        """One request fewer runs with it."""
        self._pool.unhold_adapter(adapter.key, now)
        adapter.num_running -= 1
        if not adapter.num_running:
            self.num_active -= 1
            self._forget(adapter)

    def break_promises(self, now: float) -> bool:
        """Let loaded adapters that nobody started with be evicted; whether there were any."""
        broken = [it for it in self._promised if it.is_held and it is not self.kept]
        for adapter in broken:
            self._break_promise(adapter, now)
        return bool(broken)

    # What the engine reports

    def arrived(self, key: str) -> None:
        """The adapter's weights are in host memory."""
        self._hosted.add(key)
        self._fetching.discard(key)
        adapter = self._adapters.get(key)
        if adapter is not None and adapter.place in (Place.ABSENT, Place.FETCHING):
            self._move(adapter, Place.IN_HOST)
            self._forget(adapter)

    def departed(self, key: str) -> None:
        """The adapter's weights are no longer in host memory, or will not come."""
        self._hosted.discard(key)
        self._fetching.discard(key)
        adapter = self._adapters.get(key)
        if adapter is not None and adapter.place in (Place.FETCHING, Place.IN_HOST):
            self._move(adapter, Place.ABSENT)
            self._forget(adapter)

    def uploaded(self, key: str) -> None:
        """The adapter's weights are in its pages. Raises ValueError when it has none."""
        if self._pool.adapter_state(key) is not AdapterState.RESIDENT:
            self._pool.activate_adapter(key)
        adapter = self._adapters.get(key)
        if adapter is None or adapter.place is Place.RESIDENT:
            return
        if adapter.lanes:
            self._pool.hold_adapter(key)
            adapter.is_held = True
            self._promised[adapter] = None
        self._move(adapter, Place.RESIDENT)
        self._forget(adapter)

    def failed(self, key: str, now: float) -> list[Lane]:
        """The adapter cannot be brought; the lanes that wait for it. A resident one is no failure.

        It is absent from now on, and would be fetched again for whoever comes next.
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
        self._move(adapter, Place.ABSENT)
        lanes = list(adapter.lanes)
        self._forget(adapter)
        return lanes

    def check_integrity(self) -> None:
        """Raise AssertionError where places, shelves and counts do not agree."""
        assert self.num_active == len(self.active), "active adapters are miscounted"
        assert self.promised_pages == sum(it.promised_pages for it in self._promised)
        for key, adapter in self._adapters.items():
            self._check(key, adapter)

    def _check(self, key: str, adapter: Adapter) -> None:
        place, state = adapter.place, self._pool.adapter_state(key)
        assert adapter.key == key, f"adapter {adapter.key} is found as {key}"
        assert (place is Place.FETCHING) <= (key in self._fetching), f"{key} is not fetched"
        assert (place is Place.LOADING) <= (state is AdapterState.LOADING), f"{key} does not load"
        assert not adapter.num_running or state is AdapterState.RESIDENT, f"{key} runs unloaded"
        assert not adapter.is_held or state is AdapterState.RESIDENT, f"{key} is held unloaded"
        assert not adapter.is_held or adapter in self._promised, f"{key} is held for nobody"
        assert adapter in self._promised or not adapter.promised_pages, f"{key} promises"
        expected = self._shelf(adapter)
        for lane in adapter.lanes:
            is_placeless = lane.shelf is self.placeless and expected is self.ready
            assert lane.num_waiting, f"lane {lane.key} waits for nothing"
            assert lane.shelf is expected or is_placeless, f"lane {lane.key} is misplaced"
            assert not (is_placeless and adapter.num_running), f"{lane.key} has its place"

    def _adapter(self, key: str, submission: Submission) -> Adapter:
        adapter = self._adapters.get(key)
        if adapter is None:
            adapter = self._adapters[key] = Adapter(
                key=key,
                num_pages=submission.adapter_pages,
                reload_cost_s=submission.reload_cost_s,
                place=self._place(key),
            )
        return adapter

    def _place(self, key: str) -> Place:
        state = self._pool.adapter_state(key)
        if state is AdapterState.RESIDENT:
            return Place.RESIDENT
        if state is AdapterState.LOADING:
            return Place.LOADING
        if key in self._hosted:
            return Place.IN_HOST
        return Place.FETCHING if key in self._fetching else Place.ABSENT

    def _shelf(self, adapter: Adapter | None) -> Shelf | None:
        if adapter is None or adapter.place is Place.RESIDENT:
            return self.ready
        if adapter.place is Place.IN_HOST:
            return self.in_host
        return self.absent if adapter.place is Place.ABSENT else None

    def _move(self, adapter: Adapter, place: Place) -> None:
        adapter.place = place
        for lane in adapter.lanes:
            self.shelve(lane)

    def _break_promise(self, adapter: Adapter, now: float) -> None:
        if adapter not in self._promised:
            return
        del self._promised[adapter]
        self.promised_pages -= adapter.promised_pages
        adapter.promised_pages = 0
        if adapter.is_held:
            adapter.is_held = False
            self._pool.unhold_adapter(adapter.key, now)

    def _forget(self, adapter: Adapter) -> None:
        """Drop the record of an adapter that nobody waits for or runs with.

        What is on its way is found again by `_place`, from the pool and the sets of keys.
        """
        if not adapter.lanes and not adapter.num_running and adapter not in self._promised:
            self._adapters.pop(adapter.key, None)
