"""Instances to launch, by type."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases
from tests.unit.placement.fleets import (
    BIG,
    PLAIN,
    QUIET,
    SMALL,
    ask,
    held,
    host,
    needs,
    some_requirements,
)

from hostelry.domain.shape import Requirements
from hostelry.placement.fleet_size import explain_growth, plan_growth
from hostelry.placement.pack import place
from hostelry.placement.preference import count_least_instances
from hostelry.placement.room import fits_shape, to_need
from hostelry.placement.values import CopyRequest, Obstacle, Pool, WhyNot

BIG_POOL = Pool(instance_type="ml.big", shape=BIG)
SMALL_POOL = Pool(instance_type="ml.small", shape=SMALL)
PLAIN_POOL = Pool(instance_type="ml.plain", shape=PLAIN)


@cases(
    "requests, pools, max_more, unavailable, expected",
    case("nothing wanted starts nothing", [], [BIG_POOL], 5, [], []),
    case("as many as are filled", [ask("x", needs(2))] * 4, [BIG_POOL], 5, [],
        [("ml.big", (0, 1)), ("ml.big", (2, 3))]),
    case("the first pool that can hold it", [ask("x", needs(1))], [SMALL_POOL, BIG_POOL], 5, [],
        [("ml.small", (0,))]),
    case("what must go to another pool takes others along",
        [ask("x", needs(1)), ask("y", needs(3))], [SMALL_POOL, BIG_POOL], 5, [],
        [("ml.big", (0, 1))]),
    case("a type without capacity is passed over", [ask("x", needs(1))], [SMALL_POOL, BIG_POOL], 5,
        ["ml.small"], [("ml.big", (0,))]),
    case("a type without a specification is passed over", [ask("x", needs(1), types=["ml.big"])],
        [SMALL_POOL, BIG_POOL], 5, [], [("ml.big", (0,))]),
    case("unequal copies are matched", [ask("x", needs(it)) for it in (3, 1, 2, 2)], [BIG_POOL], 5,
        [], [("ml.big", (0, 1)), ("ml.big", (2, 3))]),
)  # fmt: skip
def test_growth(
    requests: list[CopyRequest],
    pools: list[Pool],
    max_more: int,
    unavailable: list[str],
    expected: list[tuple[str, tuple[int, ...]]],
) -> None:
    growth = plan_growth(requests, pools, max_more=max_more, unavailable=frozenset(unavailable))
    assert [(it.instance_type, it.requests) for it in growth.instances] == expected
    assert growth.why_not == {}


def test_copies_above_the_maximum_have_that_reason() -> None:
    growth = plan_growth([ask("x", needs(4))] * 3, [BIG_POOL], max_more=2)
    assert growth.count("ml.big") == 2
    (why_not,) = growth.why_not.values()
    assert why_not.obstacle is Obstacle.AT_MAXIMUM
    assert why_not.text == (
        "a copy needs 4 accelerators, 1024 MB and 1 CPU; "
        "the 2 more that MaxInstanceCount allows are full"
    )
    none = plan_growth([ask("x", needs(4))], [BIG_POOL], max_more=0)
    assert none.why_not[0].text.endswith("; MaxInstanceCount allows no more instances")


def test_the_reason_for_now_and_the_reason_for_no_instance_are_one_text() -> None:
    asked = ask("x", needs(4))
    (now,) = place([asked], [host("i-a")], [held("c1", "i-a", needs(1, 1024))]).outcomes
    assert isinstance(now, WhyNot)
    joint = explain_growth(now, plan_growth([asked], [BIG_POOL], max_more=0).why_not[0])
    assert joint.obstacle is Obstacle.AT_MAXIMUM
    assert joint.lacks == now.lacks
    assert joint.text == (
        "a copy needs 4 accelerators, 1024 MB and 1 CPU; the largest free block is 3 accelerators "
        "on i-a (ml.big, with 195584 MB and 47 CPUs); MaxInstanceCount allows no more instances"
    )
    never = plan_growth([asked], [SMALL_POOL], max_more=1).why_not[0]
    assert explain_growth(now, never) == never


def test_where_few_may_be_started_large_copies_come_first() -> None:
    requests = [*[ask("y", needs(1))] * 4, ask("x", needs(3))]
    growth = plan_growth(requests, [BIG_POOL], max_more=1)
    assert growth.instances[0].requests == (0, 4)
    assert sorted(growth.why_not) == [1, 2, 3]


def test_no_capacity_and_too_small_are_different_reasons() -> None:
    requests = [
        ask("x", needs(4)),
        ask("y", needs(5)),
        ask("z", needs(1)),
    ]
    growth = plan_growth(
        requests, [SMALL_POOL, BIG_POOL], max_more=9, unavailable=frozenset(["ml.big"])
    )
    assert [it.instance_type for it in growth.instances] == ["ml.small"]
    assert growth.why_not[0].obstacle is Obstacle.NO_CAPACITY
    assert growth.why_not[0].text.endswith("; no instance of type ml.big is available now")
    assert growth.why_not[1].obstacle is Obstacle.TYPE_TOO_SMALL


@QUIET
@given(
    requests=st.lists(some_requirements, max_size=12),
    pools=st.permutations([BIG_POOL, SMALL_POOL, PLAIN_POOL]),
    max_more=st.integers(0, 6),
)
def test_every_copy_is_on_one_new_instance_that_holds_it_or_is_refused(
    requests: list[Requirements], pools: list[Pool], max_more: int
) -> None:
    growth = plan_growth([ask("x", it) for it in requests], pools, max_more=max_more)
    placed = sorted(number for it in growth.instances for number in it.requests)
    assert sorted([*placed, *growth.why_not]) == list(range(len(requests)))
    assert len(growth.instances) <= max_more
    shapes = {it.instance_type: it.shape for it in pools}
    for one in growth.instances:
        assert one.requests
        mine, shape = [requests[number] for number in one.requests], shapes[one.instance_type]
        assert sum(it.accelerators for it in mine) <= shape.accelerators
        assert sum(it.min_memory_bytes for it in mine) <= shape.memory_bytes
        assert sum(it.cpus for it in mine) <= shape.cpus


def groupings(count: int) -> Iterator[tuple[int, ...]]:
    """Every way to divide `count` items into groups: the group of each item, in order."""
    if count == 0:
        yield ()
        return
    for rest in groupings(count - 1):
        for group in range(max(rest, default=-1) + 2):
            yield (*rest, group)


def fewest_instances(requests: list[Requirements]) -> int:
    """The least number of the big type, over every grouping of the copies."""
    return min(
        len(set(groups))
        for groups in groupings(len(requests))
        if all(
            _together([it for it, group in zip(requests, groups, strict=True) if group == one])
            for one in set(groups)
        )
    )


def _together(group: list[Requirements]) -> bool:
    return (
        sum(it.accelerators for it in group) <= BIG.accelerators
        and sum(it.min_memory_bytes for it in group) <= BIG.memory_bytes
        and sum(it.cpus for it in group) <= BIG.cpus
    )


@QUIET
@given(
    requests=st.lists(some_requirements.filter(lambda it: fits_shape(to_need(it), BIG)), max_size=6)
)
def test_at_most_one_instance_more_than_the_best_of_all_groupings(
    requests: list[Requirements],
) -> None:
    growth = plan_growth([ask("x", it) for it in requests], [BIG_POOL], max_more=99)
    optimum = fewest_instances(requests)
    assert optimum <= len(growth.instances) <= optimum + 1
    assert count_least_instances([to_need(it) for it in requests], BIG) <= optimum
