"""Models of one multi-model container by TargetModel. Requests for a model share one load.

a request for a model that is          gets
loaded                                 the model, at once
being loaded                           the model after that load, with all others that wait for it
loaded, and drained for another        the model after its next load
not loaded                             a load
not loaded after 60 s                  ModelNotReadyError, and the load continues, up to 360 s
a recent failure to load               the same failure
"""

import asyncio
from collections.abc import Collection
from functools import partial

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.domain.model import ModelCacheSetting
from hostelry.fleet.agent.models.loading import ModelLoading
from hostelry.fleet.agent.models.tiers import HostedModel, ModelTiers, Ticket
from hostelry.fleet.agent.models.values import (
    ModelNotReadyError,
    ModelUse,
    TargetModelDeps,
    TargetModelLimits,
    TargetModelLoadError,
    check_target,
)
from hostelry.placement.model_cache_values import CachedModel, Eviction, ModelTier

MORE_ROOM_WAIT_S = 10.0


class _Failure(msgspec.Struct, frozen=True):
    """The failure of a model's last load, which answers further requests until `until_s`."""

    error: HostelryError
    kept_s: float
    until_s: float


class TargetModels:
    """The models of one container, which lie below `prefix_uri`."""

    def __init__(
        self,
        copy_id: str,
        prefix_uri: str,
        deps: TargetModelDeps,
        limits: TargetModelLimits,
        setting: ModelCacheSetting = ModelCacheSetting.ENABLED,
    ) -> None:
        self._deps = deps
        self._limits = limits
        self._setting = setting
        self._tiers = ModelTiers(copy_id, deps, limits)
        self._loading = ModelLoading(prefix_uri, self._tiers, deps, limits)
        self._failures: dict[str, _Failure] = {}
        self._loads: set[asyncio.Task[None]] = set()

    @property
    def are_kept(self) -> bool:
        """Whether models stay after their requests."""
        return self._setting is ModelCacheSetting.ENABLED

    @property
    def models(self) -> list[CachedModel]:
        """Every model that is remembered, loaded or not."""
        return self._tiers.facts

    @property
    def stuck(self) -> dict[str, str]:
        """The models that the container may still have though they were unloaded, and why."""
        return self._tiers.stuck

    @property
    def evictions(self) -> list[Eviction]:
        """The last evictions, the latest last."""
        return list(self._tiers.evictions)

    async def acquire(self, target: str) -> ModelUse:
        """Load the model and keep it until `release`, which each successful call needs once.

        Raises TargetModelError, ModelNotReadyError or TargetModelLoadError.
        """
        check_target(target)
        self._raise_recent_failure(target)
        model = self._tiers.record_request(target)
        if model.ready and not self._tiers.is_draining(model):
            model.in_flight += 1
            self._tiers.count_hit(model)
            return ModelUse(target=target, model_id=model.id, hit=True)
        started_s = self._deps.clock.now()
        ticket = Ticket()
        model.tickets.add(ticket)
        try:
            await self._wait(model, ticket)
        except BaseException:
            model.tickets.discard(ticket)
            if ticket.granted:
                self._give_back(model)
            raise
        waited_s = self._deps.clock.now() - started_s
        return ModelUse(target=target, model_id=model.id, hit=False, waited_s=waited_s)

    def release(self, use: ModelUse, uses: int = 1) -> None:
        """Give a model back after its request, or after as many as `uses`."""
        for _ in range(uses - 1):
            self._tiers.count_hit(self._tiers.record_request(use.target))
        model = self._tiers.find(use.target)
        if model is not None and model.in_flight:
            self._give_back(model)

    async def make_room_for_request(self, target: str) -> None:
        """Evict other models if possible, after the container answered a request with 507.

        The target's model is in use.
        """
        model = self._tiers.find(target)
        if model is None:
            return
        memory, need_bytes = ModelTier.MEMORY, model.facts.memory_bytes
        try:
            async with asyncio.timeout(MORE_ROOM_WAIT_S):
                await self._tiers.free_more(model, memory, need_bytes, attempt=1)
        except (TimeoutError, TargetModelLoadError) as error:
            self._deps.note(f"a request for {target} was answered with 507; no room: {error!r}")

    def on_missing_model(self, target: str) -> None:
        """Record that the container answered 404 for a model. The next request loads it again."""
        model = self._tiers.find(target)
        if model is not None and model.ready:
            self._tiers.record_unload(model)

    def on_restart(self, left: Collection[str] = (), reason: str = "") -> None:
        """Record that the container has no models, except perhaps `record_left`, for `reason`."""
        self._failures.clear()
        self._tiers.on_restart()
        self._tiers.record_left(left, reason)

    def pin(self, targets: Collection[str]) -> None:
        """Never evict these models. They are loaded by their first request."""
        self._tiers.pin(targets)

    async def close(self) -> None:
        """End the loads under way."""
        for load in self._loads:
            load.cancel()
        await asyncio.gather(*self._loads, return_exceptions=True)
        await self._tiers.close()

    def _give_back(self, model: HostedModel) -> None:
        model.in_flight -= 1
        self._tiers.update_facts(model)
        self._tiers.unload_after_request(model, self._setting)

    async def _wait(self, model: HostedModel, ticket: Ticket) -> None:
        """Wait until the model is granted. The load continues if the wait ends."""
        try:
            async with asyncio.timeout(self._limits.wait_s):
                while not ticket.granted:
                    await asyncio.shield(model.load or self._start(model))
        except TimeoutError as error:
            raise ModelNotReadyError(
                f"Model {model.facts.key} is being loaded; it was not ready within "
                f"{self._limits.wait_s:g} s. Send the request again."
            ) from error

    def _start(self, model: HostedModel) -> "asyncio.Task[None]":
        load = asyncio.create_task(self._loading.load_model(model))
        model.load = load
        self._loads.add(load)
        load.add_done_callback(partial(self._on_load_end, model))
        return load

    def _on_load_end(self, model: HostedModel, load: "asyncio.Task[None]") -> None:
        self._loads.discard(load)
        model.load = None
        error = None if load.cancelled() else load.exception()
        before = self._failures.pop(model.facts.key, None)
        if error is not None:
            self._deps.note(f"{model.facts.key} was not loaded: {error!r}")
        if isinstance(error, HostelryError):
            kept_s = self._limits.failure_kept_s
            if before is not None and isinstance(error, TargetModelLoadError):
                kept_s = min(2 * before.kept_s, self._limits.failure_kept_most_s)
            if len(self._failures) >= self._limits.num_known:
                del self._failures[next(iter(self._failures))]  # the oldest
            until_s = self._deps.clock.now() + kept_s
            self._failures[model.facts.key] = _Failure(error, kept_s, until_s)

    def _raise_recent_failure(self, target: str) -> None:
        """Raise the failure of the last load again, while it is kept."""
        failure = self._failures.get(target)
        if failure is not None and self._deps.clock.now() < failure.until_s:
            raise failure.error.with_traceback(None)
