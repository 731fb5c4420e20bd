"""The page pool refuses senseless calls, says why, and changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.engine.page_pool_model import pool_in_use

from hostelry.engine.pages.unified import OutOfPagesError, PagePool, PinBudgetError


def reserve(pool: PagePool, key: str, num_pages: int, cost_s: float = 0.01) -> None:
    pool.reserve_adapter(key, num_pages, reload_cost_s=cost_s, now=2.0)


@cases(
    "call, error, message",
    case(
        "more pages than the pool has",
        lambda pool: pool.grow("writer", 13, 2.0),
        OutOfPagesError,
        "writer needs 11 more pages; 3 of 12 are free and 4 idle",
    ),
    case(
        "one page more than can be had",
        lambda pool: pool.grow("new", 8, 2.0),
        OutOfPagesError,
        "new needs 8 more pages; 3 of 12 are free and 4 idle",
    ),
    case(
        "a negative number of pages",
        lambda pool: pool.grow("writer", -1, 2.0),
        ValueError,
        "writer cannot have -1 pages",
    ),
    case(
        "beginning twice",
        lambda pool: pool.begin("writer", [b"first"]),
        ValueError,
        "writer has pages already",
    ),
    case(
        "publishing for an unknown owner",
        lambda pool: pool.publish("nobody", 0, b"key"),
        ValueError,
        "nobody has 0 pages; there is no page 0",
    ),
    case(
        "publishing a page beyond the last",
        lambda pool: pool.publish("writer", 2, b"key"),
        ValueError,
        "writer has 2 pages; there is no page 2",
    ),
    case(
        "publishing a page before the first",
        lambda pool: pool.publish("writer", -1, b"key"),
        ValueError,
        "there is no page -1",
    ),
    case(
        "publishing a page with a second key",
        lambda pool: pool.publish("writer", 0, b"changed"),
        ValueError,
        "page 0 of writer is published with another key",
    ),
    case(
        "a key that stands for another chain of pages",
        lambda pool: pool.publish("writer", 1, b"second"),
        ValueError,
        "published already, after another page",
    ),
    case(
        "the key of the page before",
        lambda pool: pool.publish("writer", 1, b"other"),
        ValueError,
        "published already, after another page",
    ),
    case(
        "reserving what is loading",
        lambda pool: reserve(pool, "wait", 1),
        ValueError,
        "adapter wait is loading already",
    ),
    case(
        "reserving what is resident",
        lambda pool: reserve(pool, "off", 3),
        ValueError,
        "adapter off is resident already",
    ),
    case(
        "an adapter without pages",
        lambda pool: reserve(pool, "new", 0),
        ValueError,
        "adapter new cannot have 0 pages",
    ),
    case(
        "an adapter with a negative number of pages",
        lambda pool: reserve(pool, "new", -5),
        ValueError,
        "adapter new cannot have -5 pages",
    ),
    case(
        "an adapter larger than the pool",
        lambda pool: reserve(pool, "new", 10**9),
        OutOfPagesError,
        "adapter new needs 1000000000 more pages",
    ),
    case(
        "a negative cost",
        lambda pool: reserve(pool, "new", 1, -0.1),
        ValueError,
        "reload_cost_s of adapter new is -0.1",
    ),
    case(
        "a cost that is no number",
        lambda pool: reserve(pool, "new", 1, float("nan")),
        ValueError,
        "reload_cost_s of adapter new is nan",
    ),
    case(
        "a cost without end",
        lambda pool: reserve(pool, "new", 1, float("inf")),
        ValueError,
        "reload_cost_s of adapter new is inf",
    ),
    case(
        "activating what is absent",
        lambda pool: pool.activate_adapter("new"),
        ValueError,
        "adapter new is absent, not loading",
    ),
    case(
        "activating twice",
        lambda pool: pool.activate_adapter("off"),
        ValueError,
        "adapter off is resident, not loading",
    ),
    case(
        "dropping what is in flight",
        lambda pool: pool.drop_adapter("on"),
        ValueError,
        "adapter on is held 1 times",
    ),
    case(
        "holding what is loading",
        lambda pool: pool.hold_adapter("wait"),
        ValueError,
        "adapter wait is loading, not resident",
    ),
    case(
        "holding what is absent",
        lambda pool: pool.hold_adapter("new"),
        ValueError,
        "adapter new is absent, not resident",
    ),
    case(
        "unholding what nothing holds",
        lambda pool: pool.unhold_adapter("off", 2.0),
        ValueError,
        "adapter off is not held",
    ),
    case(
        "unholding what is absent",
        lambda pool: pool.unhold_adapter("new", 2.0),
        ValueError,
        "adapter new is not held",
    ),
    case(
        "pinning a negative size",
        lambda pool: pool.pin_adapter("new", -1),
        ValueError,
        "adapter new cannot have -1 pages",
    ),
    case(
        "pinning more than the budget",
        lambda pool: pool.pin_adapter("new", 4),
        PinBudgetError,
        "adapter new takes 4 pages; 3 of the 3 pages for pinned adapters are left",
    ),
)
def test_a_refused_call_gives_its_reason_and_changes_nothing(
    call: Callable[[PagePool], object], error: type[Exception], message: str
) -> None:
    pool = pool_in_use()
    before = pool.stats()
    with pytest.raises(error, match=message):
        call(pool)
    assert pool.stats() == before
    assert list(pool.pages("writer")) == [2, 3]
    pool.check_integrity()


def test_a_repeated_call_changes_nothing() -> None:
    pool = pool_in_use()
    pool.pin_adapter("off")
    before = pool.stats()
    pool.pin_adapter("off")
    pool.pin_adapter("off", 3)  # its size is known: 2
    pool.publish("writer", 0, b"other")
    pool.unpin_adapter("on")
    pool.unpin_adapter("nobody")
    pool.release("nobody", 3.0)
    pool.release("reader", 3.0)
    pool.drop_adapter("nobody")
    assert pool.grow("writer", 2, 3.0) == []
    assert pool.grow("writer", 0, 3.0) == []
    assert pool.grow("nobody", 0, 3.0) == []
    assert pool.stats() == before
    assert pool.take_evicted() == []
    pool.check_integrity()


@cases(
    "settings, message",
    case("no pages", {"num_pages": 0}, "num_pages is 0"),
    case("a negative number of pages", {"num_pages": -1}, "num_pages is -1"),
    case(
        "a pin budget larger than the pool",
        {"num_pages": 2, "pin_budget_pages": 3},
        "pin_budget_pages is 3; allowed: 0 to 2",
    ),
    case(
        "a negative pin budget", {"num_pages": 2, "pin_budget_pages": -1}, "pin_budget_pages is -1"
    ),
    case(
        "a cost that is no number",
        {"num_pages": 2, "recompute_cost_s": float("nan")},
        "recompute_cost_s is nan",
    ),
)
def test_a_senseless_pool_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PagePool(**settings)
