"""Memory and disk of a container's models. Makes room as `placement/model_cache.py` plans.

Knows nothing of downloads and loads. A plan is carried out at once: no await lies between a
decision and its effect on the next decision.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hostelry.domain.model import ModelCacheSetting
from hostelry.fleet.agent.models.values import (
    TargetModelDeps,
    TargetModelLimits,
    TargetModelLoadError,
    TargetModelTooLargeError,
    model_id,
)
from hostelry.placement.model_cache import (
    evict_after_request,
    least_known,
    make_room,
    make_room_after_refusal,
)
from hostelry.placement.model_cache_values import (
    CachedModel,
    Demand,
    Eviction,
    ModelCacheState,
    ModelsInUse,
    ModelTier,
    ModelTooLarge,
    RoomMade,
    RoomPlan,
)

KEPT_EVICTIONS = 200
FORGET_BEYOND = 1.1


class Ticket(msgspec.Struct, eq=False):
    """A request that waits for its model. Once `granted` it counts as in flight."""

    granted: bool = False


class TooLarge(msgspec.Struct, frozen=True):
    """The files of a model that did not fit, and the error that answers until `until_s`."""

    folder: Path
    error: TargetModelTooLargeError
    until_s: float


class HostedModel(msgspec.Struct):
    """One model: its facts, and the work on it.

    `ready` is True once the container has loaded it. `loaded` of the facts is True from the
    reservation on. `stuck` is the reason if the server may still have the model, because an unload
    was not answered.
    """

    facts: CachedModel
    id: str
    ready: bool = False
    loading: bool = False
    in_flight: int = 0
    tickets: set[Ticket] = msgspec.field(default_factory=set)
    load: "asyncio.Task[None] | None" = None
    unload: "asyncio.Task[None] | None" = None
    stuck: str | None = None
    too_large: TooLarge | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it must be remembered, because a request, load or unload is under way."""
        return bool(self.tickets or self.in_flight or self.load or self.unload or self.stuck)


