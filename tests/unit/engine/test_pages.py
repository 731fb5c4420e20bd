"""The page pool: every page free or owned once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostelry.engine.pages.pool import OutOfPagesError, PagePool

OWNERS = st.sampled_from("abcd")
ACTIONS = st.lists(st.tuples(OWNERS, st.integers(0, 12)), max_size=60)


@given(num_pages=st.integers(1, 20), actions=ACTIONS)
def test_any_order_of_growing_and_releasing_keeps_the_pool_whole(
    num_pages: int, actions: list[tuple[str, int]]
) -> None:
    pool = PagePool(num_pages)
    for owner, wanted in actions:
        before = list(pool.pages(owner))
        if wanted == 0:
            assert pool.release(owner) == len(before)
        else:
            try:
                new = pool.grow(owner, wanted)
            except OutOfPagesError:
                assert wanted - len(before) > pool.num_free
                new = []
            assert list(pool.pages(owner)) == before + new
        pool.check_integrity()
    for owner in "abcd":
        pool.release(owner)
    assert pool.num_free == num_pages


def test_running_out_changes_nothing() -> None:
    pool = PagePool(3)
    pool.grow("a", 2)
    with pytest.raises(OutOfPagesError, match="b needs 2 more pages; 1 are free"):
        pool.grow("b", 2)
    assert pool.num_free == 1
    assert list(pool.pages("b")) == []
    pool.check_integrity()


def test_a_pool_has_a_page() -> None:
    with pytest.raises(ValueError, match="num_pages is 0"):
        PagePool(0)


def test_integrity_check_finds_a_page_owned_twice() -> None:
    pool = PagePool(3)
    pool.grow("a", 2)
    pool._tables["b"] = [pool._tables["a"][0]]
    with pytest.raises(AssertionError):
        pool.check_integrity()
