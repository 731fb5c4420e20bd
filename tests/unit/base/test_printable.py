"""Text of models loses the characters that control a terminal."""

import io
import sys
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.printable import (
    CLEAR_LINE,
    one_line,
    plain_number,
    printable,
    printable_stream,
    short_number,
    whole_stream,
)
from hostelry.cli.main import main

EMOJI = "naïve 中文 😀 \U0001f468\u200d\U0001f469"


@cases(
    "text, shown",
    case("plain text", "plain, with 1 % of ~", "plain, with 1 % of ~"),
    case("newlines and tabs", "a\n\tb", "a\n\tb"),
    case("colours", "\x1b[31mred\x1b[0m", "[31mred[0m"),
    case("a window's title", "\x1b]0;title\x07x", "]0;titlex"),
    case("the clipboard", "\x1b]52;c;ZWNobw==\x07", "]52;c;ZWNobw=="),
    case("a return over what was printed", "good\rbad", "goodbad"),
    case("backspaces", "a\x08b\x7fc\x00", "abc"),
    case("eight-bit controls", "\x9b31m\x90q", "31mq"),
    case("writing direction", "\u202eevil\u202c\u2066x\u2069\u200f", "evilx"),
    case("invisible tags", "a\U000e0041\U000e0042b", "ab"),
    case("a lone surrogate, which no terminal can take", "\ud800x", "x"),
    case("private and zero-width characters", "\ue000\ufeffx", "x"),
    case("a line separator", "a\u2028b", "a\nb"),
    case("scripts and joined emoji", EMOJI, EMOJI),
)  # fmt: skip
def test_what_a_terminal_gets(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert "".join(map(printable, text)) == shown, "cut anywhere it is the same"


@cases(
    "text, most, line",
    case("the first line that is not empty", "\n  \n why\nbecause", 0, "why"),
    case("a long line is cut", "abcdefgh", 6, "abc..."),
    case("nothing", "", 5, ""),
)
def test_one_line(text: str, most: int, line: str) -> None:
    assert one_line(text, most) == line


@cases(
    "text, shown",
    case("newlines and tabs", "a\n\tb\n", "a\n\tb\n"),
    case("a colour", "\x1b[32mok\x1b[0m\n", "\x1b[32mok\x1b[0m\n"),
    case("a bold colour", "\x1b[1;31mx\x1b[m", "\x1b[1;31mx\x1b[m"),
    case("hidden text, and another background", "\x1b[8mx\x1b[41m", "[8mx[41m"),
    case("a cleared screen and a title", "\x1b[2Jx\x1b]0;t\x07", "[2Jx]0;t"),
    case("a line that a command begins again", CLEAR_LINE, CLEAR_LINE),
    case("a line that a command blanks", "\r    \r", "\r    \r"),
    case("a line that its text hides", f"bad{CLEAR_LINE}good\n", "bad[2Kgood\n"),
    case("scripts and joined emoji", EMOJI, EMOJI),
)  # fmt: skip
def test_what_commands_print(text: str, shown: str) -> None:
    whole = io.StringIO()
    stream = printable_stream(whole)
    print(text, end="", file=stream, flush=True)
    assert whole.getvalue() == shown
    assert whole_stream(stream) is whole_stream(whole) is whole


@cases(
    "value, text",
    case("a whole number", 1_000_000, "1000000"),
    case("the largest whole number", 2**63 - 1, "9223372036854775807"),
    case("a large number", 1e6, "1000000"),
    case("one that is rounded up to a million", 999_999.9, "1000000"),
    case("a small number", 0.25, "0.25"),
    case("a number without a fraction", 500.0, "500"),
)
def test_numbers_have_no_exponents(value: float, text: str) -> None:
    assert plain_number(value) == text


@cases(
    "value, text",
    case("three digits", 12.345, "12.3"),
    case("a thousand", 999.7, "1000"),
    case("a larger whole part", 1_234.5, "1234"),
    case("a fraction", 0.00171, "0.00171"),
    case("zero", 0.0, "0"),
)
def test_short_numbers_have_three_digits(value: float, text: str) -> None:
    assert short_number(value) == text


def test_the_command_prints_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hostelry", "status", "--home", f"{tmp_path}/a\x07\x1b]0;b"])
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    with pytest.raises(SystemExit):
        main()
    assert "/a]0;b yet" in capsys.readouterr().err
