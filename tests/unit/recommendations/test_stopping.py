"""The end of a load, and the window that counts."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.recommendation_job import StoppingRules
from hostelry.recommendations.stopping import (
    LoadWindow,
    choose_best,
    explain_failure,
    find_stop,
)

RULES = StoppingRules(max_invocations=1000, latency_ms=50.0)


def window(num_users: int, num_ok: int, latency_ms: float | None = 10.0, **more: Any) -> LoadWindow:
    """A window of ten seconds."""
    return LoadWindow(
        num_users=num_users, began_at=0.0, ended_at=10.0, num_ok=num_ok, latency_ms=latency_ms,
        **more,
    )  # fmt: skip


BROKEN = window(1, 0, None, num_failed=7, first_error="500: torn")
GROWING = [window(1, 50), window(2, 90)]
SLOW = [window(1, 50, 60.0), window(2, 60, 70.0)]


@cases(
    "windows, rules, expected",
    case("no window", [], RULES, None),
    case("more users bring more", GROWING, RULES, None),
    case("MaxInvocations", [window(1, 167)], RULES, "MaxInvocations 1000 is reached"),
    case(
        "MaxInvocations with errors",
        [window(1, 50), window(2, 170, num_failed=3)],
        RULES,
        None,
    ),
    case("one slow window may be noise", [window(1, 50), SLOW[0]], RULES, None),
    case("two slow windows", SLOW, RULES, "P95 of the latency is above 50 ms"),
    case("two slow windows at P99", SLOW, replace(RULES, percentile=0.99), "P99 of"),
    case("slow, without a threshold", SLOW, StoppingRules(), None),
    case("all calls of the first window failed", [BROKEN], RULES, "every invocation failed"),
    case(
        "two windows with errors",
        [window(1, 50), window(1, 98, num_failed=1), window(1, 90, num_failed=1)],
        RULES,
        "more than 1% of the invocations failed",
    ),
    case(
        "three windows with more users and no more invocations",
        [window(1, 60), window(2, 100), *(window(it, 101) for it in (3, 4, 5))],
        RULES,
        "more users bring no more invocations",
    ),
    case(
        "the same users again say nothing",
        [window(1, 100), *(window(1, 100) for _ in range(9))],
        RULES,
        None,
    ),
    case(
        "a client that wants to go on",
        [window(1, 60), window(2, 100), *(window(it, 101) for it in (3, 4, 5))],
        replace(RULES, stops_when_flat=False),
        None,
    ),
)
def test_the_reason_to_stop(
    windows: Sequence[LoadWindow], rules: StoppingRules, expected: str | None
) -> None:
    found = find_stop(windows, rules)
    assert found is None if expected is None else expected in (found or "")


@cases(
    "windows, num_users, per_minute",
    case("the window with the most", [window(1, 50), window(2, 90), window(4, 80)], 2, 540.0),
    case("a faster one is too slow", [window(1, 50), window(2, 90, 60.0)], 1, 300.0),
    case("a faster one has errors", [window(1, 50), window(2, 90, num_failed=2)], 1, 300.0),
)
def test_the_window_that_counts(
    windows: Sequence[LoadWindow], num_users: int, per_minute: float
) -> None:
    best = choose_best(windows, RULES)
    assert best is not None
    assert (best.num_users, best.invocations_per_minute) == (num_users, per_minute)


@cases(
    "windows, expected",
    case("nothing was answered", [], "No invocation was answered before the load ended."),
    case("all failed", [BROKEN, BROKEN], "14 of 14 invocations failed. The first: 500: torn"),
    case("all were slow", SLOW, "P95 of the latency within 50 ms: it was 60.0 ms at best."),
)
def test_the_failure_of_a_step(windows: Sequence[LoadWindow], expected: str) -> None:
    assert choose_best(windows, RULES) is None
    assert expected in explain_failure(windows, RULES)
