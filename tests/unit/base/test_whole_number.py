import pytest

from hostelry.base.http import whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("1", 1, id="the least"),
        pytest.param("100", 100, id="the most"),
        pytest.param("007", 7, id="zeros in front, within the most's digits"),
        pytest.param("0", None, id="below the least"),
        pytest.param("101", None, id="above the most"),
        pytest.param("", None, id="nothing"),
        pytest.param("-1", None, id="a sign"),
        pytest.param("1_0", None, id="an underscore"),
        pytest.param("²", None, id="a superscript, which int refuses"),
        pytest.param("\u0663", None, id="another alphabet's digit"),
        pytest.param("000000001" + "0" * 19, None, id="28 digits that begin as a small number"),
        pytest.param("9" * 5_000, None, id="more digits than int takes"),
    ],
)
def test_a_number_in_its_range_or_none(text: str, number: int | None) -> None:
    assert whole_number(text, 1, 100) == number
