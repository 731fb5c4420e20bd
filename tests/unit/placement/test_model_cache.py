"""Room for a model: evicted models with reasons, models that cannot fit, and waits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.placement.model_caches import (
    MB,
    NOW,
    cache,
    carried_out,
    check_plan,
    model,
    some_models,
)

from hostelry.domain.model import ModelCacheSetting
from hostelry.placement.model_cache import (
    evict_after_request,
    expected_disk_bytes,
    expected_memory_bytes,
    least_known,
    make_room,
    make_room_after_refusal,
    most_valuable,
)
from hostelry.placement.model_cache_values import (
    CachedModel,
    ModelsInUse,
    ModelTier,
    ModelTooLarge,
    RoomMade,
)

DISK, MEMORY = ModelTier.DISK, ModelTier.MEMORY


@cases(
    "models, need_mb, evicted",
    case("none where it fits", [model("a", 40)], 60, []),
    case("the less popular of equals", [model("a", 40, 9), model("b", 40, 1)], 30, ["b"]),
    case("the one that is less per byte", [model("a", 10, 1), model("b", 80, 2)], 60, ["b"]),
    case(
        "the one that loads fast",
        [model("a", 40, load_s=9.0), model("b", 40, load_s=0.1)],
        30,
        ["b"],
    ),
    case(
        "the one that need not be downloaded again",
        [model("a", 40, on_disk=False), model("b", 40)],
        30,
        ["b"],
    ),
    case("of equals the first by its key", [model("b", 40), model("a", 40)], 30, ["a"]),
    case(
        "none that a larger one makes needless",
        [model("a", 10, 0.1), model("b", 70, 1), model("c", 20, 9)],
        60,
        ["b"],
    ),
    case("none that is pinned", [model("a", 40, 1, pinned=True), model("b", 40, 9)], 30, ["b"]),
    case("none in use", [model("a", 40, 1, in_flight=1), model("b", 40, 9)], 30, ["b"]),
)
def test_memory_is_made_free_of_the_least_value(
    models: list[CachedModel], need_mb: int, evicted: list[str]
) -> None:
    plan = make_room(cache(models, 100), "new", need_mb * MB, NOW)
    assert isinstance(plan, RoomMade)
    assert [(it.key, it.tier) for it in plan.evictions] == [(key, MEMORY) for key in evicted]


def test_the_reason_of_an_eviction_names_the_cause_and_the_value() -> None:
    victim = model("b", 40, 1, hits=3, popularity=model("b").popularity.after_request(NOW - 60))
    plan = make_room(cache([model("a", 40, 9), victim], 100), "new", 30 * MB, NOW + 60)
    assert isinstance(plan, RoomMade)
    (eviction,) = plan.evictions
    assert eviction.reason.startswith("new needs 30.0 MB; least value: ")
    assert eviction.reason.endswith("0.5 s bring it back, last use 60 s ago, 3 hits")
    assert plan.freed_bytes == eviction.freed_bytes == 40 * MB


@cases(
    "models, need_mb, text",
    case(
        "larger than the instance",
        [model("a", 10)],
        101,
        "Model new needs 101.0 MB; the instance's memory for models has 100.0 MB.",
    ),
    case(
        "larger than what pinned models leave",
        [model("a", 40, pinned=True), model("b", 10)],
        70,
        "Model new needs 70.0 MB; the instance's memory for models has 100.0 MB, of which "
        "it and pinned models hold 40.0 MB.",
    ),
)
def test_what_can_never_fit_is_refused_with_the_sizes(
    models: list[CachedModel], need_mb: int, text: str
) -> None:
    assert make_room(cache(models, 100), "new", need_mb * MB, NOW) == ModelTooLarge(text=text)


def test_where_all_are_in_use_the_model_waits_and_a_drain_would_make_room() -> None:
    state = cache(
        [model("a", 40, 9, in_flight=1), model("b", 40, 1, in_flight=2), model("c", 10)], 100
    )
    plan = make_room(state, "new", 50 * MB, NOW)
    assert plan == ModelsInUse(
        text="Model new waits for 30.0 MB of memory that models with requests in flight hold: "
        "2 of the 3 that may be evicted.",
        lacking_bytes=30 * MB,
        drain=("c", "b"),
    )


def test_the_disk_gives_up_loaded_models_last_and_unloads_them_first() -> None:
    models = [model("a", 40, 1), model("b", 40, 9, loaded=False), model("c", 10, 5)]
    state = cache(models, 100, DISK)
    one = make_room(state, "new", 30 * MB, NOW)
    both = make_room(state, "new", 70 * MB, NOW)
    assert isinstance(one, RoomMade)
    assert isinstance(both, RoomMade)
    assert [(it.key, it.tier) for it in one.evictions] == [("b", DISK)]
    assert [(it.key, it.tier) for it in both.evictions] == [
        ("b", DISK),
        ("a", MEMORY),
        ("a", DISK),
    ]


@pytest.mark.parametrize(
    ("attempt", "evicted"), [(0, ["a"]), (1, ["a"]), (2, ["b", "a"]), (9, ["b", "c", "a"])]
)
def test_after_a_507_each_attempt_frees_twice_as_much(attempt: int, evicted: list[str]) -> None:
    models = [model("a", 20, 3), model("b", 10, 1), model("c", 10, 2), model("d", 9, in_flight=1)]
    plan = make_room_after_refusal(cache(models, 1000), "new", 15 * MB, attempt, NOW)
    assert isinstance(plan, RoomMade)
    assert {it.key for it in plan.evictions} >= {"b"} or attempt < 2
    assert plan.freed_bytes >= min(15 * MB << max(attempt - 1, 0), 40 * MB)


def test_after_a_507_it_waits_for_models_in_use_and_is_refused_where_there_is_none() -> None:
    busy = [model("a", 20, in_flight=1)]
    waiting = make_room_after_refusal(cache(busy, 1000), "new", 15 * MB, 1, NOW)
    assert isinstance(waiting, ModelsInUse)
    assert waiting.drain == ("a",)
    refused = make_room_after_refusal(
        cache([model("new", 20), model("p", 5, pinned=True)], 1000), "new", 15 * MB, 1, NOW
    )
    assert refused == ModelTooLarge(
        text="The container refused (507) model new with no other model left to evict: it needs "
        "15.0 MB of 1000.0 MB."
    )


@cases(
    "changed, num_waiting, unloads",
    case("idle", {}, 0, True),
    case("another request is in flight", {"in_flight": 1}, 0, False),
    case("another request waits for it", {}, 1, False),
    case("pinned", {"pinned": True}, 0, False),
    case("not loaded", {"loaded": False}, 0, False),
)
def test_with_the_cache_disabled_a_model_leaves_after_its_requests(
    changed: dict[str, Any], num_waiting: int, unloads: bool
) -> None:
    it = replace(model("a", 20), **changed)
    found = evict_after_request(ModelCacheSetting.DISABLED, it, num_waiting)
    assert (found is not None) == unloads
    if found is not None:
        assert (found.key, found.tier, found.freed_bytes) == ("a", MEMORY, 20 * MB)
        assert "Disabled" in found.reason
    assert evict_after_request(ModelCacheSetting.ENABLED, it, num_waiting) is None


def test_a_new_instance_loads_the_popular_set_first_as_far_as_it_fits() -> None:
    models = [model("a", 40, 1), model("b", 40, 9), model("c", 30, 5), model("d", 25, 0.5)]
    assert most_valuable(cache(models, 100), NOW) == ["b", "c", "d"]
    assert most_valuable(cache(models, 100, DISK), NOW) == ["b", "c", "d"]


def test_only_what_is_gone_is_forgotten_the_least_popular_first() -> None:
    gone = [
        replace(model(key, 1, requests), loaded=False, on_disk=False)
        for key, requests in (("a", 3), ("b", 1), ("c", 2))
    ]
    state = cache([*gone, model("d", 1, 0.1)], 100)
    for most, expected in [(4, set()), (3, {"b"}), (2, {"b", "c"}), (0, {"a", "b", "c"})]:
        assert least_known(state.models, most, state.demand, NOW) == expected


def test_sizes_that_were_never_measured_are_expected_to_be_like_those_of_others() -> None:
    fresh = CachedModel(key="new", disk_bytes=30 * MB)
    others = [
        model("a", 20, disk_bytes=10 * MB),
        model("b", 40, disk_bytes=10 * MB),
        model("c", 999, loaded=False, on_disk=False),
    ]
    assert expected_memory_bytes(fresh, others) == 90 * MB
    assert expected_memory_bytes(fresh, []) == 30 * MB
    assert expected_memory_bytes(others[0], []) == 20 * MB
    assert expected_memory_bytes(CachedModel(key="new"), []) == 1
    assert expected_disk_bytes(fresh, others) == 30 * MB
    assert expected_disk_bytes(CachedModel(key="new"), others) == 10 * MB
    assert expected_disk_bytes(CachedModel(key="new"), []) == 1


def test_a_need_below_zero_is_an_error() -> None:
    with pytest.raises(ValueError, match="need_bytes is -1 for model new"):
        make_room(cache([], 1), "new", -1, NOW)


tiers = st.sampled_from(ModelTier)


@given(
    models=some_models(),
    capacity_mb=st.integers(0, 300),
    need_mb=st.integers(0, 200),
    tier=tiers,
    number=st.integers(0, 14),
    data=st.data(),
)
def test_plans_keep_to_the_budget_and_leave_alone_what_must_stay(
    models: list[CachedModel],
    capacity_mb: int,
    need_mb: int,
    tier: ModelTier,
    number: int,
    data: st.DataObject,
) -> None:
    state = cache(models, capacity_mb, tier)
    plan = make_room(state, f"m{number}", need_mb * MB, NOW)
    check_plan(state, f"m{number}", need_mb * MB, plan)
    assert make_room(state, f"m{number}", need_mb * MB, NOW) == plan
    shuffled = replace(state, models=data.draw(st.permutations(models)))
    assert make_room(shuffled, f"m{number}", need_mb * MB, NOW) == plan


@given(models=some_models(), need_mb=st.integers(0, 50), attempt=st.integers(-1, 70), tier=tiers)
def test_a_507_always_evicts_waits_or_is_refused(
    models: list[CachedModel], need_mb: int, attempt: int, tier: ModelTier
) -> None:
    state = cache(models, 10_000, tier)
    plan = make_room_after_refusal(state, "m3", need_mb * MB, attempt, NOW)
    check_plan(state, "m3", 0, plan)
    if isinstance(plan, RoomMade):
        assert plan.evictions


@given(models=some_models(), capacity_mb=st.integers(0, 300), need_mb=st.integers(0, 200))
def test_a_model_that_waits_has_room_once_the_drained_models_are_idle(
    models: list[CachedModel], capacity_mb: int, need_mb: int
) -> None:
    state = cache(models, capacity_mb)
    plan = make_room(state, "new", need_mb * MB, NOW)
    if isinstance(plan, ModelsInUse):
        drained = [replace(it, in_flight=0) if it.key in plan.drain else it for it in models]
        later = make_room(replace(state, models=drained), "new", need_mb * MB, NOW + 1)
        assert isinstance(later, RoomMade)
        assert {it.key for it in later.evictions} <= set(plan.drain)
        assert carried_out(state, later).used_bytes + need_mb * MB <= capacity_mb * MB
