"""The page pool, call by call: sequences, shared prefixes, adapters, and refusals."""

import pytest
from tests.cases import case, cases
from tests.unit.engine.page_pool_model import pool_in_use

from hostelry.engine.pages.adapters import AdapterState
from hostelry.engine.pages.tables import FREE, IDLE_PREFIX, SEQUENCE, get_adapter_code
from hostelry.engine.pages.unified import OutOfPagesError, PagePool, PinBudgetError


def reserve(pool: PagePool, key: str, num_pages: int, cost_s: float = 0.01) -> None:
    pool.reserve_adapter(key, num_pages, reload_cost_s=cost_s, now=2.0)


# Sequences and cached prefixes


def computed(pool: PagePool, owner: str, keys: list[bytes], now: float = 0.0) -> None:
    """Let `owner` find pages of `keys`, compute the others and publish them."""
    pool.begin(owner, keys)
    pool.grow(owner, len(keys), now)
    for index, key in enumerate(keys):
        pool.publish(owner, index, key)


def test_pages_are_handed_out_in_order_and_stay_where_they_are() -> None:
    pool = PagePool(6)
    assert pool.grow("a", 2, 0.0) == [0, 1]
    assert pool.grow("b", 1, 0.0) == [2]
    assert pool.grow("a", 4, 0.0) == [3, 4]
    assert list(pool.pages("a")) == [0, 1, 3, 4]
    assert list(pool.pages("nobody")) == []


def test_a_prefix_is_shared_while_and_after_its_owner_lives() -> None:
    pool = PagePool(8)
    computed(pool, "a", [b"1", b"2", b"3"])
    assert pool.count_shared([b"1", b"2", b"4"]) == 2
    assert pool.begin("b", [b"1", b"2", b"4"]) == 2
    assert list(pool.pages("b")) == list(pool.pages("a"))[:2]
    pool.release("a", 1.0)
    assert pool.num_idle == 1  # the third page, as b holds the others
    pool.release("b", 2.0)
    assert pool.num_idle == 3
    assert pool.begin("c", [b"1", b"2", b"3"]) == 3
    assert pool.num_idle == 0
    assert pool.num_free == 5
    pool.check_integrity()


@cases(
    "keys",
    case("no keys", []),
    case("an unknown page before a known one", [b"4", b"1"]),
    case("known pages without their beginning", [b"2", b"3"]),
)
def test_only_a_whole_beginning_is_found(keys: list[bytes]) -> None:
    pool = PagePool(8)
    computed(pool, "a", [b"1", b"2", b"3"])
    assert pool.count_shared(keys) == 0
    assert pool.begin("b", keys) == 0
    assert list(pool.pages("b")) == []


def test_a_page_is_never_twice_in_a_table() -> None:
    pool = PagePool(8)
    computed(pool, "a", [b"1", b"2"])
    assert pool.begin("b", [b"1", b"1", b"2"]) == 1
    pool.check_integrity()


def test_a_page_that_is_not_complete_is_free_after_its_owner() -> None:
    pool = PagePool(4)
    pool.grow("a", 3, 0.0)
    pool.publish("a", 0, b"1")
    pool.release("a", 1.0)
    assert (pool.num_free, pool.num_idle) == (3, 1)


def test_of_two_pages_with_the_same_content_one_stays_and_one_is_freed() -> None:
    pool = PagePool(4)
    pool.grow("a", 1, 0.0)
    pool.grow("b", 1, 0.0)
    pool.publish("a", 0, b"1")
    pool.publish("b", 0, b"1")
    assert list(pool.pages("a")) != list(pool.pages("b"))
    pool.release("b", 1.0)
    assert pool.num_free == 3
    pool.release("a", 1.0)
    assert (pool.num_free, pool.num_idle) == (3, 1)
    assert pool.stats().counts.num_duplicate_pages == 1


def test_when_the_shared_page_loses_its_last_user_the_spare_takes_its_place() -> None:
    pool = PagePool(4)
    for owner in "abc":
        pool.grow(owner, 1, 0.0)
    for owner in "abc":
        pool.publish(owner, 0, b"1")
    spares = {*pool.pages("b"), *pool.pages("c")}
    pool.release("a", 1.0)
    assert (pool.num_free, pool.num_idle) == (2, 0)
    assert pool.begin("d", [b"1"]) == 1
    assert set(pool.pages("d")) <= spares
    for owner in "bcd":
        pool.release(owner, 2.0)
    assert (pool.num_free, pool.num_idle) == (3, 1)
    pool.check_integrity()