class ModelTiers:
    """Memory and disk of one container's models."""

    def __init__(self, copy_id: str, deps: TargetModelDeps, limits: TargetModelLimits) -> None:
        self._copy_id = copy_id
        self._deps = deps
        self._limits = limits
        self._models: dict[str, HostedModel] = {}
        self._demand = Demand()
        self._drains: dict[str, frozenset[str]] = {}  # by the model that waits for their room
        self._pinned: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        # Each with the loop's time until which loads wait for it.
        self._unloads: dict[asyncio.Task[None], float] = {}
        self._turn = {tier: asyncio.Lock() for tier in ModelTier}
        self.evictions: deque[Eviction] = deque(maxlen=KEPT_EVICTIONS)

    @property
    def facts(self) -> list[CachedModel]:
        """The facts of every model that is remembered."""
        return [model.facts for model in self._models.values()]

    def record_request(self, target: str) -> HostedModel:
        """Count a request for the model. Returns the model."""
        now_s = self._deps.clock.now()
        model = self._get_or_add(target)
        before = model.facts.popularity
        self._demand = self._demand.after_request(before, now_s)
        model.facts = replace(model.facts, popularity=before.after_request(now_s))
        if len(self._models) > self._limits.num_known * FORGET_BEYOND:
            known = self._limits.num_known
            for key in least_known(self.facts, known, self._demand, now_s) - {target}:
                if not self._models[key].is_busy:
                    del self._models[key]
        return model

    def _get_or_add(self, target: str) -> HostedModel:
        model = self._models.get(target)
        if model is None:
            facts = CachedModel(key=target, pinned=target in self._pinned)
            model = self._models[target] = HostedModel(facts, model_id(target))
        return model

    @property
    def stuck(self) -> dict[str, str]:
        """The models that the server may still have, by target, and why."""
        return {key: it.stuck for key, it in self._models.items() if it.stuck is not None}

    def record_left(self, targets: Collection[str], reason: str) -> None:
        """Record models that the server may have from an earlier agent."""
        for target in targets:
            self._get_or_add(target).stuck = reason
            self._deps.note(f"{target} may be in the server still: {reason}")

    def on_restart(self) -> None:
        """Record that the container has no model."""
        for model in self._models.values():
            model.stuck = model.too_large = None
            if model.ready:
                self.record_unload(model)

    def pin(self, targets: Collection[str]) -> None:
        """Replace the models that are never evicted."""
        self._pinned = frozenset(targets)
        for model in self._models.values():
            model.facts = replace(model.facts, pinned=model.facts.key in self._pinned)

    def find(self, target: str) -> HostedModel | None:
        """The model, if it is remembered."""
        return self._models.get(target)

    def is_draining(self, model: HostedModel) -> bool:
        """Whether it takes no new request until it is evicted."""
        return any(model.facts.key in drain for drain in self._drains.values())

    def update_facts(self, model: HostedModel) -> None:
        """Update the facts after a change of the work on a model, and wake waiting models."""
        model.facts = replace(model.facts, in_flight=model.in_flight + model.loading)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def grant(self, model: HostedModel) -> None:
        """Grant a loaded model to all waiting requests, before it can be evicted again."""
        model.ready = True
        for ticket in model.tickets:
            ticket.granted = True
        model.in_flight += len(model.tickets)
        model.tickets.clear()
        self.update_facts(model)

    def limit_estimate(self, tier: ModelTier, estimate_bytes: int) -> int:
        """Limit the estimate to the room that pinned models leave, so that it refuses no model."""
        state = self._state(tier)
        held = zip(state.models, state.held_bytes(), strict=True)
        pinned = sum(size for facts, size in held if facts.pinned)
        return max(min(estimate_bytes, state.capacity_bytes - pinned), 1)

    async def reserve_memory(self, model: HostedModel, need_bytes: int) -> None:
        """Evict until `need_bytes` of memory are free for the model, and reserve them.

        Reserves the accelerator memory that it declares, too. Models take turns, so that none
        overtakes another. Raises TargetModelLoadError if no wait can help.
        """
        async with self._turn[ModelTier.MEMORY]:
            if self._limits.accelerator_bytes is not None:
                # Do not empty the accelerator for a model that is too large for the memory.
                _check_fits(self._plan(model, ModelTier.MEMORY, need_bytes)())
                declared = model.facts.accelerator_bytes
                plan = self._plan(model, ModelTier.ACCELERATOR, declared)
                self._carry_out(await self._await_plan(model, plan))
            evictions = await self._await_plan(
                model, self._plan(model, ModelTier.MEMORY, need_bytes)
            )
            model.facts = replace(model.facts, loaded=True, memory_bytes=need_bytes)
            self._carry_out(evictions)
        await self._await_unloads()

    async def reserve_disk(self, model: HostedModel, need_bytes: int) -> None:
        """Evict until `need_bytes` of disk are free for the model, and reserve them."""
        async with self._turn[ModelTier.DISK]:
            evictions = await self._await_plan(model, self._plan(model, ModelTier.DISK, need_bytes))
            model.facts = replace(model.facts, on_disk=True, disk_bytes=need_bytes)
            self._carry_out(evictions)
        await self._await_unloads()

    async def free_more(
        self, model: HostedModel, tier: ModelTier, need_bytes: int, attempt: int
    ) -> None:
        """Evict more than planned, because the container or the disk is full.

        Takes no turn, because the model whose turn it is may wait for the end of this load.
        """

        def plan() -> RoomPlan:
            return make_room_after_refusal(
                self._state(tier), model.facts.key, need_bytes, attempt, self._deps.clock.now()
            )

        self._carry_out(await self._await_plan(model, plan))
        await self._await_unloads()

    async def await_turn(self) -> None:
        """Wait until no other model waits for memory."""
        async with self._turn[ModelTier.MEMORY]:
            return

    def shrink(self, tier: ModelTier, model: HostedModel) -> None:
        """Evict down to the capacity if possible, after `model` turned out larger.

        Raises TargetModelLoadError if the model alone is too large.
        """
        plan = self._plan(model, tier, 0)()
        _check_fits(plan)
        if isinstance(plan, RoomMade):
            self._carry_out(plan.evictions)

    def unload_after_request(self, model: HostedModel, setting: ModelCacheSetting) -> None:
        """Unload the model if the setting asks for it now."""
        eviction = evict_after_request(setting, model.facts, len(model.tickets))
        if eviction is not None and model.ready:
            self._carry_out([eviction])

    def count_hit(self, model: HostedModel) -> None:
        """Record a request that found its model loaded."""
        model.facts = replace(model.facts, hits=model.facts.hits + 1)
        self.update_facts(model)

    def withdraw(self, model: HostedModel) -> None:
        """Unload a model, even if its load failed, because the container may have kept parts."""
        model.ready = False
        model.facts = replace(model.facts, loaded=False)
        model.unload = asyncio.create_task(self._unload(model))
        waited_until_s = asyncio.get_running_loop().time() + self._limits.unload_wait_s
        self._unloads[model.unload] = waited_until_s
        model.unload.add_done_callback(self._unloads.pop)
        self.update_facts(model)

    async def unstick(self, model: HostedModel) -> None:
        """Repeat an unload that was not answered, before the model is loaded again.

        Raises TargetModelLoadError if this unload is not answered either.
        """
        if model.stuck is None:
            return
        self.withdraw(model)
        if model.unload is not None:
            await asyncio.shield(model.unload)
        if model.stuck is not None:
            raise TargetModelLoadError(
                f"Model {model.facts.key} is not loaded: the server has not unloaded what it had "
                f"of it before ({model.stuck})."
            )

    def record_unload(self, model: HostedModel) -> None:
        """Record that the container does not have the model."""
        model.ready = False
        model.facts = replace(model.facts, loaded=False)
        self.update_facts(model)

    def holder(self, model: HostedModel) -> str:
        """The name under which the artifact cache holds the model's files."""
        return f"{self._copy_id}/{model.id}"

    def remove_files(self, model: HostedModel) -> None:
        """Release the model's files in the artifact cache."""
        self._deps.artifacts.release(self.holder(model))
        model.facts = replace(model.facts, on_disk=False)

    async def close(self) -> None:
        """Wait for the unloads under way, and end those that take too long."""
        await self._await_unloads()
        late = list(self._unloads)
        for unload in late:
            unload.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _state(self, tier: ModelTier) -> ModelCacheState:
        capacities = {
            ModelTier.MEMORY: self._limits.memory_bytes,
            ModelTier.ACCELERATOR: self._limits.accelerator_bytes or 0,
            ModelTier.DISK: self._limits.disk_bytes,
        }
        is_disk = tier is ModelTier.DISK
        return ModelCacheState(
            tier=tier,
            capacity_bytes=capacities[tier],
            models=[it for it in self.facts if (it.on_disk if is_disk else it.loaded)],
            demand=self._demand,
        )

    def _plan(self, model: HostedModel, tier: ModelTier, need_bytes: int) -> Callable[[], RoomPlan]:
        return lambda: make_room(
            self._state(tier), model.facts.key, need_bytes, self._deps.clock.now()
        )

    async def _await_plan(
        self, model: HostedModel, plan: Callable[[], RoomPlan]
    ) -> Collection[Eviction]:
        """Wait until `plan` makes room. Returns its evictions.

        Raises TargetModelLoadError if no wait makes room.
        """
        patience_ends_s = self._deps.clock.now() + self._limits.patience_s
        try:
            while isinstance(found := plan(), ModelsInUse):
                await self._await_change(model, found, patience_ends_s)
        finally:
            self._drain(model, frozenset())
        if isinstance(found, ModelTooLarge):
            raise TargetModelTooLargeError(found.text)
        return found.evictions

    async def _await_change(
        self, model: HostedModel, found: ModelsInUse, patience_ends_s: float
    ) -> None:
        changed = self._changed
        left_s = patience_ends_s - self._deps.clock.now()
        if left_s <= 0 and self._drains.get(model.facts.key) != frozenset(found.drain):
            self._deps.note(f"{found.text} These take no new requests: {', '.join(found.drain)}")
            self._drain(model, frozenset(found.drain))
            return
        try:
            async with asyncio.timeout(left_s if left_s > 0 else None):
                await changed.wait()
        except TimeoutError:
            return

    def _drain(self, model: HostedModel, targets: frozenset[str]) -> None:
        """Replace the models that take no new requests because `model` waits for their room."""
        self._drains.pop(model.facts.key, None)
        if targets:
            self._drains[model.facts.key] = targets

    def _carry_out(self, evictions: Collection[Eviction]) -> None:
        for eviction in evictions:
            self.evictions.append(eviction)
            self._deps.note(f"{eviction.key} leaves the {eviction.tier.value}: {eviction.reason}")
            model = self._models[eviction.key]
            if eviction.tier is ModelTier.DISK:
                self.remove_files(model)
            else:
                self.withdraw(model)

    async def _unload(self, model: HostedModel) -> None:
        started_s = self._deps.clock.now()
        answer = await self._deps.routes.unload(model.facts.key)
        self._deps.record_seconds("unloading", self._deps.clock.now() - started_s)
        if answer.fault is not None:
            self._deps.note(
                f"{model.facts.key} was not unloaded: {answer.fault}; its memory counts as free"
            )
        # If the server answered, the model's next load shows whether the server still has it.
        model.stuck = answer.fault if answer.status is None else None
        model.unload = None

    async def _await_unloads(self) -> None:
        """Wait for all unloads under way, which continue if the wait ends.

        A plan may count on bytes that an eviction for another model frees. Each unload is awaited
        for at most `unload_wait_s` from its start, so that an unload that hangs does not delay
        every load. The container answers 507 if it needs those bytes.
        """
        waiting = dict(self._unloads)
        while waiting:
            now_s = asyncio.get_running_loop().time()
            left = {it: end_s for it, end_s in waiting.items() if end_s > now_s and not it.done()}
            if left:
                await asyncio.wait(left, timeout=min(left.values()) - now_s)
            waiting = left


def _check_fits(plan: RoomPlan) -> None:
    """Raise TargetModelTooLargeError if no wait and no eviction can make room."""
    if isinstance(plan, ModelTooLarge):
        raise TargetModelTooLargeError(plan.text)
