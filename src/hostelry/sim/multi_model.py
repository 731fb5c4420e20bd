"""Copies of a multi-model endpoint in simulated time: they load and unload models as requests come.

The platform's own code chooses the copy (`ModelHomes`) and the models to evict (`make_room`). Loads
and downloads take the seconds that the trace's models declare.

Not modelled: containers that answer 507, models that do not load, and the pause of requests for
models that must leave.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from hostelry.dataplane.balancing.model_homes import ModelHomes
from hostelry.domain.load import LoadKey
from hostelry.domain.routes import CopyRoute
from hostelry.placement.model_cache import make_room
from hostelry.placement.model_cache_values import (
    CachedModel,
    Demand,
    ModelCacheState,
    ModelsInUse,
    ModelTier,
    ModelTooLarge,
    RoomMade,
)
from hostelry.sim.component import ComponentDeps, SimulatedComponent
from hostelry.sim.copies import SimulatedAnswer, SimulatedCopy, SimulatedRequest
from hostelry.sim.ledger import RequestFate
from hostelry.sim.service import MAX_CONCURRENCY

WAIT_S = 60.0  # of a request for its model, as an agent's limit


class HeldModel(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a model on a copy, and the seconds until it is there.

    Its server there works on `at_once` requests at a time. The others wait in order.
    """

    name: str
    memory_bytes: int
    accelerator_bytes: int = 0
    disk_bytes: int
    download_s: float
    load_s: float
    at_once: int = MAX_CONCURRENCY


class ModelRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes for models on a copy, and the models in the order of the trace's.

    `loaded` are the models that copies have at the beginning, as far as there is room.
    """

    memory_bytes: int
    accelerator_bytes: int | None = None
    disk_bytes: int
    models: Sequence[HeldModel]
    loaded: Sequence[int] = ()


class WaitingRequest(msgspec.Struct):
    """A request that waits for its model on a copy. `is_over` once it began, or gave up."""

    asked: SimulatedRequest
    since_s: float
    is_over: bool = False


class HeldState(msgspec.Struct):
    """A model on a copy: its facts, the requests that wait for it, and the work on it.

    `line` has the requests that wait for those before them.
    """

    facts: CachedModel
    at_once: int
    waiting: list[WaitingRequest] = msgspec.field(default_factory=list)
    line: deque[SimulatedRequest] = msgspec.field(default_factory=deque)
    in_flight: int = 0
    is_loading: bool = False
    is_ready: bool = False


class ModelShelf:
    """The models of one copy.

    Args:
        room: its bytes, and all models.
    """

    def __init__(self, room: ModelRoom) -> None:
        self._room = room
        self._states: dict[int, HeldState] = {}
        self._demand = Demand()
        self._by_key = {it.name: number for number, it in enumerate(room.models)}
        self.queue: deque[int] = deque()  # models that wait for room, in order
        self.ahead: deque[int] = deque()  # models to load before requests come for them

    def find(self, of: int) -> HeldState:
        """The state of a model."""
        state = self._states.get(of)
        if state is None:
            held = self._room.models[of]
            facts = CachedModel(
                key=held.name,
                disk_bytes=held.disk_bytes,
                memory_bytes=held.memory_bytes,
                accelerator_bytes=held.accelerator_bytes,
                download_s=held.download_s,
                load_s=held.load_s,
            )
            state = self._states[of] = HeldState(facts, held.at_once)
        return state

    def record_request(self, of: int, now_s: float) -> HeldState:
        """Count a request for a model."""
        state = self.find(of)
        before = state.facts.popularity
        self._demand = self._demand.after_request(before, now_s)
        state.facts = replace(state.facts, popularity=before.after_request(now_s))
        return state

    def count_use(self, state: HeldState, change: int) -> None:
        """A request of the model begins (1) or has ended (-1)."""
        state.in_flight += change
        state.facts = replace(state.facts, in_flight=state.in_flight + state.is_loading)

    def reserve(self, of: int, now_s: float) -> float | ModelsInUse | ModelTooLarge:
        """Make room, and reserve the model's bytes. Returns the seconds until it is loaded."""
        state = self.find(of)
        needs_download = not state.facts.on_disk
        tiers = [ModelTier.MEMORY]
        if self._room.accelerator_bytes is not None:
            tiers.append(ModelTier.ACCELERATOR)
        if needs_download:
            tiers.append(ModelTier.DISK)
        for tier in tiers:
            plan = make_room(
                self._state(tier), state.facts.key, state.facts.size_bytes(tier), now_s
            )
            if not isinstance(plan, RoomMade):
                return plan
            for eviction in plan.evictions:
                self._evict(eviction.key, eviction.tier)
        state.is_loading = True
        state.facts = replace(state.facts, loaded=True, on_disk=True, in_flight=state.in_flight + 1)
        return state.facts.load_s + (state.facts.download_s if needs_download else 0.0)

    def fill(self) -> None:
        """Have the models that are loaded at the beginning, until one does not fit."""
        used_bytes = used_disk_bytes = used_accelerator_bytes = 0
        for of in self._room.loaded:
            held = self._room.models[of]
            used_bytes += held.memory_bytes
            used_disk_bytes += held.disk_bytes
            used_accelerator_bytes += held.accelerator_bytes
            has_room = used_accelerator_bytes <= (self._room.accelerator_bytes or math.inf)
            if used_bytes > self._room.memory_bytes or used_disk_bytes > self._room.disk_bytes:
                has_room = False
            if not has_room:
                return
            if isinstance(self.reserve(of, 0.0), float):
                self.grant(self.find(of))

    def grant(self, state: HeldState) -> None:
        """The model has been loaded."""
        state.is_loading, state.is_ready = False, True
        self.count_use(state, 0)

    def _evict(self, key: str, tier: ModelTier) -> None:
        state = self._states[self._by_key[key]]
        if tier is ModelTier.DISK:
            state.facts = replace(state.facts, on_disk=False)
        else:
            state.is_ready = False
            state.facts = replace(state.facts, loaded=False)

    def _state(self, tier: ModelTier) -> ModelCacheState:
        capacities = {
            ModelTier.MEMORY: self._room.memory_bytes,
            ModelTier.ACCELERATOR: self._room.accelerator_bytes or 0,
            ModelTier.DISK: self._room.disk_bytes,
        }
        is_disk = tier is ModelTier.DISK
        facts = [it.facts for it in self._states.values()]
        return ModelCacheState(
            tier=tier,
            capacity_bytes=capacities[tier],
            models=[it for it in facts if (it.on_disk if is_disk else it.loaded)],
            demand=self._demand,
        )


