"""The integrity check finds and reports each kind of damage."""

from collections.abc import Callable

import pytest
from tests.unit.engine.page_pool_model import pool_in_use

from hostelry.engine.pages.unified import PagePool


def _free_an_owned_page(pool: PagePool) -> None:
    pool._supply.free.append(pool.pages("writer")[1])


def _lose_a_page(pool: PagePool) -> None:
    pool._supply.free.pop()


def _invent_a_page(pool: PagePool) -> None:
    pool._supply.free.append(12)


def _table_without_pages(pool: PagePool) -> None:
    pool._tables["ghost"] = type(pool._tables["writer"])()


def _own_a_page_twice(pool: PagePool) -> None:
    pool._tables["writer"].pages.append(pool._tables["writer"].pages[1])


def _miscount_users(pool: PagePool) -> None:
    pool._tables["writer"].published[0].num_users += 1


def _publish_more_than_owned(pool: PagePool) -> None:
    pool._tables["writer"].pages.clear()


def _forget_a_parent(pool: PagePool) -> None:
    del pool._prefixes._pages[b"first"]


def _miscount_idle(pool: PagePool) -> None:
    pool._prefixes.num_idle += 1


def _miscount_children(pool: PagePool) -> None:
    pool._prefixes._pages[b"first"].num_children += 1


def _two_keys_for_a_page(pool: PagePool) -> None:
    pool._prefixes._pages[b"second"].page = pool._prefixes._pages[b"first"].page


def _a_spare_of_no_sequence(pool: PagePool) -> None:
    pool._prefixes._pages[b"other"].spares[pool._supply.free.pop()] = None


def _swap_keys(pool: PagePool) -> None:
    pages = pool._prefixes._pages
    pages[b"first"], pages[b"second"] = pages[b"second"], pages[b"first"]


def _evict_what_is_held(pool: PagePool) -> None:
    pool._order.add(pool._adapters._adapters["on"])


def _forget_what_is_idle(pool: PagePool) -> None:
    pool._order.discard(pool._adapters._adapters["off"])


def _hold_what_is_loading(pool: PagePool) -> None:
    pool._adapters._adapters["wait"].num_holds = 1


def _miscount_adapter_pages(pool: PagePool) -> None:
    pool._adapters.num_pages += 1


def _miscount_idle_adapter_pages(pool: PagePool) -> None:
    pool._adapters.num_idle_pages -= 1


def _pin_over_the_budget(pool: PagePool) -> None:
    pool._adapters._pins["elsewhere"] = 4
    pool._adapters.num_pinned_pages = 4


def _miscount_the_order(pool: PagePool) -> None:
    pool._order._num_live += 1


@pytest.mark.parametrize(
    ("breach", "message"),
    [
        (_free_an_owned_page, "page 3 is free and of writer"),
        (_lose_a_page, r"pages \[9\] are nowhere"),
        (_invent_a_page, "page 12, free, is not of this pool"),
        (_table_without_pages, "ghost is listed without pages"),
        (_own_a_page_twice, "page 3 is of writer and of writer"),
        (_miscount_users, "counts 2 users; 1 tables hold it"),
        (_publish_more_than_owned, "writer is listed without pages"),
        (_forget_a_parent, "the parent 0 of cached page 1 is not cached"),
        (_miscount_idle, "3 idle pages counted of 2"),
        (_miscount_children, "page 0 counts 2 children of 1"),
        (_two_keys_for_a_page, "a page is cached under two keys"),
        (_a_spare_of_no_sequence, "are spares of no sequence"),
        (_swap_keys, "is found under another key"),
        (_evict_what_is_held, "1 in the order may not be evicted"),
        (_forget_what_is_idle, "1 that may be are missing"),
        (_hold_what_is_loading, "adapter wait is held 1 times and not resident"),
        (_miscount_adapter_pages, "6 adapter pages counted of 5"),
        (_miscount_idle_adapter_pages, "1 pages of idle adapters counted of 2"),
        (_pin_over_the_budget, "4 pages are pinned, 4 counted; the budget is 3"),
        (_miscount_the_order, "counted, 2 in the order"),
    ],
)
def test_the_integrity_check_names_the_fault(
    breach: Callable[[PagePool], None], message: str
) -> None:
    pool = pool_in_use()
    breach(pool)
    with pytest.raises(AssertionError, match=message):
        pool.check_integrity()
