"""Policies that evict models from a tier: ours, LRU, LFU, GDSF and Belady's."""

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec.structs import replace

from benchmarks.model_trace import ModelTrace
from hostelry.placement.model_cache import make_room
from hostelry.placement.model_cache_values import (
    CachedModel,
    Demand,
    ModelCacheState,
    ModelTier,
    RoomMade,
)

NEVER = 1 << 60


class TierPolicy(Protocol):
    """A policy that chooses which models leave one tier."""

    def requested(self, model: int, position: int, at_s: float, hit: bool) -> None:
        """Record a request of the trace that this tier sees, and whether the tier has the model."""

    def victims(
        self, cached: Collection[int], incoming: int, lacking: int, position: int, at_s: float
    ) -> Sequence[int]:
        """Models of `cached`, with `lacking` bytes together, to evict for `incoming`."""

    def changed(self, model: int, there: bool) -> None:
        """Record that a model is in the tier, or has left it."""


class _Ranked:
    """Evicts by a score, the least first."""

    def __init__(self, sizes: Sequence[int], costs_s: Sequence[float], trace: ModelTrace) -> None:
        self.sizes, self.costs_s = sizes, costs_s
        self.score: list[float] = [0.0] * len(sizes)

    def requested(self, model: int, position: int, at_s: float, hit: bool) -> None:
        raise NotImplementedError

    def victims(
        self, cached: Collection[int], incoming: int, lacking: int, position: int, at_s: float
    ) -> Sequence[int]:
        found = []
        for model in sorted(cached, key=self.score.__getitem__):
            if lacking <= 0:
                break
            found.append(model)
            lacking -= self.sizes[model]
        return found

    def changed(self, model: int, there: bool) -> None:
        """Do nothing, since scores change only with requests."""


class Lru(_Ranked):
    """Least recently used."""

    def requested(self, model: int, position: int, at_s: float, hit: bool) -> None:
        """Remember the request's position."""
        self.score[model] = position


class Lfu(_Ranked):
    """Fewest requests since its load. Among equals, the least recently used model is evicted."""

    def requested(self, model: int, position: int, at_s: float, hit: bool) -> None:
        """Count the request."""
        requests = int(self.score[model]) + 1 if hit else 1
        self.score[model] = requests + position / NEVER


class Gdsf(_Ranked):
    """GreedyDual-Size-Frequency with aging: requests since the load, times cost, by bytes."""

    unit_cost = False

    def __init__(self, sizes: Sequence[int], costs_s: Sequence[float], trace: ModelTrace) -> None:
        super().__init__(sizes, costs_s, trace)
        self._requests = [0] * len(sizes)
        self._age = 0.0

    def requested(self, model: int, position: int, at_s: float, hit: bool) -> None:
        """Count the request, and set the score."""
        self._requests[model] = self._requests[model] + 1 if hit else 1
        cost = 1.0 if self.unit_cost else self.costs_s[model]
        self.score[model] = self._age + self._requests[model] * cost / self.sizes[model]

    def victims(
        self, cached: Collection[int], incoming: int, lacking: int, position: int, at_s: float
    ) -> Sequence[int]:
        """The models with the least score, which becomes the age."""
        found = super().victims(cached, incoming, lacking, position, at_s)
        self._age = max([self._age, *(self.score[model] for model in found)])
        return found


class GdsfHits(Gdsf):
    """GDSF for the hit rate: every miss costs the same."""

    unit_cost = True


class Belady(_Ranked):
    """Evicts the model whose next request is last, since it knows the trace."""

    def __init__(self, sizes: Sequence[int], costs_s: Sequence[float], trace: ModelTrace) -> None:
        super().__init__(sizes, costs_s, trace)
        self.next_use = [NEVER] * len(trace.models)
        seen: dict[int, int] = {}
        for position in reversed(range(len(trace.models))):
            model = trace.models[position]
            self.next_use[position] = seen.get(model, NEVER)
            seen[model] = position

    def requested(self, model: int, position: int, at_s: float, hit: bool) -> None:
        """Remember the next use."""
        self.score[model] = -self.next_use[position]


