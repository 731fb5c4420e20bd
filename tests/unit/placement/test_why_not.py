"""Reasons why a copy fits nowhere: the short resource first, then the possible remedies."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.placement.fleets import BIG, SMALL, ask, held, host, needs

from hostelry.placement import pack
from hostelry.placement.pack import place
from hostelry.placement.shortage import explain_unplaced, find_too_small
from hostelry.placement.values import CopyRequest, Held, Host, Obstacle, Pool, WhyNot


def reason(asked: CopyRequest, hosts: list[Host], there: list[Held]) -> WhyNot:
    (outcome,) = place([asked], hosts, there).outcomes
    assert isinstance(outcome, WhyNot)
    return outcome


@cases(
    "asked, hosts, there, obstacle, text",
    case("no room now: the largest free block of what is short", ask("x", needs(2, 16_384, 4)),
        [host("i-a"), host("i-b")], [held("c1", "i-a", needs(3)), held("c2", "i-b", needs(4))],
        Obstacle.NO_ROOM,
        "a copy needs 2 accelerators, 16384 MB and 4 CPUs; the largest free block is "
        "1 accelerator on i-a (ml.big, with 195584 MB and 47 CPUs), then "
        "0 accelerators on i-b (ml.big, with 195584 MB and 47 CPUs)"),
    case("nothing at all is free of it", ask("x", needs(1)),
        [host("i-a"), host("i-b"), host("i-c", "ml.plain")],
        [held("c1", "i-a", needs(4)), held("c2", "i-b", needs(4))], Obstacle.NO_ROOM,
        "a copy needs 1 accelerator, 1024 MB and 1 CPU; "
        "no accelerator is free on any of 3 instances (ml.big and ml.plain)"),
    case("the only instance is full", ask("x", needs(0, 4096, 2)), [host("i-a", "ml.small")],
        [held("c1", "i-a", needs(1, 16_384, 4))], Obstacle.NO_ROOM,
        "a copy needs 4096 MB and 2 CPUs; no memory is free on i-a (ml.small)"),
    case("memory is short", ask("x", needs(0, 150_000, 4)), [host("i-a")],
        [held("c1", "i-a", needs(1, 100_000))], Obstacle.NO_ROOM,
        "a copy needs 150000 MB and 4 CPUs; the largest free block is "
        "96608 MB on i-a (ml.big, with 3 accelerators and 47 CPUs)"),
    case("what is short is named first", ask("x", needs(1, 1024, 40)), [host("i-a")],
        [held("c1", "i-a", needs(1, 1024, 16))], Obstacle.NO_ROOM,
        "a copy needs 40 CPUs, 1 accelerator and 1024 MB; the largest free block is "
        "32 CPUs on i-a (ml.big, with 3 accelerators and 195584 MB)"),
    case("each instance is short of something else", ask("x", needs(2, 100_000, 4)),
        [host("i-a"), host("i-b")],
        [held("c1", "i-a", needs(3, 50_000)), held("c2", "i-b", needs(1, 150_000))],
        Obstacle.NO_ROOM, "a copy needs 2 accelerators, 100000 MB and 4 CPUs; "
        "i-a (ml.big) lacks 1 accelerator, i-b (ml.big) lacks 53392 MB"),
    case("no empty instance of any type could hold it", ask("x", needs(8)),
        [host("i-a"), host("i-b", "ml.small")], [], Obstacle.TYPE_TOO_SMALL,
        "a copy needs 8 accelerators, 1024 MB and 1 CPU; an empty ml.big has 4 accelerators, "
        "196608 MB and 48 CPUs and an empty ml.small has 1 accelerator, 16384 MB and 4 CPUs"),
    case("no instance at all", ask("x", needs(1)), [], [], Obstacle.NO_INSTANCE,
        "a copy needs 1 accelerator, 1024 MB and 1 CPU; there is no instance to hold it"),
    case("no instance of a type that it has a specification for",
        ask("x", needs(1), types=["ml.small"]), [host("i-a")], [], Obstacle.NO_INSTANCE,
        "a copy needs 1 accelerator, 1024 MB and 1 CPU; its specifications are for ml.small, "
        "and the instances are ml.big"),
    case("moving a copy would make room", ask("x", needs(2)), [host("i-a"), host("i-b")], [
            held("c1", "i-a", needs(2)),
            held("c2", "i-a", needs(1), device_ids=[2]),
            held("c3", "i-b", needs(3)),
        ], Obstacle.FRAGMENTED,
        "a copy needs 2 accelerators, 1024 MB and 1 CPU; the largest free block is "
        "1 accelerator on i-b (ml.big, with 195584 MB and 47 CPUs), then 1 accelerator on i-a "
        "(ml.big, with 194560 MB and 46 CPUs); moving copy c2 from i-a to i-b would make room"),
    case("not every instance is named", ask("x", needs(2)),
        [host(f"i-{number}", "ml.small") for number in range(5)] + [host("i-x")],
        [held(f"c{number}", f"i-{number}", needs(1)) for number in range(5)]
        + [held("cx", "i-x", needs(3))], Obstacle.NO_ROOM,
        "a copy needs 2 accelerators, 1024 MB and 1 CPU; the largest free block is "
        "1 accelerator on i-x (ml.big, with 195584 MB and 47 CPUs), then 0 accelerators on i-0 "
        "(ml.small, with 15360 MB and 3 CPUs), then 0 accelerators on i-1 (ml.small, with "
        "15360 MB and 3 CPUs), and 3 more instances with no more"),
)  # fmt: skip
def test_why_not(
    asked: CopyRequest, hosts: list[Host], there: list[Held], obstacle: Obstacle, text: str
) -> None:
    found = reason(asked, hosts, there)
    assert (found.obstacle, found.text) == (obstacle, text)


def test_requirements_that_differ_by_type_are_listed_by_type() -> None:
    by_type = {"ml.big": needs(5), "ml.small": needs(2, 4096)}
    asked = CopyRequest(owner="x", requirements_by_type=by_type)
    assert reason(asked, [host("i-a")], []).text.startswith(
        "a copy needs 5 accelerators, 1024 MB and 1 CPU on ml.big, or "
        "2 accelerators, 4096 MB and 1 CPU on ml.small; an empty ml.big has 4 accelerators"
    )


def test_programs_get_the_same_as_values() -> None:
    there = [held("c1", "i-a", needs(3)), held("c2", "i-b", needs(1, 195_000))]
    found = reason(ask("x", needs(2, 4096)), [host("i-a"), host("i-b")], there)
    assert found.binding == ("accelerators", "memory")
    assert [(it.instance_id, it.accelerators, it.memory_bytes) for it in found.lacks] == [
        ("i-a", 1, 0),
        ("i-b", 0, (4096 - (196_608 - 195_000)) * 1024 * 1024),
    ]


@cases(
    "there",
    case("it is pinned", [replace(held("c1", "i-a", needs(3)), movable=False)]),
    case("it is leaving anyway", [replace(held("c1", "i-a", needs(3)), leaving=True)]),
    case(
        "it fits nowhere else",
        [held("c1", "i-a", needs(3, 120_000)), held("c2", "i-b", needs(0, 120_000))],
    ),
)
def test_no_move_is_proposed_of_a_copy(there: list[Held]) -> None:
    hosts = [host("i-a"), host("i-b", "ml.big")]
    blocked = [*there, held("c9", "i-b", needs(1, 1024), device_ids=[3])]
    found = reason(ask("x", needs(4)), hosts, blocked)
    assert all(it.copy_id != "c1" for it in found.moves)


def test_several_moves_are_proposed_where_one_is_not_enough() -> None:
    there = [
        held("c1", "i-a", needs(1), device_ids=[0]),
        held("c2", "i-a", needs(1), device_ids=[1]),
        held("c3", "i-b", needs(2)),
    ]
    found = reason(ask("x", needs(4)), [host("i-a"), host("i-b")], there)
    assert found.obstacle is Obstacle.FRAGMENTED
    assert found.text.endswith("; moving copy c3 from i-b to i-a would make room")
    pinned = replace(there[2], movable=False)
    found = reason(ask("x", needs(4)), [host("i-a"), host("i-b")], [*there[:2], pinned])
    assert found.text.endswith(
        "; moving copy c1 from i-a to i-b and moving copy c2 from i-a to i-b would make room"
    )


def test_too_small_asks_the_pools_that_could_be_started() -> None:
    pools = [Pool(instance_type="ml.small", shape=SMALL), Pool(instance_type="ml.big", shape=BIG)]
    assert find_too_small(ask("x", needs(4)), pools) is None
    never = find_too_small(ask("x", needs(4)), pools[:1])
    assert never is not None
    assert never.text == (
        "a copy needs 4 accelerators, 1024 MB and 1 CPU; "
        "an empty ml.small has 1 accelerator, 16384 MB and 4 CPUs"
    )
    elsewhere = find_too_small(ask("x", needs(1), types=["ml.other"]), pools)
    assert elsewhere is not None
    assert elsewhere.text.endswith(
        "; its specifications are for ml.other, and the instances are ml.big and ml.small"
    )


def test_hundreds_of_alike_copies_without_a_place_have_one_reason_each_with_its_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    explained: list[str] = []

    def counted(request: CopyRequest, *rest: Any) -> WhyNot:
        explained.append(request.owner)
        return explain_unplaced(request, *rest)

    monkeypatch.setattr(pack, "explain_unplaced", counted)
    requests = [ask(f"x{number}", needs(1)) for number in range(600)]
    outcomes = place(requests, [host("i-a")], [held("c1", "i-a", needs(4))]).outcomes
    assert [it.owner for it in outcomes if isinstance(it, WhyNot)] == [it.owner for it in requests]
    assert len({it.text for it in outcomes if isinstance(it, WhyNot)}) == 1
    assert explained == ["x0"]
