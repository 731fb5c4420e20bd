"""The number of adapters on a copy: limits by measured points, and the sentence for each base."""

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.advisor.mixes import TRAFFIC, build_mix, build_model, build_traffic

from hostelry.advisor.adapter_limits import MAX_BASES, find_limit, list_limit_advice
from hostelry.advisor.values import AdapterThroughput, FitModel

Points = tuple[tuple[int, float], ...]
FALLING: Points = ((1, 100.0), (16, 98.0), (64, 50.0))
FLAT: Points = ((1, 100.0), (64, 99.0))


def build_points(rank: int, points: Points, base: str = "b") -> list[AdapterThroughput]:
    return [
        AdapterThroughput(base=base, rank=rank, adapters=adapters, tokens_per_s=per_s)
        for adapters, per_s in points
    ]


def build_family(*ranks: int | None, base: str = "b", per_hour: float = 9.0) -> list[FitModel]:
    """A base and its adapters with these ranks, all with as many calls in an hour."""
    traffic = replace(TRAFFIC, per_hour=per_hour)
    adapters = [
        build_model(f"{base}-{place}", adapter_of=base, adapter_rank=rank, traffic=traffic)
        for place, rank in enumerate(ranks)
    ]
    return [build_model(base), *adapters]


def advise(models: list[FitModel], points: list[AdapterThroughput]) -> tuple[str, ...]:
    return list_limit_advice(models, build_traffic(build_mix(*models)), points)


@cases(
    "points, adapters, is_least",
    case("a fall between two points, on their straight line", FALLING, 19, False),
    case("in any order", FALLING[::-1], 19, False),
    case("exactly the kept share is no fall", ((1, 100.0), (8, 95.0)), 8, True),
    case("a fall after a point with exactly it", ((1, 100.0), (8, 95.0), (9, 1.0)), 8, False),
    case("no fall", FLAT, 64, True),
    case("a throughput that still rises", ((1, 10.0), (4, 90.0), (16, 100.0)), 16, True),
    case("a rise, then a fall", ((1, 10.0), (4, 100.0), (8, 90.0)), 6, False),
    case("a recovery after a fall does not count", ((1, 100.0), (4, 50.0), (8, 99.0)), 1, False),
    case("one point", ((16, 7.0),), 16, True),
    case("the smallest and largest numbers", ((1, 1e9), (100_000, 1e-300)), 5000, False),
)  # fmt: skip
def test_the_limit_of_a_rank(points: Points, adapters: int, is_least: bool) -> None:
    limit = find_limit(build_points(16, points))
    assert (limit.rank, limit.adapters, limit.is_least) == (16, adapters, is_least)


@cases(
    "ranks, measured, expected",
    case("never measured", (16, 16), {}, (
        "b: 2 have calls. How many of them a copy serves is unknown: measure with `python -m",
    )),
    case("fewer than a copy serves", (16,) * 19, {16: FALLING}, (
        "b: 19 have calls. A copy serves 19 of rank 16 before its throughput falls below 95% of the"
        " best measured. One copy is enough",
    )),
    case("one more", (16,) * 20, {16: FALLING}, ("They need 2 copies",)),
    case("fewer than measured without a fall", (16,) * 64, {16: FLAT}, (
        "at least 64 of rank 16", "More were not measured. One copy is enough",
    )),
    case("more than measured without a fall", (16,) * 65, {16: FLAT}, (
        "They need at most 2 copies, with up to 64 adapters on each",
    )),
    case("no rank in the mix", (None,) * 20, {8: FLAT, 64: FALLING}, (
        "serves 19 of rank 64 before", "20 without adapter_rank count as rank 64, the largest",
        "They need 2 copies",
    )),
    case("several ranks", (8,) * 10 + (64,) * 10, {8: FLAT, 64: FALLING}, (
        "serves at least 64 of rank 8 or 19 of rank 64 before",
        "They need at most 2 copies, with up to 19 adapters on each",
    )),
    case("a rank between two measured ones", (12,), {8: FLAT, 16: FALLING}, (
        "19 of rank 16", "Other ranks count as the next measured one: 12 as 16. One copy",
    )),
    case("a rank above all measured ones", (8, 128), {8: FLAT, 64: FALLING}, (
        "at least 64 of rank 8 before",
        "Of rank 128 it is unknown, because the largest measured rank is 64: measure with",
    )),
    case("only ranks above all measured ones", (128,), {64: FLAT}, (
        "b: 1 has calls. Of rank 128 it is unknown",
    )),
)  # fmt: skip
def test_the_sentence_for_a_base(
    ranks: tuple[int | None, ...], measured: dict[int, Points], expected: tuple[str, ...]
) -> None:
    points = [it for rank, found in measured.items() for it in build_points(rank, found)]
    (line,) = advise(build_family(*ranks), points)
    assert [it for it in expected if it not in line] == []
    is_unknown = "unknown" in line
    assert is_unknown is not ("They need" in line or "One copy" in line)


def test_adapters_without_a_call_and_bases_without_adapters_have_no_line() -> None:
    models = [*build_family(16, per_hour=0.0), build_model("alone")]
    assert advise(models, build_points(16, FLAT)) == ()


def test_the_points_of_a_base_say_nothing_about_another() -> None:
    models = [*build_family(16), *build_family(16, base="c")]
    known, unknown = advise(models, build_points(16, FLAT))
    assert "One copy is enough" in known
    assert unknown.startswith("c: 1 has calls. How many of them a copy serves is unknown")


def test_many_bases_and_ranks_are_counted() -> None:
    models = [it for number in range(50) for it in build_family(16, base=f"b{number}")]
    found = advise(models, [])
    assert len(found) == MAX_BASES + 1
    assert found[-1] == "45 more bases have adapters with calls"
    points = [it for rank in range(1, 101) for it in build_points(rank * 2, FLAT)]
    (line,) = advise(build_family(*range(1, 201)), points)
    assert "or others of 95 more ranks before" in line
    assert "the next measured one: 1 as 2, 3 as 4, 5 as 6, 7 as 8, 9 as 10, ..." in line
    assert len(line) < 600
