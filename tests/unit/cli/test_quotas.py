"""The text of `hostelry quotas`, and of reached limits in other commands."""

from typing import Any

from tests.unit.quotas.quota_sample import ACCOUNT, ANA, quota

from hostelry.cli.quotas import list_lines, quota_lines, reached_lines
from hostelry.control.quota_routes import show_quota
from hostelry.domain.quota import Priority, Quota, ReportedUse


def shown(limited: Quota, *values: tuple[str, ...], used: int = 3) -> dict[str, Any]:
    uses = [
        ReportedUse(
            key=str(number),
            quota_id=limited.id,
            values=names,
            used=(used, 0, 0, 0, 0, 1_500_000_000),
            held=(0, 0, 0, 2, 0, 0),
            refused=(4, 0, 0, 0, 0, 0),
            warned=(0, 0, 0, 0, 0, 0),
            shares=(-1,) * 6,
        )
        for number, names in enumerate(values)
    ]
    return show_quota(limited, uses)


TEAM = quota("team", principal="*", requests_per_minute=3, cost_per_day=2.5)
SOFT = quota("soft", endpoint="chat", concurrency=2, warn_only=True)
ORDER = quota("order", account="*", priority=Priority.LOW, weight=0.5)


def test_a_list_has_the_largest_use_of_each_limit() -> None:
    quotas = [shown(TEAM, (ANA,)), shown(SOFT), shown(ORDER)]
    lines = [" ".join(line.split()) for line in list_lines(quotas, "USD")]
    assert lines == [
        "NAME ACCOUNT COUNTS LIMITS REFUSED",
        f"team {ACCOUNT} each principal requests_per_minute 3/3, cost_per_day 1.5/2.5 USD 4",
        f"soft {ACCOUNT} endpoint chat concurrency 0/2, warns only 0",
        "order * all calls priority low, weight 0.5 0",
    ]
    assert list_lines([], "") == ["No quotas. `hostelry quotas set NAME` sets one."]


def test_a_quota_is_shown_with_each_of_its_counts() -> None:
    lines = quota_lines(shown(TEAM, (ANA,)), "USD")
    limits = "requests_per_minute 3, cost_per_day 2.5 USD"
    assert lines[0] == f"quota team  account {ACCOUNT}  each principal: {limits}"
    assert [line.split() for line in lines[1:]] == [
        ["LIMIT", "OF", "USED", "RESERVED", "ALLOWED", "REFUSED", "WARNED"],
        ["requests_per_minute", "principal", ANA, "3", "0", "3", "4", "0"],
        ["cost_per_day", "principal", ANA, "1.5", "USD", "0", "USD", "2.5", "USD", "0", "0"],
    ]
    assert quota_lines(shown(SOFT), "")[-1] == "  no use yet"


def test_reached_limits_are_named() -> None:
    quotas = [shown(TEAM, (ANA,)), shown(SOFT, ()), shown(ORDER, ())]
    assert reached_lines(quotas, "USD") == [
        f"quota team principal {ANA}: requests_per_minute of 3 is reached, and refuses calls",
        "quota soft: concurrency of 2 is reached, and only warns",
    ]
