"""Models in a small cache for tests, and checks that each plan for room must pass."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from hostelry.placement.model_cache_values import (
    CachedModel,
    DecayedCounts,
    Demand,
    ModelCacheState,
    ModelTier,
    RoomMade,
    RoomPlan,
)

MB = 1024 * 1024
NOW = 1000.0


def popular(requests: float, at_s: float = NOW) -> DecayedCounts:
    return DecayedCounts((requests,) * 4, at_s)


def model(key: str, memory_mb: float = 10, requests: float = 1.0, **fields: Any) -> CachedModel:
    made = CachedModel(
        key=key,
        on_disk=True,
        loaded=True,
        disk_bytes=int(memory_mb * MB),
        memory_bytes=int(memory_mb * MB),
        download_s=1.0,
        load_s=0.5,
        popularity=popular(requests),
    )
    return replace(made, **fields)


def cache(
    models: Sequence[CachedModel], capacity_mb: float, tier: ModelTier = ModelTier.MEMORY
) -> ModelCacheState:
    total = sum(it.popularity.counts[0] for it in models)
    return ModelCacheState(
        tier=tier,
        capacity_bytes=int(capacity_mb * MB),
        models=models,
        demand=Demand(total=popular(total)),
    )


def carried_out(state: ModelCacheState, plan: RoomMade) -> ModelCacheState:
    """The state after a plan's evictions."""
    out = {(it.key, it.tier) for it in plan.evictions}
    return replace(
        state,
        models=[
            replace(
                model,
                loaded=model.loaded and (model.key, ModelTier.MEMORY) not in out,
                on_disk=model.on_disk and (model.key, ModelTier.DISK) not in out,
            )
            for model in state.models
        ],
    )


def check_plan(state: ModelCacheState, key: str, need_bytes: int, plan: RoomPlan) -> None:
    """Assert that a plan makes room, keeps models that must stay, and gives reasons."""
    if not isinstance(plan, RoomMade):
        assert key in plan.text
        return
    by_key = {it.key: it for it in state.models}
    pairs = [(it.key, it.tier) for it in plan.evictions]
    assert len(pairs) == len(set(pairs))
    for eviction in plan.evictions:
        assert eviction.key != key
        assert by_key[eviction.key].evictable
        assert eviction.reason
        assert eviction.freed_bytes == by_key[eviction.key].held_bytes(eviction.tier)
    after = carried_out(state, plan)
    assert after.used_bytes + need_bytes <= state.capacity_bytes or not plan.evictions
    assert after.used_bytes + need_bytes <= max(state.capacity_bytes, state.used_bytes)
    assert all(left.on_disk or not left.loaded for left in after.models)


@st.composite
def some_models(draw: st.DrawFn) -> list[CachedModel]:
    flags = st.booleans()
    found = []
    for number in range(draw(st.integers(0, 12))):
        on_disk = draw(flags)
        found.append(
            CachedModel(
                key=f"m{number}",
                on_disk=on_disk,
                loaded=on_disk and draw(flags),
                disk_bytes=draw(st.integers(0, 40)) * MB,
                memory_bytes=draw(st.integers(0, 40)) * MB,
                download_s=draw(st.sampled_from((0.0, 0.1, 5.0))),
                load_s=draw(st.sampled_from((0.0, 0.1, 5.0))),
                popularity=DecayedCounts(
                    tuple(draw(st.floats(0, 100)) for _ in range(4)), draw(st.floats(0, 2000))
                ),
                in_flight=draw(st.sampled_from((0, 0, 0, 1, 7))),
                pinned=draw(st.sampled_from((False, False, False, True))),
                hits=draw(st.integers(0, 5)),
            )
        )
    return found
