from tests.cases import case, cases

from hostelry.base.peers import are_neighbours, skew_refusal


@cases(
    "one, other, neighbours",
    case("the same", "0.1.0", "0.1.0", True),
    case("another patch", "0.1.0", "0.1.9", True),
    case("the next minor", "0.1.7", "0.2.0", True),
    case("numbers, not texts", "0.9.0", "0.10.0", True),
    case("two minors", "0.1.0", "0.3.0", False),
    case("the first of the next major", "1.7.2", "2.0.0", True),
    case("a later one of the next major", "1.7.2", "2.1.0", False),
    case("two majors", "1.0.0", "3.0.0", False),
    case("a candidate and a development one", "0.2.0rc1", "0.3.0.dev4+g12", True),
    case("one that tells none", "0.1.0", "", True),
    case("one that is no version", "0.1.0", "head", True),
)
def test_neighbours_are_one_minor_apart(one: str, other: str, neighbours: bool) -> None:
    assert are_neighbours(one, other) is neighbours
    assert are_neighbours(other, one) is neighbours


def test_a_refusal_names_both_and_what_to_do() -> None:
    found = skew_refusal("this host", "0.1.0", "the control at x", "0.3.0")
    assert found is not None
    for words in ("this host is Hostelry 0.1.0", "the control at x is 0.3.0", "one at a time"):
        assert words in found
    assert skew_refusal("this host", "0.1.0", "the control at x", "0.2.0") is None
