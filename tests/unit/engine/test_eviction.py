"""Eviction: idle prefix pages and adapters have one order, by the cost of their absence."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.engine.pages.adapters import AdapterState
from hostelry.engine.pages.eviction import HALF_LIFE_S, Candidate, EvictionOrder
from hostelry.engine.pages.unified import PagePool

Use = tuple[str, float, float]


def order_of(*uses: Use) -> list[str]:
    """The names in the order they go, after uses (name, cost of a page, time)."""
    order = EvictionOrder()
    named: dict[str, Candidate] = {}
    for name, cost_s, now in uses:
        candidate = named.setdefault(name, Candidate(cost_per_page_s=cost_s))
        order.use(candidate, now)
    for candidate in named.values():
        order.add(candidate)
    names = {id(candidate): name for name, candidate in named.items()}
    return [names[id(order.pop())] for _ in range(len(order))]


@cases(
    "uses, expected",
    case(
        "what is cheap to get back goes first",
        [("cheap", 1.0, 0.0), ("dear", 2.0, 0.0)],
        ["cheap", "dear"],
    ),
    case(
        "even when it was used later", [("dear", 2.0, 0.0), ("cheap", 1.0, 9.0)], ["cheap", "dear"]
    ),
    case(
        "what is used often stays longer",
        [("often", 1.0, 0.0), ("often", 1.0, 0.0), ("once", 1.0, 1.0)],
        ["once", "often"],
    ),
    case(
        "of equals the least recently used goes first",
        [("first", 1.0, 0.0), ("second", 1.0, 0.0), ("third", 1.0, 0.0)],
        ["first", "second", "third"],
    ),
    case(
        "uses of long ago count nothing",
        [("a", 1.0, 0.0), ("b", 1.0, 0.0), ("a", 1.0, 1e9), ("b", 1.0, 1e9 + 1)],
        ["a", "b"],
    ),
    case(
        "two uses now are more than three uses four half-lives ago and one now",
        [("old", 1.0, 0.0)] * 3
        + [("old", 1.0, 4 * HALF_LIFE_S), ("new", 1.0, 4 * HALF_LIFE_S)] * 1
        + [("new", 1.0, 4 * HALF_LIFE_S)],
        ["old", "new"],
    ),
    case(
        "what costs nothing goes before everything",
        [("free", 0.0, 0.0), ("free", 0.0, 1.0), ("cheap", 1e-9, 0.0)],
        ["free", "cheap"],
    ),
    case(
        "a clock that steps back does no harm",
        [("back", 1.0, 5.0), ("back", 1.0, 1.0), ("other", 1.0, 1.0)],
        ["other", "back"],
    ),
    case(
        "neither does a time that is no number",
        [("nan", 1.0, float("nan")), ("nan", 1.0, 1.0), ("inf", 1.0, float("inf"))],
        ["inf", "nan"],
    ),
)
def test_the_order_of_eviction(uses: list[Use], expected: list[str]) -> None:
    assert order_of(*uses) == expected


def test_a_favourite_of_the_past_ages_as_others_are_evicted() -> None:
    order = EvictionOrder()
    favourite = Candidate(cost_per_page_s=1.0)
    for _ in range(5):
        order.use(favourite, 0.0)
    order.add(favourite)
    newcomers = [Candidate(cost_per_page_s=1.0) for _ in range(20)]
    for number, newcomer in enumerate(newcomers):
        order.use(newcomer, 0.0)
        order.add(newcomer)
        if order.pop() is favourite:
            assert number == 4  # each one was lifted by the one evicted before
            return
    pytest.fail("it outlived all")


def test_without_evictions_nothing_ages() -> None:
    order = EvictionOrder()
    candidate = Candidate(cost_per_page_s=1.0)
    for _ in range(1000):
        order.use(candidate, 0.0)
        order.add(candidate)
        order.discard(candidate)
    assert order.age == 0.0


def test_an_empty_order_has_nothing_to_give() -> None:
    order = EvictionOrder()
    candidate = Candidate(cost_per_page_s=1.0)
    order.discard(candidate)
    order.add(candidate)
    order.discard(candidate)
    order.discard(candidate)
    assert len(order) == 0
    with pytest.raises(IndexError):
        order.pop()


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["use", "add", "discard", "pop"]), st.integers(0, 5)), max_size=200
)


@given(actions=ACTIONS, costs_s=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=6, max_size=6))
def test_the_heap_gives_what_looking_at_all_would_give(
    actions: list[tuple[str, int]], costs_s: list[float]
) -> None:
    order = EvictionOrder()
    candidates = [Candidate(cost_per_page_s=cost_s) for cost_s in costs_s]
    idle: list[Candidate] = []
    for now, (action, number) in enumerate(actions):
        candidate = candidates[number]
        if action == "use" and candidate not in idle:
            order.use(candidate, float(now))
        elif action == "add" and candidate not in idle:
            order.add(candidate)
            idle.append(candidate)
        elif action == "discard" and candidate in idle:
            order.discard(candidate)
            idle.remove(candidate)
        elif action == "pop" and idle:
            first = order.pop()
            keys = [(it.priority, it.use_number) for it in idle]
            assert (first.priority, first.use_number) == min(keys)
            idle.remove(first)
        order.check_integrity(idle)
        assert len(order) == len(idle)


def test_a_candidate_that_comes_and_goes_leaves_no_trail() -> None:
    order = EvictionOrder()
    candidates = [Candidate(cost_per_page_s=1.0) for _ in range(10)]
    for number in range(20_000):
        candidate = candidates[number % 10]
        order.discard(candidate)
        order.use(candidate, float(number))
        order.add(candidate)
    order.check_integrity(candidates)
    assert len(order._heap) < 100


# In the pool


def load(pool: PagePool, key: str, num_pages: int, cost_s: float, now: float = 0.0) -> None:
    pool.reserve_adapter(key, num_pages, reload_cost_s=cost_s, now=now)
    pool.activate_adapter(key)


def compute(pool: PagePool, owner: str, keys: list[bytes], now: float = 0.0) -> None:
    pool.begin(owner, keys)
    pool.grow(owner, len(keys), now)
    for index, key in enumerate(keys):
        pool.publish(owner, index, key)
    pool.release(owner, now)


@cases(
    "adapters, expected",
    case(
        "of equal costs the larger goes: its pages earn less",
        [("small", 1, 0.1), ("large", 4, 0.1)],
        ["large"],
    ),
    case(
        "a large one stays when it costs more for each of its pages",
        [("small", 1, 0.1), ("large", 4, 0.9)],
        ["small"],
    ),
    case(
        "of equal sizes the one that is quick to load goes",
        [("quick", 2, 0.1), ("slow", 2, 0.2)],
        ["quick"],
    ),
    case(
        "of equal ones the least recently used goes",
        [("first", 2, 0.1), ("second", 2, 0.1)],
        ["first"],
    ),
)
def test_which_adapter_goes(adapters: list[tuple[str, int, float]], expected: list[str]) -> None:
    pool = PagePool(sum(num_pages for _, num_pages, _ in adapters))
    for key, num_pages, cost_s in adapters:
        load(pool, key, num_pages, cost_s)
    pool.grow("a", 1, 1.0)
    assert pool.take_evicted() == expected


@cases(
    "recompute_cost_s, stays",
    case("a cached page goes when computing it again is cheap", 0.001, "adapter"),
    case("an adapter goes when loading it again is cheap", 10.0, "prefix"),
)
def test_prefix_pages_and_adapters_compete_by_cost(recompute_cost_s: float, stays: str) -> None:
    pool = PagePool(2, recompute_cost_s=recompute_cost_s)
    compute(pool, "a", [b"1"])
    load(pool, "x", 1, 0.01)
    pool.grow("b", 1, 1.0)
    kept = "prefix" if pool.count_shared([b"1"]) else "adapter"
    assert kept == stays
    assert (pool.adapter_state("x") is AdapterState.RESIDENT) == (stays == "adapter")


def test_a_shared_page_outlives_one_that_was_not_used_again() -> None:
    pool = PagePool(2)
    compute(pool, "a", [b"shared"], now=0.0)
    compute(pool, "b", [b"shared"], now=1.0)
    compute(pool, "c", [b"alone"], now=2.0)
    pool.grow("d", 1, 3.0)
    assert pool.count_shared([b"shared"]) == 1
    assert pool.count_shared([b"alone"]) == 0


def test_of_a_chain_the_last_page_goes_first() -> None:
    pool = PagePool(4)
    keys = [b"1", b"2", b"3", b"4"]
    compute(pool, "a", keys)
    for num_pages in range(1, 5):
        pool.grow("b", num_pages, 1.0)
        assert pool.count_shared(keys) == 4 - num_pages
        pool.check_integrity()


def test_of_two_chains_the_one_used_longer_ago_goes_first_whole() -> None:
    pool = PagePool(6)
    compute(pool, "a", [b"a1", b"a2", b"a3"], now=0.0)
    compute(pool, "b", [b"b1", b"b2", b"b3"], now=1.0)
    pool.grow("c", 3, 2.0)
    assert pool.count_shared([b"b1", b"b2", b"b3"]) == 3
    assert pool.num_cached_pages == 3


def test_a_page_stays_while_something_cached_follows_it() -> None:
    pool = PagePool(4)
    compute(pool, "a", [b"1", b"2"])
    compute(pool, "b", [b"1", b"3"])
    pool.grow("c", 3, 1.0)  # one was free: the two ends go, not their common beginning
    assert pool.count_shared([b"1"]) == 1
    pool.grow("c", 4, 1.0)
    assert pool.count_shared([b"1"]) == 0


def test_what_is_found_is_not_evicted_for_what_follows_it() -> None:
    pool = PagePool(4)
    compute(pool, "a", [b"1", b"2"])
    load(pool, "x", 2, 100.0)
    assert pool.begin("b", [b"1", b"2"]) == 2
    pool.grow("b", 3, 1.0)
    assert pool.take_evicted() == ["x"]
    assert list(pool.pages("b"))[:2] == [0, 1]


def test_only_as_much_is_evicted_as_is_needed() -> None:
    pool = PagePool(8)
    compute(pool, "a", [b"1", b"2", b"3", b"4"])
    pool.grow("b", 6, 1.0)  # four were free
    assert pool.count_shared([b"1", b"2", b"3", b"4"]) == 2


def test_idle_pages_are_a_warm_adapter_cache_that_sequences_take_back() -> None:
    pool = PagePool(100)
    for number in range(20):
        load(pool, f"adapter-{number}", 5, 0.01, now=float(number))
    assert (pool.num_free, pool.num_available) == (0, 100)
    pool.grow("a", 50, 30.0)
    assert pool.take_evicted() == [f"adapter-{number}" for number in range(10)]
    pool.release("a", 31.0)
    load(pool, "adapter-0", 5, 0.01, now=32.0)
    assert pool.take_evicted() == []  # the sequence's pages are free


def test_popular_adapters_cost_less_reloading_than_with_least_recently_used() -> None:
    """Zipf requests for 200 adapters of four sizes. The pool has room for an eighth of them."""
    draw = random.Random(1)
    sizes = [draw.choice([13, 27, 54, 108]) for _ in range(200)]
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(200)))
    requests = draw.choices(range(200), cum_weights=weights, k=10_000)
    num_pages = sum(sizes) // 8
    costs_s = [0.0005 + 0.0001 * size for size in sizes]

    pool = PagePool(num_pages)
    reloading_s = 0.0
    for number, adapter in enumerate(requests):
        key, now = f"{adapter}", 0.05 * number
        if pool.adapter_state(key) is AdapterState.ABSENT:
            load(pool, key, sizes[adapter], costs_s[adapter], now)
            reloading_s += costs_s[adapter]
        pool.hold_adapter(key)
        pool.unhold_adapter(key, now)
    pool.check_integrity()

    assert reloading_s < 0.85 * least_recently_used_s(requests, sizes, costs_s, num_pages)


def least_recently_used_s(
    requests: list[int], sizes: list[int], costs_s: list[float], num_pages: int
) -> float:
    cached: dict[int, None] = {}
    reloading_s = 0.0
    for adapter in requests:
        if adapter not in cached:
            reloading_s += costs_s[adapter]
        cached.pop(adapter, None)
        cached[adapter] = None
        while sum(sizes[it] for it in cached) > num_pages:
            del cached[next(iter(cached))]
    return reloading_s
