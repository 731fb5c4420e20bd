"""Merged or with the others: the sentence about each base's busiest adapter."""

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.advisor.mixes import TRAFFIC, build_mix, build_model, build_traffic

from hostelry.advisor.merging import MAX_BASES, list_merge_advice
from hostelry.advisor.values import FitModel


def build_family(base: str, *per_hour: float) -> list[FitModel]:
    """A base and its adapters, with these calls in an hour."""
    names = [base, *(f"{base}-{it}" for it in range(1, len(per_hour)))]
    return [
        build_model(
            name,
            adapter_of=None if name == base else base,
            traffic=replace(TRAFFIC, per_hour=calls),
        )
        for name, calls in zip(names, per_hour, strict=True)
    ]


@cases(
    "per_hour, from_share, expected",
    case("nearly alone", (10.0, 90.0), 0.75, "set OPTION_FUSE_ADAPTER=b-1, and reserve memory"),
    case("exactly the share", (25.0, 75.0), 0.75, "Merging pays from 75% on: set OPTION_FUSE"),
    case(
        "with others", (40.0, 60.0), 0.75, "b-1 gets 60% of its work. Merging pays from 75% on, so"
    ),
    case("never measured", (10.0, 90.0), None, "Merged or not is unknown: measure with"),
    case("many adapters", (0.0, 10.0, 10.0, 10.0), 0.1, None),
    case("no call", (0.0, 0.0), 0.1, None),
    case("no adapter", (9.0,), 0.1, None),
)
def test_the_busiest_adapter_is_judged_by_its_share(
    per_hour: tuple[float, ...], from_share: float | None, expected: str | None
) -> None:
    models = build_family("b", *per_hour)
    found = list_merge_advice(models, build_traffic(build_mix(*models)), from_share)
    assert len(found) == (expected is not None)
    assert expected is None or expected in found[0]


def test_the_bases_beyond_a_few_are_counted() -> None:
    models = [it for number in range(50) for it in build_family(f"b{number}", 1.0, 9.0)]
    found = list_merge_advice(models, build_traffic(build_mix(*models)), 0.5)
    assert len(found) == MAX_BASES + 1
    assert found[-1] == "45 more bases have such an adapter"