def test_a_page_computed_beside_an_idle_one_of_its_content_replaces_it() -> None:
    pool = PagePool(4)
    pool.grow("b", 1, 0.0)
    computed(pool, "a", [b"1", b"2"])
    pool.release("a", 1.0)
    pool.publish("b", 0, b"1")
    assert (pool.num_free, pool.num_idle) == (2, 1)  # the idle second page now follows b's
    assert pool.begin("c", [b"1", b"2"]) == 2
    assert pool.pages("c")[0] == pool.pages("b")[0]
    pool.check_integrity()


def test_a_sequence_alone_can_have_every_page_whatever_it_shares() -> None:
    pool = PagePool(8)
    for owner in "ab":
        pool.grow(owner, 4, 0.0)
    for index in range(4):
        for owner in "ab":
            pool.publish(owner, index, b"%d" % index)
    pool.release("a", 1.0)
    assert len(pool.grow("b", 8, 1.0)) == 4
    pool.check_integrity()


def test_what_running_out_of_pages_leaves_is_what_was_there() -> None:
    pool = PagePool(4)
    computed(pool, "a", [b"1", b"2"])
    pool.release("a", 0.0)
    pool.begin("b", [b"1"])
    with pytest.raises(OutOfPagesError):
        pool.grow("b", 5, 1.0)
    assert pool.count_shared([b"1", b"2"]) == 2
    assert len(pool.grow("b", 4, 1.0)) == 3
    assert pool.count_shared([b"1", b"2"]) == 1


# Adapters


def test_an_adapter_goes_through_its_states() -> None:
    pool = PagePool(4)
    assert pool.adapter_state("x") is AdapterState.ABSENT
    pages = pool.reserve_adapter("x", 3, reload_cost_s=0.1, now=0.0)
    assert pages == pool.adapter_pages("x") == (0, 1, 2)
    assert pool.adapter_state("x") is AdapterState.LOADING
    assert (pool.num_idle, pool.num_adapter_pages) == (0, 3)
    pool.activate_adapter("x")
    assert pool.adapter_state("x") is AdapterState.RESIDENT
    assert (pool.num_idle, pool.num_available) == (3, 4)
    pool.hold_adapter("x")
    pool.hold_adapter("x")
    pool.unhold_adapter("x", 1.0)
    assert pool.num_idle == 0
    pool.unhold_adapter("x", 1.0)
    assert pool.num_idle == 3
    pool.drop_adapter("x")
    assert (pool.adapter_state("x"), pool.adapter_pages("x")) == (AdapterState.ABSENT, ())
    assert pool.num_free == 4
    assert pool.take_evicted() == []


def test_a_failed_load_gives_its_pages_back() -> None:
    pool = PagePool(4)
    reserve(pool, "x", 3)
    pool.drop_adapter("x")
    assert (pool.num_free, pool.num_adapter_pages) == (4, 0)
    pool.check_integrity()


def test_scattered_pages_come_in_ascending_order() -> None:
    pool = PagePool(6)
    for owner in "abcdef":
        pool.grow(owner, 1, 0.0)
    for owner in "fadc":
        pool.release(owner, 0.0)
    assert pool.reserve_adapter("x", 4, reload_cost_s=0.1, now=0.0) == (0, 2, 3, 5)


def test_evicted_adapters_are_returned_once_and_not_when_they_are_back() -> None:
    pool = PagePool(2)
    for key in "xyz":
        reserve(pool, key, 1)
        pool.activate_adapter(key)
    assert pool.take_evicted() == ["x"]
    assert pool.take_evicted() == []
    reserve(pool, "x", 1)  # y goes
    pool.activate_adapter("x")
    reserve(pool, "y", 1)  # z goes
    assert pool.take_evicted() == ["z"]


@pytest.mark.parametrize("when", ["absent", "loading", "resident"])
def test_a_pinned_adapter_is_never_evicted_whenever_it_was_pinned(when: str) -> None:
    pool = PagePool(4, pin_budget_pages=2)
    if when == "absent":
        pool.pin_adapter("x")
        assert pool.num_pinned_pages == 0
    reserve(pool, "x", 2)
    if when == "loading":
        pool.pin_adapter("x")
    pool.activate_adapter("x")
    if when == "resident":
        pool.pin_adapter("x")
    assert (pool.num_pinned_pages, pool.num_available) == (2, 2)
    with pytest.raises(OutOfPagesError):
        pool.grow("a", 3, 1.0)
    pool.unpin_adapter("x")
    assert len(pool.grow("a", 3, 1.0)) == 3
    assert pool.take_evicted() == ["x"]


