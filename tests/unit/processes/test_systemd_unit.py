import configparser
from pathlib import Path

from tests.cases import case, cases

from hostelry.processes.systemd_unit import quote, unit_text


def test_systemd_signals_up_alone_and_starts_it_again_where_it_was_killed() -> None:
    argv = ["up", "--detach", "--print-unit", "--port", "9000"]
    text = unit_text(["/v/bin/python", "-m", "hostelry.cli.main"], argv, Path("/srv/a home"))
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    service = unit["Service"]
    assert service["KillMode"] == "process"
    assert service["Restart"] == "on-failure"
    assert service["ExecStart"] == (
        '/v/bin/python -m hostelry.cli.main up --port 9000 --home "/srv/a home"'
    )


@cases(
    "given",
    case("two words", ["up", "--home", "a", "--port", "1"]),
    case("one word", ["up", "--home=a", "--port", "1"]),
    case("cut off", ["up", "--port", "1", "--home"]),
)
def test_the_home_is_given_once(given: list[str]) -> None:
    text = unit_text(["hostelry"], given, Path("/srv/a"))
    assert "ExecStart=hostelry up --port 1 --home /srv/a\n" in text


@cases(
    "word, expected",
    case("a plain word", "plain", "plain"),
    case("a space", "two words", '"two words"'),
    case("a specifier", "100%", '"100%%"'),
    case("a variable", "$HOME", '"$$HOME"'),
    case("quotes and backslashes", 'a"b\\', '"a\\"b\\\\"'),
    case("an apostrophe", "it's", '"it\'s"'),
    case("a separator of commands", ";", '";"'),
    case("nothing", "", '""'),
)
def test_words_reach_the_program_as_they_are(word: str, expected: str) -> None:
    assert quote(word) == expected
