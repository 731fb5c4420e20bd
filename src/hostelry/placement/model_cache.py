"""Room for a model of a multi-model endpoint on one instance: which models are evicted for it.

a model is                        evicted
pinned, or in use                 never
loaded, of the disk's tier        after all that are not loaded, since it must be unloaded first
any other                         the least `keep_value` first, until there is room

keep_value = P(next request is for it) * (saved + burstiness * typical saved)
saved      = sqrt(seconds to bring it back) / bytes it takes

With the seconds themselves the mean load time per request is least. With a constant in their place
the hit rate is highest. The square root comes near both (docs/multi-model.md). In a burst, an
evicted model comes back at once and displaces others again, in proportion to its size. Per byte
this cost is the same for all models. A requested model is always loaded. A model that is requested
only once has the least value and leaves first, so that it displaces models like it, not popular
models.

Source: GreedyDual-Size-Frequency, Cherkasova 1998, for the ratio. The popularity differs.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop
from math import sqrt

from hostelry.base.printable import short_number
from hostelry.domain.model import ModelCacheSetting
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
    probabilities,
    size_text,
)

# Added to measurements, so that popularity counts without a measurement.
LEAST_SECONDS, LEAST_BYTES = 1e-3, 4096


def make_room(cache: ModelCacheState, key: str, need_bytes: int, now_s: float) -> RoomPlan:
    """The evictions after which `need_bytes` more fit for model `key`, or why they cannot.

    The room of `key` itself in the tier is never evicted, and adds to the need. With a need of 0
    the plan brings a tier back to its capacity, for example after models grew.
    """
    if need_bytes < 0:
        raise ValueError(f"need_bytes is {need_bytes} for model {key}; it must be at least 0")
    lacking = need_bytes - cache.free_bytes
    if lacking <= 0:
        return RoomMade()
    plan = _evict(cache, key, lacking, f"{key} needs {size_text(need_bytes)}", now_s)
    return plan or ModelTooLarge(text=_too_large_text(cache, key, need_bytes))


def make_room_after_refusal(
    cache: ModelCacheState, key: str, need_bytes: int, attempt: int, now_s: float
) -> RoomPlan:
    """The evictions before `key` is tried again: the container answered 507, or the disk was full.

    They know better than the sizes measured here, so at least one model goes. Each attempt, from
    1, frees twice as much as the one before.
    """
    disk = cache.tier is ModelTier.DISK
    refusal = "The disk is full for model" if disk else "The container refused (507) model"
    held = [
        (model.evictable, size)
        for model, size in zip(cache.models, cache.held_bytes(), strict=True)
        if size and not model.pinned and model.key != key
    ]
    if not held:
        return ModelTooLarge(
            text=f"{refusal} {key} with no other model left to evict: it needs "
            f"{size_text(need_bytes)} of {size_text(cache.capacity_bytes)}."
        )
    movable = sum(size for _, size in held)
    idle = sum(size for evictable, size in held if evictable)
    lacking = min(max(need_bytes, 1) << min(max(attempt, 1) - 1, 40), idle or movable)
    plan = _evict(cache, key, lacking, f"{refusal[0].lower()}{refusal[1:]} {key}", now_s)
    assert plan is not None, "no more is asked for than models hold"
    return plan


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
        size = model.size_bytes(cache.tier)
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


def expected_memory_bytes(model: CachedModel, others: Iterable[CachedModel]) -> int:
    """Memory to expect of a model: the memory of its last load, else by the size of its files.

    Loaded models among `others` show how much memory a byte of files takes. Without loaded models
    it is one byte.
    """
    if model.memory_bytes:
        return model.memory_bytes
    loaded = [other for other in others if other.loaded and other.load_s and other.disk_bytes]
    files = sum(other.disk_bytes for other in loaded)
    memory = sum(other.memory_bytes for other in loaded)
    return max(int(model.disk_bytes * memory / files) if files else model.disk_bytes, 1)


def expected_disk_bytes(model: CachedModel, others: Iterable[CachedModel]) -> int:
    """Disk to expect of a model: the earlier size of its files, else the mean of `others`."""
    known = [other.disk_bytes for other in others if other.on_disk and other.disk_bytes]
    return model.disk_bytes or (sum(known) // len(known) if known else 1)


def keep_values(
    models: Iterable[CachedModel], tier: ModelTier, demand: Demand, now_s: float
) -> list[float]:
    """The value of keeping each model in `tier`, per byte."""
    models = list(models)
    if tier is ModelTier.DISK:
        per_byte = [
            sqrt(LEAST_SECONDS + model.download_s) / (LEAST_BYTES + model.disk_bytes)
            for model in models
        ]
    else:
        per_byte = [
            sqrt(LEAST_SECONDS + model.load_s + (0.0 if model.on_disk else model.download_s))
            / (LEAST_BYTES + model.size_bytes(tier))
            for model in models
        ]
    typical = sorted(per_byte)[len(per_byte) // 2] if per_byte else 0.0
    displaced = demand.burstiness * typical
    shares = probabilities([model.popularity for model in models], demand, now_s)
    return [share * (saved + displaced) for share, saved in zip(shares, per_byte, strict=True)]


def _evict(
    cache: ModelCacheState, key: str, lacking: int, cause: str, now_s: float
) -> RoomMade | ModelsInUse | None:
    """The least valuable idle models with `lacking` bytes together, else also models in use.

    None if all together have too few bytes.
    """
    others = [
        (model, size)
        for model, size in zip(cache.models, cache.held_bytes(), strict=True)
        if size and not model.pinned and model.key != key
    ]
    values = keep_values([model for model, _ in others], cache.tier, cache.demand, now_s)
    last = cache.tier is ModelTier.DISK
    ranked = [
        (bool(model.in_flight), last and model.loaded, value, model.key, size, model)
        for value, (model, size) in zip(values, others, strict=True)
    ]
    # Most plans take few of many models: a heap is cheaper than a sort.
    heapify(ranked)
    victims: list[tuple[CachedModel, int]] = []
    freed = 0
    while freed < lacking:
        if not ranked:
            return None
        *_, size, model = heappop(ranked)
        victims.append((model, size))
        freed += size
    needed = _get_needed(victims, freed - lacking)
    if any(model.in_flight for model in needed):
        idle = sum(size for model, size in others if not model.in_flight)
        num_in_use = sum(1 for model, _ in others if model.in_flight)
        return ModelsInUse(
            text=f"Model {key} waits for {size_text(lacking - idle)} of {cache.tier.value} that "
            f"models with requests in flight hold: {num_in_use} of the {len(others)} that may be "
            f"evicted.",
            lacking_bytes=lacking - idle,
            drain=tuple(model.key for model in needed),
        )
    return RoomMade(
        evictions=tuple(
            eviction for model in needed for eviction in _evictions(model, cache, cause, now_s)
        )
    )


def _get_needed(victims: Sequence[tuple[CachedModel, int]], surplus: int) -> list[CachedModel]:
    """Victims without those, the last chosen first, that the `surplus` of bytes can spare.

    An idle model is not spared in place of one in use: the plan would wait without need.
    """
    needed = []
    in_use = any(model.in_flight for model, _ in victims)
    for model, size in reversed(victims):
        if size <= surplus and (not in_use or model.in_flight):
            surplus -= size
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
    reload_s = model.load_s if model.on_disk else model.load_s + model.download_s
    return (
        f"least value: {1000 * share:.3g} in 1,000 requests are for it, {short_number(reload_s)} s "
        f"bring it back, last use {idle_s:.0f} s ago, {model.hits} hits"
    )


def _too_large_text(cache: ModelCacheState, key: str, need_bytes: int) -> str:
    held = zip(cache.models, cache.held_bytes(), strict=True)
    fixed = sum(size for model, size in held if model.pinned or model.key == key)
    where = f"the instance's {cache.tier.value} for models has {size_text(cache.capacity_bytes)}"
    text = f"Model {key} needs {size_text(need_bytes)}; {where}"
    return (
        f"{text}, of which it and pinned models hold {size_text(fixed)}." if fixed else f"{text}."
    )


def _most_valuable_first(entry: tuple[float, CachedModel]) -> tuple[float, str]:
    value, model = entry
    return -value, model.key
