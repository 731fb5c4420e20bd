from tests.cases import case, cases

from hostelry.base.http import whole_number


@cases(
    "text, number",
    case("the least", "1", 1),
    case("the most", "100", 100),
    case("zeros in front, within the most's digits", "007", 7),
    case("below the least", "0", None),
    case("above the most", "101", None),
    case("nothing", "", None),
    case("a sign", "-1", None),
    case("an underscore", "1_0", None),
    case("a superscript, which int refuses", "²", None),
    case("another alphabet's digit", "\u0663", None),
    case("28 digits that begin as a small number", "000000001" + "0" * 19, None),
    case("more digits than int takes", "9" * 5_000, None),
)
def test_a_number_in_its_range_or_none(text: str, number: int | None) -> None:
    assert whole_number(text, 1, 100) == number
