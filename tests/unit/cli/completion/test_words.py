import pytest

from hostelry.cli.completion.names import offered
from hostelry.cli.completion.words import KEPT_VARIABLE, joined_words


@pytest.mark.parametrize(
    ("words", "place", "joined", "joined_place", "kept"),
    [
        pytest.param("hostelry st", 1, "hostelry st", 1, "", id="words without colons stay"),
        pytest.param("hostelry chat b : e", 4, "hostelry chat b:e", 2, "b:", id="an adapter"),
        pytest.param("hostelry chat b :", 3, "hostelry chat b:", 2, "b:", id="no letter of it yet"),
        pytest.param(
            "hostelry -e http : //a : 80 st",
            7,
            "hostelry -e http://a:80 st",
            3,
            "",
            id="an address",
        ),
        pytest.param("hostelry a : b c", 2, "hostelry a:", 1, "a:", id="what follows is left out"),
        pytest.param("hostelry a", 7, "hostelry a", 7, None, id="a place that is not there"),
    ],
)
def test_words_are_joined_at_colons(
    words: str, place: int, joined: str, joined_place: int, kept: str | None
) -> None:
    environment = {"COMP_WORDS": words.replace(" ", "\n"), "COMP_CWORD": str(place)}
    joined_words(environment)
    assert environment["COMP_WORDS"].split("\n") == joined.split(" ")
    assert environment["COMP_CWORD"] == str(joined_place)
    assert environment.get(KEPT_VARIABLE) == kept


@pytest.mark.parametrize(
    ("incomplete", "kept", "found"),
    [
        pytest.param("", "", ["base:es", "base:fr", "chat"], id="each name once, in order"),
        pytest.param("base:", "base:", ["es", "fr"], id="without what the shell keeps"),
        pytest.param("x", "", [], id="none that begins otherwise"),
    ],
)
def test_offered(incomplete: str, kept: str, found: list[str]) -> None:
    assert offered(["chat", "base:fr", "base:es", "chat"], incomplete, kept) == found