class MultiModelComponent(SimulatedComponent):
    """The copies of a multi-model endpoint. Each has a shelf of models.

    Args:
        model: its position among the components.
        key: the name of its loads.
        deps: the parts that all components share.
        begins_at: the wall time of second 0.
        woken: called with the number of requests that wait for a copy.
        room: the room on each copy, and the models.
    """

    def __init__(
        self,
        model: int,
        key: LoadKey,
        deps: ComponentDeps,
        begins_at: float,
        woken: Callable[[SimulatedComponent, int], None],
        room: ModelRoom,
    ) -> None:
        super().__init__(model, key, deps, begins_at, woken)
        self._room = room
        self._homes = ModelHomes(lambda: deps.timeline.now_s)
        self._shelves: dict[str, ModelShelf] = {}
        self._freed: list[HeldState] = []  # models with a request that has just ended
        self._began: dict[int, tuple[float, int]] = {}  # by request: its time, and others then
        self.num_hits = self.num_misses = 0

    def ready(self, copy: SimulatedCopy, now_s: float) -> None:
        """A copy has come up, without models unless it is there at the beginning."""
        shelf = self._shelves.setdefault(copy.id, ModelShelf(self._room))
        if now_s == 0.0:
            shelf.fill()
        super().ready(copy, now_s)

    def _send(self, asked: SimulatedRequest, session: int, now_s: float) -> None:
        routes = [_route(it) for it in self.serving]
        for newcomer in self._homes.newcomers(routes):
            names = self._homes.popular(self.key)
            shelf = self._shelves[newcomer.id]
            shelf.ahead.extend(int(it) for it in names)
            self._load_ahead(self._find_copy(newcomer.id), now_s)
        choice = self._homes.choose(self.key, routes, self.outstanding, str(asked.of))
        copy = self.serving[choice.index]
        if choice.copy_to is not None:
            other = self.serving[choice.copy_to]
            self._shelves[other.id].ahead.append(asked.of)
            self._load_ahead(other, now_s)
        shelf = self._shelves[copy.id]
        state = shelf.record_request(asked.of, now_s)
        if state.is_ready:
            self.num_hits += 1
            self._begin_or_line_up(copy, asked, now_s, waited_s=0.0)
            return
        self.num_misses += 1
        waiting = WaitingRequest(asked._replace(delayed=True), now_s)
        state.waiting.append(waiting)
        copy.outstanding += 1
        self.outstanding[copy.place] = copy.outstanding
        self._deps.timeline.at(now_s + WAIT_S, lambda at_s: self._give_up(copy, waiting, at_s))
        if not state.is_loading and asked.of not in shelf.queue:
            shelf.queue.append(asked.of)
            self._load_next(copy, now_s)

    def _begin_or_line_up(
        self, copy: SimulatedCopy, asked: SimulatedRequest, now_s: float, waited_s: float
    ) -> None:
        """Begin a request of a loaded model, or let it wait for those before it."""
        state = self._shelves[copy.id].find(asked.of)
        if state.in_flight < state.at_once:
            self._begin_on(copy, asked, now_s, waited_s)
            return
        state.line.append(asked)
        copy.outstanding += 1
        if copy.place >= 0:
            self.outstanding[copy.place] = copy.outstanding

    def _begin_on(
        self, copy: SimulatedCopy, asked: SimulatedRequest, now_s: float, waited_s: float
    ) -> None:
        shelf = self._shelves[copy.id]
        shelf.count_use(shelf.find(asked.of), 1)
        route = _route(copy)
        self._homes.learn_lease(route, str(asked.of), hit=waited_s == 0.0, waited_s=waited_s)
        self._began[asked.number] = (now_s, copy.outstanding)
        self._begin(copy, asked, now_s)

    def _end(self, copy: SimulatedCopy, it: SimulatedAnswer, now_s: float) -> None:
        shelf = self._shelves[copy.id]
        state = shelf.find(it.asked.of)
        shelf.count_use(state, -1)
        self._freed.append(state)
        began_s, outstanding = self._began.pop(it.asked.number)
        self._homes.learn_answer(_route(copy), (now_s - began_s) * 1000.0, outstanding)
        super()._end(copy, it, now_s)

    def advance(self, copy: SimulatedCopy, now_s: float) -> None:
        """Answer the requests that have ended on a copy, and load what waited for their models."""
        super().advance(copy, now_s)
        freed, self._freed = self._freed, []
        for state in freed:
            if state.line:
                copy.outstanding -= 1
                self._begin_on(copy, state.line.popleft(), now_s, waited_s=0.0)
        if self._shelves[copy.id].queue:
            self._load_next(copy, now_s)

    def _load_next(self, copy: SimulatedCopy, now_s: float) -> None:
        """Load the models that wait for room, in order, as far as there is room."""
        shelf = self._shelves[copy.id]
        while shelf.queue:
            of = shelf.queue[0]
            found = shelf.reserve(of, now_s)
            if isinstance(found, ModelsInUse):
                return
            shelf.queue.popleft()
            if isinstance(found, ModelTooLarge):
                self._refuse(copy, shelf.find(of), now_s)
            else:
                self._deps.timeline.at(now_s + found, self._get_load_end(copy, of))

    def _get_load_end(self, copy: SimulatedCopy, of: int) -> Callable[[float], None]:
        def end_load(now_s: float) -> None:
            shelf = self._shelves[copy.id]
            state = shelf.find(of)
            shelf.grant(state)
            waiting, state.waiting = state.waiting, []
            for request in waiting:
                if not request.is_over:
                    request.is_over = True
                    copy.outstanding -= 1
                    waited_s = now_s - request.since_s
                    self._begin_or_line_up(copy, request.asked, now_s, waited_s)
            self._load_ahead(copy, now_s)
            self._load_next(copy, now_s)

        return end_load

    def _load_ahead(self, copy: SimulatedCopy, now_s: float) -> None:
        """Load the next model that no request waits for, if there is room without a wait."""
        shelf = self._shelves[copy.id]
        while shelf.ahead:
            of = shelf.ahead.popleft()
            state = shelf.find(of)
            if state.is_ready or state.is_loading:
                continue
            found = shelf.reserve(of, now_s)
            if isinstance(found, float):
                self._deps.timeline.at(now_s + found, self._get_load_end(copy, of))
                return

    def _refuse(self, copy: SimulatedCopy, state: HeldState, now_s: float) -> None:
        waiting, state.waiting = state.waiting, []
        for request in waiting:
            self._give_up(copy, request, now_s)

    def _give_up(self, copy: SimulatedCopy, waiting: WaitingRequest, now_s: float) -> None:
        if waiting.is_over:
            return
        waiting.is_over = True
        copy.outstanding -= 1
        if copy.place >= 0:
            self.outstanding[copy.place] = copy.outstanding
        elif not copy.outstanding and copy.id in self._leaving:
            self._remove(copy, now_s)
        self._fail(waiting.asked, RequestFate.NOT_LOADED, now_s)

    def _find_copy(self, copy_id: str) -> SimulatedCopy:
        return next(it for it in self.serving if it.id == copy_id)


def _route(copy: SimulatedCopy) -> CopyRoute:
    return CopyRoute(id=copy.id, address=copy.id)
