"""Placement: strategies, zones, accelerators, and copies that run already."""

from tests.cases import case, cases
from tests.unit.placement.fleets import BINPACK, MB, SPREAD, ask, held, host, needs

from hostelry.domain.shape import Requirements
from hostelry.placement.pack import place
from hostelry.placement.room import choose_devices
from hostelry.placement.values import CopyRequest, Held, Host


def instances_of(
    requests: list[CopyRequest], hosts: list[Host], there: list[Held]
) -> list[str | None]:
    outcomes = place(requests, hosts, there).outcomes
    return [getattr(it, "instance_id", None) for it in outcomes]


TWO = [host("i-a"), host("i-b")]
ZONES = [host("i-a", zone="1"), host("i-b", zone="1"), host("i-c", zone="2")]


@cases(
    "requests, hosts, there, expected",
    case("nothing wanted needs nothing", [], [], [], []),
    case("alike: the lowest id", [ask("x", needs(1))], TWO[::-1], [], ["i-a"]),
    case("BINPACK fills one instance first", [ask("x", needs(1))] * 3, TWO, [], ["i-a"] * 3),
    case("SPREAD goes where the owner has the fewest", [ask("x", needs(1), SPREAD)] * 3, TWO, [],
        ["i-a", "i-b", "i-a"]),
    case("SPREAD looks at its own owner, and takes an instance in use before an empty one",
        [ask("x", needs(1), SPREAD), ask("y", needs(1), SPREAD)], TWO, [], ["i-a", "i-a"]),
    case("BINPACK takes the instance in use", [ask("x", needs(1))], TWO,
        [held("c1", "i-b", needs(1))], ["i-b"]),
    case("BINPACK leaves accelerators to those who need them", [ask("x", needs(0))],
        [host("i-a", "ml.big"), host("i-b", "ml.plain")],
        [held("c1", "i-a", needs(1)), held("c2", "i-b", needs(0))], ["i-b"]),
    case("BINPACK takes the last accelerator before one of three", [ask("x", needs(1))], TWO,
        [held("c1", "i-a", needs(1)), held("c2", "i-b", needs(3))], ["i-b"]),
    case("accelerators equal, BINPACK takes where the least is left", [ask("x", needs(0))], TWO,
        [held("c1", "i-a", needs(0, 1024, 8)), held("c2", "i-b", needs(0, 90_000, 8))], ["i-b"]),
    case("SPREAD: zones first, then instances", [ask("x", needs(1), SPREAD)] * 3, ZONES, [],
        ["i-a", "i-c", "i-b"]),
    case("SPREAD within the imbalance: instances first, then zones",
        [ask("x", needs(1), SPREAD, max_imbalance=1)] * 3, ZONES, [], ["i-a", "i-c", "i-b"]),
    case("BINPACK with balanced zones packs inside each",
        [ask("x", needs(1), BINPACK, max_imbalance=0)] * 3, ZONES, [], ["i-a", "i-c", "i-a"]),
    case("BINPACK packs until the imbalance is used up",
        [ask("x", needs(1), BINPACK, max_imbalance=2)] * 3, ZONES, [], ["i-a", "i-a", "i-c"]),
    case("a zone that is full refuses nobody elsewhere",
        [ask("x", needs(4), BINPACK, max_imbalance=0)] * 3, ZONES, [held("c1", "i-c", needs(1))],
        ["i-a", "i-b", None]),
    case("fractions of CPUs add up exactly", [ask("x", needs(0, 1024, 0.25))] * 16,
        [host("i-a", "ml.small")], [], ["i-a"] * 16),
    case("memory runs out before CPUs do", [ask("x", needs(0, 1024, 0.1))] * 41,
        [host("i-a", "ml.small")], [held("c1", "i-a", needs(0, 1024, 0))],
        [*["i-a"] * 15, *[None] * 26]),
    case("a limit of memory above the instance's is no obstacle",
        [ask("x", Requirements(min_memory_bytes=MB, max_memory_bytes=999_999 * MB, cpus=1))],
        [host("i-a", "ml.small")], [], ["i-a"]),
    case("only instances of a specified type are taken", [ask("x", needs(1), types=["ml.small"])],
        TWO, [], [None]),
    case("what is held on an unknown instance takes nothing", [ask("x", needs(1))],
        [host("i-a", "ml.small")], [held("c1", "i-gone", needs(1))], ["i-a"]),
    case("the one asked for first is placed where either is possible",
        [ask("x", needs(1)), ask("y", needs(4))], TWO[:1], [], ["i-a", None]),
    case("as many are placed as can be",
        [ask("x", needs(1)), ask("y", needs(4)), ask("x", needs(3))], TWO, [],
        ["i-a", "i-b", "i-a"]),
)  # fmt: skip
def test_place(
    requests: list[CopyRequest], hosts: list[Host], there: list[Held], expected: list[str | None]
) -> None:
    assert instances_of(requests, hosts, there) == expected


