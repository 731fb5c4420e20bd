import pytest

from hostelry.base.peers import are_neighbours, skew_refusal


@pytest.mark.parametrize(
    ("one", "other", "neighbours"),
    [
        pytest.param("0.1.0", "0.1.0", True, id="the same"),
        pytest.param("0.1.0", "0.1.9", True, id="another patch"),
        pytest.param("0.1.7", "0.2.0", True, id="the next minor"),
        pytest.param("0.9.0", "0.10.0", True, id="numbers, not texts"),
        pytest.param("0.1.0", "0.3.0", False, id="two minors"),
        pytest.param("1.7.2", "2.0.0", True, id="the first of the next major"),
        pytest.param("1.7.2", "2.1.0", False, id="a later one of the next major"),
        pytest.param("1.0.0", "3.0.0", False, id="two majors"),
        pytest.param("0.2.0rc1", "0.3.0.dev4+g12", True, id="a candidate and a development one"),
        pytest.param("0.1.0", "", True, id="one that tells none"),
        pytest.param("0.1.0", "head", True, id="one that is no version"),
    ],
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
