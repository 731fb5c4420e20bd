"""Room for a model of a multi-model endpoint on one instance: which models are evicted for it.

a model is                        evicted
pinned, or in use                 never
loaded, of the disk's tier        after all that are not loaded, since it has to be unloaded first
any other                         the least `keep_value` first, until there is room

keep_value = P(next request is for it) * sqrt(seconds to bring it back) / bytes it takes

With the seconds themselves the mean load time per request is least, with a constant in their place
the hit rate is highest; the square root comes near both (docs/multi-model.md). A model that must
serve is always loaded: one that is asked for once has the least value and leaves first, so that it
takes the place of others like it and not of popular ones.

Source: GreedyDual-Size-Frequency, Cherkasova 1998, for the ratio; the popularity differs.
"""

from collections.abc import Iterable, Sequence
from math import sqrt

from hostelry.placement.model_cache_values import (
    CachedModel,
    Eviction,
    ModelCacheSetting,
    ModelCacheState,
    ModelsInUse,
    ModelTier,
    ModelTooLarge,
    RoomMade,
    RoomPlan,
    size_text,
)
from hostelry.placement.model_popularity import Demand, probabilities

LEAST_SECONDS = 1e-3  # of a load or download, so that popularity counts where they are not measured
LEAST_BYTES = 4096


def make_room(cache: ModelCacheState, key: str, need_bytes: int, now_s: float) -> RoomPlan:
    """The evictions after which `need_bytes` more fit for model `key`, or why they cannot.

    What `key` itself holds in the tier is never evicted, and stays beside the need. With a need of
    0 the plan brings a tier back to its capacity, for example after models grew.
    """
    if need_bytes < 0:
        raise ValueError(f"need_bytes is {need_bytes} for model {key}; it must be at least 0")
    lacking = need_bytes - cache.free_bytes
    if lacking <= 0:
        return RoomMade()
    fixed = sum(it.held_bytes(cache.tier) for it in cache.models if it.pinned or it.key == key)
    if fixed + need_bytes > cache.capacity_bytes:
        return ModelTooLarge(text=_too_large_text(cache, key, need_bytes, fixed))
    return _evicted(cache, key, lacking, f"{key} needs {size_text(need_bytes)}", now_s)


def make_room_after_refusal(
    cache: ModelCacheState, key: str, need_bytes: int, attempt: int, now_s: float
) -> RoomPlan:
    """The evictions before the load of `key` is tried again after the container answered 507.

    The container knows better than the sizes measured here, so at least one model goes. Each
    attempt, from 1, frees twice as much as the one before.
    """
    lacking = max(need_bytes, 1) << min(max(attempt, 1) - 1, 40)
    others = [it for it in cache.models if it.key != key and it.held_bytes(cache.tier)]
    movable = sum(it.held_bytes(cache.tier) for it in others if not it.pinned)
    if not movable:
        return ModelTooLarge(
            text=f"The container refused model {key} (507) with no other model left to evict: it "
            f"needs {size_text(need_bytes)} of {size_text(cache.capacity_bytes)}."
        )
    idle = sum(it.held_bytes(cache.tier) for it in others if it.evictable)
    lacking = min(lacking, idle or movable)
    return _evicted(cache, key, lacking, f"the container refused {key} (507)", now_s)


def evict_after_request(
    setting: ModelCacheSetting, model: CachedModel, num_waiting: int
) -> Eviction | None:
    """The unload that ModelCacheSetting Disabled asks for, once no request needs the model.

    `num_waiting` requests for it have arrived and are not in flight yet.
    """
    if setting is ModelCacheSetting.ENABLED or not model.loaded:
        return None
    if not model.evictable or num_waiting:
        return None
    return Eviction(
        key=model.key,
        tier=ModelTier.MEMORY,
        freed_bytes=model.memory_bytes,
        reason="ModelCacheSetting is Disabled and no request needs it",
    )


def most_valuable(cache: ModelCacheState, now_s: float) -> list[str]:
    """Keys of the models to load first on an empty instance of this capacity, best first.

    For a new instance of a scale-out, and for the models of an instance that was lost.
    """
    values = keep_values(cache.models, cache.tier, cache.demand, now_s)
    ranked = sorted(zip(values, cache.models, strict=True), key=_most_valuable_first)
    chosen, left = [], cache.capacity_bytes
    for _, model in ranked:
        size = model.memory_bytes if cache.tier is ModelTier.MEMORY else model.disk_bytes
        if size <= left:
            chosen.append(model.key)
            left -= size
    return chosen