class BeladySize(Belady):
    """Belady's for mixed sizes: evicts the most bytes times requests until the model's next use."""

    by_cost = False

    def victims(
        self, cached: Collection[int], incoming: int, lacking: int, position: int, at_s: float
    ) -> Sequence[int]:
        """The models that waste the most."""

        def wasted(model: int) -> float:
            bytes_requests = (-self.score[model] - position) * self.sizes[model]
            return bytes_requests / (self.costs_s[model] if self.by_cost else 1.0)

        found = []
        for model in sorted(cached, key=wasted, reverse=True):
            if lacking <= 0:
                break
            found.append(model)
            lacking -= self.sizes[model]
        return found


class BeladyCost(BeladySize):
    """Belady's for mixed sizes and costs: also divided by the seconds of the miss."""

    by_cost = True


class Ours:
    """`placement/model_cache.py`, for both tiers of an instance, with the same popularity."""

    def __init__(self, trace: ModelTrace) -> None:
        self._demand = Demand()
        self._models = [
            CachedModel(
                key=f"{number:06}",
                disk_bytes=kind.disk_bytes,
                memory_bytes=kind.memory_bytes,
                download_s=kind.download_s,
                load_s=kind.load_s,
            )
            for number, kind in enumerate(trace.kinds)
        ]

    def tier(self, tier: ModelTier) -> "OursOfTier":
        """The policy of one tier."""
        return OursOfTier(self, tier)

    def requested(self, model: int, at_s: float) -> None:
        """Count a request."""
        before = self._models[model].popularity
        self._demand = self._demand.after_request(before, at_s)
        self._models[model] = replace(self._models[model], popularity=before.after_request(at_s))

    def changed(self, model: int, tier: ModelTier, there: bool) -> None:
        """Record that a model is in a tier, or has left it."""
        now = self._models[model]
        self._models[model] = (
            replace(now, loaded=there) if tier is ModelTier.MEMORY else replace(now, on_disk=there)
        )

    def victims(
        self, tier: ModelTier, cached: Collection[int], incoming: int, lacking: int, at_s: float
    ) -> list[int]:
        """The models that the plan names."""
        state = ModelCacheState(
            tier=tier,
            capacity_bytes=sum(self._models[model].held_bytes(tier) for model in cached),
            models=[self._models[model] for model in cached],
            demand=self._demand,
        )
        plan = make_room(state, self._models[incoming].key, lacking, at_s)
        if not isinstance(plan, RoomMade):
            raise TypeError(plan.text)
        return [int(eviction.key) for eviction in plan.evictions if eviction.tier is tier]


class OursOfTier:
    """`Ours` for one tier. Only the memory's policy counts the requests."""

    def __init__(self, both: Ours, tier: ModelTier) -> None:
        self._both, self._tier = both, tier

    def requested(self, model: int, position: int, at_s: float, hit: bool) -> None:
        """Count the request once."""
        if self._tier is ModelTier.MEMORY:
            self._both.requested(model, at_s)

    def changed(self, model: int, there: bool) -> None:
        """Record that a model is in the tier, or has left it."""
        self._both.changed(model, self._tier, there)

    def victims(
        self, cached: Collection[int], incoming: int, lacking: int, position: int, at_s: float
    ) -> Sequence[int]:
        """The models that the plan names."""
        return self._both.victims(self._tier, cached, incoming, lacking, at_s)


RANKED = {
    "LRU": Lru,
    "LFU": Lfu,
    "GDSF": Gdsf,
    "GDSF, hits": GdsfHits,
    "Belady": Belady,
    "Belady, size": BeladySize,
    "Belady, cost": BeladyCost,
}
OURS = "ours"
NAMES = (OURS, *RANKED)


def policies(name: str, trace: ModelTrace) -> tuple[TierPolicy, TierPolicy]:
    """The policies of memory and disk by that name."""
    if name == OURS:
        both = Ours(trace)
        return both.tier(ModelTier.MEMORY), both.tier(ModelTier.DISK)
    make, kinds = RANKED[name], trace.kinds
    return (
        make([it.memory_bytes for it in kinds], [it.load_s for it in kinds], trace),
        make([it.disk_bytes for it in kinds], [it.download_s for it in kinds], trace),
    )