def test_a_pin_that_came_first_keeps_its_promise_of_room() -> None:
    pool = PagePool(8, pin_budget_pages=4)
    pool.pin_adapter("x", 3)
    assert pool.num_pinned_pages == 3
    with pytest.raises(PinBudgetError) as caught:
        pool.pin_adapter("y", 2)
    error = caught.value
    assert (error.adapter, error.num_pages, error.num_left, error.budget) == ("y", 2, 1, 4)
    reserve(pool, "x", 4)  # larger than it said, and within the budget
    assert pool.num_pinned_pages == 4
    pool.drop_adapter("x")
    assert pool.num_pinned_pages == 4
    pool.unpin_adapter("x")
    assert pool.num_pinned_pages == 0
    pool.pin_adapter("y", 2)
    pool.check_integrity()


def test_a_pinned_adapter_over_the_budget_gets_no_pages() -> None:
    pool = PagePool(8, pin_budget_pages=4)
    pool.pin_adapter("x")
    with pytest.raises(PinBudgetError, match="adapter x takes 5 pages; 4 of the 4 pages"):
        reserve(pool, "x", 5)
    assert (pool.num_free, pool.adapter_state("x")) == (8, AdapterState.ABSENT)


def test_a_pin_on_an_adapter_in_flight_waits_for_its_end() -> None:
    pool = PagePool(4, pin_budget_pages=4)
    reserve(pool, "x", 2)
    pool.activate_adapter("x")
    pool.hold_adapter("x")
    pool.pin_adapter("x")
    pool.unhold_adapter("x", 1.0)
    assert pool.num_idle == 0
    pool.unpin_adapter("x")
    assert pool.num_idle == 2
    pool.check_integrity()


# Numbers


def test_the_numbers_add_up() -> None:
    pool = pool_in_use()
    stats = pool.stats()
    assert (
        stats.num_pages
        == 12
        == stats.num_free
        + stats.num_sequence_pages
        + (stats.num_idle_prefix_pages + stats.num_adapter_pages)
    )
    assert (pool.pin_budget_pages, pool.num_pinned_pages, stats.num_pinned_pages) == (3, 0, 0)
    assert (stats.num_free, stats.num_sequence_pages, stats.num_sequences) == (3, 2, 1)
    assert (stats.num_cached_pages, stats.num_idle_prefix_pages) == (3, 2)
    assert (stats.num_adapters, stats.num_adapter_pages, stats.num_idle_adapter_pages) == (3, 5, 2)
    assert pool.num_idle == 4


def test_the_counts_follow_the_calls() -> None:
    pool = pool_in_use()
    pool.begin("again", [b"first", b"second", b"third"])
    pool.grow("again", 7, 2.0)
    counts = pool.stats().counts
    assert (counts.num_prefix_hits, counts.num_prefix_misses) == (2, 1)
    assert (counts.num_published_pages, counts.num_duplicate_pages) == (3, 0)
    assert (counts.num_adapter_loads, counts.num_adapter_holds) == (3, 1)
    assert (counts.num_evicted_adapters, counts.num_evicted_adapter_pages) == (1, 2)
    assert counts.num_evicted_prefix_pages == 0


def test_a_stats_value_does_not_change_afterwards() -> None:
    pool = pool_in_use()
    before = pool.stats()
    pool.hold_adapter("off")
    assert before.counts.num_adapter_holds == 1


def test_each_page_has_one_use() -> None:
    pool = pool_in_use()
    owners = pool.owners()
    assert owners.adapters == ("on", "off", "wait")
    used = dict.fromkeys((0, 1), IDLE_PREFIX) | dict.fromkeys(pool.pages("writer"), SEQUENCE)
    for number, key in enumerate(owners.adapters):
        used |= dict.fromkeys(pool.adapter_pages(key), get_adapter_code(number))
    assert {page: code for page, code in enumerate(owners.codes) if code != FREE} == used
    assert owners.codes.count(FREE) == pool.num_free
    assert get_adapter_code(70_000) == 65_535