def least_known(models: Sequence[CachedModel], most: int, demand: Demand, now_s: float) -> set[str]:
    """Keys of models to forget, so that at most `most` are remembered: gone, and least popular."""
    gone = [it for it in models if not it.loaded and not it.on_disk and it.evictable]
    surplus = min(len(models) - most, len(gone))
    if surplus <= 0:
        return set()
    shares = probabilities([it.popularity for it in gone], demand, now_s)
    ranked = sorted(zip(shares, (it.key for it in gone), strict=True))
    return {key for _, key in ranked[:surplus]}


def keep_values(
    models: Iterable[CachedModel], tier: ModelTier, demand: Demand, now_s: float
) -> list[float]:
    """The value of keeping each model in `tier`, per byte."""
    models = list(models)
    shares = probabilities([it.popularity for it in models], demand, now_s)
    if tier is ModelTier.DISK:
        return [
            share * sqrt(max(it.download_s, LEAST_SECONDS)) / max(it.disk_bytes, LEAST_BYTES)
            for share, it in zip(shares, models, strict=True)
        ]
    return [
        share * sqrt(max(_reload_s(it), LEAST_SECONDS)) / max(it.memory_bytes, LEAST_BYTES)
        for share, it in zip(shares, models, strict=True)
    ]


def _evicted(
    cache: ModelCacheState, key: str, lacking: int, cause: str, now_s: float
) -> RoomMade | ModelsInUse:
    """The least valuable idle models with `lacking` bytes together; those in use where too few."""
    others = [
        model
        for model in cache.models
        if not model.pinned and model.key != key and model.held_bytes(cache.tier)
    ]
    values = keep_values(others, cache.tier, cache.demand, now_s)
    last = cache.tier is ModelTier.DISK
    ranked = [
        entry[-1]
        for entry in sorted(
            (last and model.loaded, value, model.key, model)
            for model, value in zip(others, values, strict=True)
        )
    ]
    idle = [model for model in ranked if not model.in_flight]
    short = lacking - sum([model.held_bytes(cache.tier) for model in idle])
    if short > 0:
        in_use = [model for model in ranked if model.in_flight]
        drain = [*idle, *_fewest(in_use, short, cache.tier)]
        return ModelsInUse(
            text=f"Model {key} waits for {size_text(short)} of {cache.tier.value} that models with "
            f"requests in flight hold: {len(in_use)} of the {len(others)} that may be evicted.",
            lacking_bytes=short,
            drain=tuple(model.key for model in drain),
        )
    victims = _fewest(idle, lacking, cache.tier)
    return RoomMade(
        evictions=tuple(
            eviction for model in victims for eviction in _evictions(model, cache, cause, now_s)
        )
    )


def _fewest(ranked: Sequence[CachedModel], lacking: int, tier: ModelTier) -> list[CachedModel]:
    """The first of `ranked` with `lacking` bytes together, less those that need not go."""
    victims, freed = [], 0
    for model in ranked:
        if freed >= lacking:
            break
        victims.append(model)
        freed += model.held_bytes(tier)
    needed = []
    for model in reversed(victims):
        spared = freed - model.held_bytes(tier)
        if spared >= lacking:
            freed = spared
        else:
            needed.append(model)
    return needed[::-1]


def _evictions(
    model: CachedModel, cache: ModelCacheState, cause: str, now_s: float
) -> Iterable[Eviction]:
    why = f"{cause}; {_use_text(model, cache.demand, now_s)}"
    if cache.tier is ModelTier.DISK and model.loaded:
        yield Eviction(
            key=model.key,
            tier=ModelTier.MEMORY,
            freed_bytes=model.memory_bytes,
            reason=f"its files leave the disk: {why}",
        )
    yield Eviction(
        key=model.key,
        tier=cache.tier,
        freed_bytes=model.held_bytes(cache.tier),
        reason=why,
    )


def _use_text(model: CachedModel, demand: Demand, now_s: float) -> str:
    (share,) = probabilities([model.popularity], demand, now_s)
    idle_s = max(now_s - model.last_used_at_s, 0.0)
    return (
        f"least value: {1000 * share:.3g} in 1,000 requests are for it, {_reload_s(model):.3g} s "
        f"bring it back, last use {idle_s:.0f} s ago, {model.hits} hits"
    )


def _too_large_text(cache: ModelCacheState, key: str, need_bytes: int, fixed: int) -> str:
    where = f"the instance's {cache.tier.value} for models has {size_text(cache.capacity_bytes)}"
    text = f"Model {key} needs {size_text(need_bytes)}; {where}"
    return f"{text}, of which pinned models hold {size_text(fixed)}." if fixed else f"{text}."


def _reload_s(model: CachedModel) -> float:
    return model.load_s if model.on_disk else model.load_s + model.download_s


def _most_valuable_first(entry: tuple[float, CachedModel]) -> tuple[float, str]:
    value, model = entry
    return -value, model.key
