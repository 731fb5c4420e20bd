"""Emptying instances: only with gain, started before stopped, the cheapest first."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.placement.fleets import (
    BINPACK,
    QUIET,
    SPREAD,
    as_held,
    ask,
    check_never_oversubscribed,
    held,
    host,
    moved,
    needs,
    some_hosts,
    some_requests,
)

from hostelry.placement.consolidation import consolidate, idle_instances
from hostelry.placement.pack import place
from hostelry.placement.values import CopyRequest, Held, Host, Placed

TWO = [host("i-a"), host("i-b")]
THREE = [*TWO, host("i-c")]
ONE_EACH = [held("c1", "i-a", needs(1), "x"), held("c2", "i-b", needs(2), "y")]
KINDS = {"x": ask("x", needs(1)), "y": ask("y", needs(2))}


@cases(
    "hosts, there, kinds, moves, released",
    case("two half empty become one", TWO, ONE_EACH, KINDS, {"c1": "i-b"}, ("i-a",)),
    case("the fewest bytes are loaded again", TWO,
        [held("c1", "i-a", needs(1, 9000), "x"), held("c2", "i-b", needs(2, 8000), "y")],
        {"x": ask("x", needs(1, 9000)), "y": ask("y", needs(2, 8000))}, {"c2": "i-a"}, ("i-b",)),
    case("what is known to load is believed before the reservation", TWO,
        [replace(ONE_EACH[0], moved_bytes=2 << 40), ONE_EACH[1]], KINDS, {"c2": "i-a"}, ("i-b",)),
    case("an idle instance goes before any copy moves", THREE, ONE_EACH, KINDS, {}, ("i-c",)),
    case("a pinned copy stays, and others come to it", TWO,
        [replace(it, movable=False) for it in ONE_EACH[:1]] + ONE_EACH[1:], KINDS, {"c2": "i-a"},
        ("i-b",)),
    case("on another type it reserves what it needs there", [host("i-a"), host("i-b", "ml.small")],
        [held("c1", "i-a", needs(2), "y"), held("c2", "i-b", needs(1), "x")],
        {"y": ask("y", needs(2)), "x": CopyRequest(owner="x", requirements_by_type={
            "ml.small": needs(1), "ml.big": needs(2)}, strategy=BINPACK)}, {"c2": "i-a"}, ("i-b",)),
)  # fmt: skip
def test_released(
    hosts: list[Host],
    there: list[Held],
    kinds: Mapping[str, CopyRequest],
    moves: Mapping[str, str],
    released: tuple[str, ...],
) -> None:
    found = consolidate(hosts, there, kinds)
    assert found is not None
    assert {it.copy_id: it.to.instance_id for it in found.moves} == moves
    assert found.released == released


SPREAD_X = {"x": ask("x", needs(1), SPREAD)}


@cases(
    "hosts, there, kinds, options",
    case("nothing is there", [], [], {}, {}),
    case("one instance in use is needed", TWO[:1], ONE_EACH[:1], KINDS, {}),
    case("so many are to be left", TWO, ONE_EACH, KINDS, {"min_instances": 2}),
    case("none may go", TWO, ONE_EACH, KINDS, {"max_step": 0}),
    case("all are pinned", TWO, [replace(it, movable=False) for it in ONE_EACH], KINDS, {}),
    case("what is leaving empties its instance by itself", TWO,
        [replace(it, leaving=True) for it in ONE_EACH[:1]] + ONE_EACH[1:], KINDS, {}),
    case("old and new do not fit beside each other", TWO,
        [held("c1", "i-a", needs(2), "y"), held("c2", "i-b", needs(3), "z")], KINDS, {}),
    case("nobody tells what the copies need elsewhere", TWO, ONE_EACH, {}, {}),
    case("SPREAD: two copies on two instances do not end on one", TWO,
        [held("c1", "i-a", needs(1), "x"), held("c2", "i-b", needs(1), "x")], SPREAD_X, {}),
)  # fmt: skip
def test_nothing_is_released(
    hosts: list[Host],
    there: list[Held],
    kinds: Mapping[str, CopyRequest],
    options: Mapping[str, int],
) -> None:
    assert consolidate(hosts, there, kinds, **options) is None


def test_spread_gives_up_instances_as_long_as_two_are_left() -> None:
    there = [held(f"c{number}", f"i-{name}", needs(1), "x") for number, name in enumerate("abc")]
    found = consolidate(THREE, there, SPREAD_X)
    assert found is not None
    assert len({it.instance_id for it in moved(there, found.moves)}) == 2
    again = [held("c1", "i-a", needs(1), "x"), held("c2", "i-a", needs(1), "x", [1])]
    beside = [*again, held("c3", "i-b", needs(2), "y")]
    found = consolidate(TWO, beside, {**SPREAD_X, **KINDS, "x": SPREAD_X["x"]})
    assert found is not None, "copies that were on one instance already may stay together"


def test_several_go_in_one_step_and_no_copy_moves_twice() -> None:
    hosts = [host(f"i-{number}") for number in range(4)]
    there = [held(f"c{number}", f"i-{number}", needs(1), "x") for number in range(4)]
    found = consolidate(hosts, there, KINDS, max_step=3)
    assert found is not None
    assert len(found.released) == 3
    assert len({it.copy_id for it in found.moves}) == len(found.moves) == 3
    assert {it.to.instance_id for it in found.moves}.isdisjoint(found.released)
    assert len(consolidate(hosts, there, KINDS, max_step=2).released) == 2  # type: ignore[union-attr]


def test_an_instance_that_a_copy_is_leaving_is_not_idle() -> None:
    assert idle_instances(THREE, [replace(ONE_EACH[0], leaving=True)]) == ("i-b", "i-c")


@QUIET
@given(
    requests=st.lists(some_requests(), max_size=8),
    hosts=some_hosts,
    pinned=st.sets(st.integers(0, 7)),
    max_step=st.integers(0, 4),
    min_instances=st.integers(0, 3),
)
def test_any_consolidation_is_safe_at_every_moment_and_has_a_gain(
    requests: list[CopyRequest],
    hosts: list[Host],
    pinned: set[int],
    max_step: int,
    min_instances: int,
) -> None:
    kinds = {it.owner: it for it in requests}
    same_kind = [kinds[it.owner] for it in requests]
    there = [
        replace(as_held(f"c{number}", same_kind[number].owner, it), movable=number not in pinned)
        for number, it in enumerate(place(same_kind, hosts, []).outcomes)
        if isinstance(it, Placed)
    ]
    found = consolidate(hosts, there, kinds, max_step=max_step, min_instances=min_instances)
    assert consolidate(hosts[::-1], there[::-1], kinds, max_step=max_step,
                       min_instances=min_instances) == found  # fmt: skip
    if found is None:
        return
    assert 0 < len(found.released) <= max_step
    assert len(hosts) - len(found.released) >= min_instances
    starting = [as_held(f"new-{it.copy_id}", "x", it.to) for it in found.moves]
    check_never_oversubscribed(hosts, [*there, *starting])
    after = moved(there, found.moves)
    check_never_oversubscribed(hosts, after)
    assert {it.instance_id for it in after}.isdisjoint(found.released)
    moving = {it.copy_id for it in found.moves}
    assert moving.isdisjoint({it.copy_id for it in there if not it.movable})
    assert {it.instance_id for it in there if it.copy_id in moving} <= set(found.released)
    for owner in {it.owner for it in there if kinds[it.owner].strategy is SPREAD}:
        before = {it.instance_id for it in there if it.owner == owner}
        later = {it.instance_id for it in after if it.owner == owner}
        assert len(later) >= min(2, len(before))
