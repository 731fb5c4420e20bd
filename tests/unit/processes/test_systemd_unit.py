import configparser
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(["up", "--home", "a", "--port", "1"], id="two words"),
        pytest.param(["up", "--home=a", "--port", "1"], id="one word"),
        pytest.param(["up", "--port", "1", "--home"], id="cut off"),
    ],
)
def test_the_home_is_given_once(given: list[str]) -> None:
    text = unit_text(["hostelry"], given, Path("/srv/a"))
    assert "ExecStart=hostelry up --port 1 --home /srv/a\n" in text


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        pytest.param("plain", "plain", id="a plain word"),
        pytest.param("two words", '"two words"', id="a space"),
        pytest.param("100%", '"100%%"', id="a specifier"),
        pytest.param("$HOME", '"$$HOME"', id="a variable"),
        pytest.param('a"b\\', '"a\\"b\\\\"', id="quotes and backslashes"),
        pytest.param("it's", '"it\'s"', id="an apostrophe"),
        pytest.param(";", '";"', id="a separator of commands"),
        pytest.param("", '""', id="nothing"),
    ],
)
def test_words_reach_the_program_as_they_are(word: str, expected: str) -> None:
    assert quote(word) == expected