def test_requirements_of_the_type_are_reserved() -> None:
    by_type = {"ml.small": needs(1), "ml.big": needs(2, 4096)}
    asked = CopyRequest(owner="x", requirements_by_type=by_type, strategy=BINPACK)
    (placed,) = place([asked], [host("i-a", "ml.big")], []).placed
    assert placed.requirements == needs(2, 4096)
    assert placed.device_ids == (0, 1)


def test_a_copy_on_its_way_out_holds_its_room_and_does_not_count_as_spread() -> None:
    leaving = Held(copy_id="c1", owner="x", instance_id="i-a", requirements=needs(1), leaving=True)
    assert instances_of([ask("x", needs(4), SPREAD)], TWO, [leaving]) == ["i-b"]
    assert instances_of([ask("x", needs(1), SPREAD)], TWO, [leaving]) == ["i-a"]


@cases(
    "free, count, chosen",
    case("the lowest of a run", [0, 1, 2, 3], 2, (0, 1)),
    case("neighbours before lower ids", [0, 2, 3], 2, (2, 3)),
    case("a single one leaves the pair whole", [0, 1, 3], 1, (3,)),
    case("no neighbours: the lowest", [0, 2, 4], 2, (0, 2)),
    case("all there are", [5, 4, 1], 3, (1, 4, 5)),
    case("none", [0, 1], 0, ()),
)
def test_devices(free: list[int], count: int, chosen: tuple[int, ...]) -> None:
    assert choose_devices(free, count) == chosen


def held_one(copy_id: str, device_ids: list[int]) -> Held:
    return held(copy_id, "i-a", needs(1), device_ids=device_ids)


@cases(
    "there, device_ids",
    case("those held are not given again", [held("c1", "i-a", needs(2))], (2, 3)),
    case("a hole is left to one copy", [held_one("c1", [1])], (2, 3)),
    case("a copy that names none holds the lowest", [held("c1", "i-a", needs(2), device_ids=[])],
        (2, 3)),
    case("a copy that names none holds none that another names",
        [held_one("c1", []), held_one("c2", [0])], (2, 3)),
    case("two that name the same still hold two", [held_one("c1", [0]), held_one("c2", [0])],
        (2, 3)),
    case("an id out of range holds one", [held_one("c1", [99])], (1, 2)),
)  # fmt: skip
def test_accelerators_are_one_copys_alone(there: list[Held], device_ids: tuple[int, ...]) -> None:
    (placed,) = place([ask("x", needs(2))], [host("i-a")], there).placed
    assert placed.device_ids == device_ids


def test_an_instance_that_holds_more_than_it_declares_takes_no_more() -> None:
    there = [held("c1", "i-a", needs(1)), held("c2", "i-a", needs(0, 20_000, 9))]
    assert instances_of([ask("x", needs(0, 128, 0.25))], [host("i-a", "ml.small")], there) == [None]
