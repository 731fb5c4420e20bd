"""Text of models without what steers a terminal."""

import io
import sys
from pathlib import Path

import pytest

from hostelry.cli.main import main
from hostelry.cli.printable import CLEAR_LINE, one_line, printable, printable_stream, whole_stream

EMOJI = "naïve 中文 😀 \U0001f468\u200d\U0001f469"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("plain, with 1 % of ~", "plain, with 1 % of ~", id="plain text"),
        pytest.param("a\n\tb", "a\n\tb", id="newlines and tabs"),
        pytest.param("\x1b[31mred\x1b[0m", "[31mred[0m", id="colours"),
        pytest.param("\x1b]0;title\x07x", "]0;titlex", id="a window's title"),
        pytest.param("\x1b]52;c;ZWNobw==\x07", "]52;c;ZWNobw==", id="the clipboard"),
        pytest.param("good\rbad", "goodbad", id="a return over what was printed"),
        pytest.param("a\x08b\x7fc\x00", "abc", id="backspaces"),
        pytest.param("\x9b31m\x90q", "31mq", id="eight-bit controls"),
        pytest.param("\u202eevil\u202c\u2066x\u2069\u200f", "evilx", id="writing direction"),
        pytest.param("a\U000e0041\U000e0042b", "ab", id="invisible tags"),
        pytest.param("\ud800x", "x", id="a lone surrogate, which no terminal can take"),
        pytest.param("\ue000\ufeffx", "x", id="private and zero-width characters"),
        pytest.param("a\u2028b", "a\nb", id="a line separator"),
        pytest.param(EMOJI, EMOJI, id="scripts and joined emoji"),
    ],
)  # fmt: skip
def test_what_a_terminal_gets(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert "".join(map(printable, text)) == shown, "cut anywhere it is the same"


@pytest.mark.parametrize(
    ("text", "most", "line"),
    [
        pytest.param("\n  \n why\nbecause", 0, "why", id="the first line that is not empty"),
        pytest.param("abcdefgh", 6, "abc...", id="a long line is cut"),
        pytest.param("", 5, "", id="nothing"),
    ],
)
def test_one_line(text: str, most: int, line: str) -> None:
    assert one_line(text, most) == line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("a\n\tb\n", "a\n\tb\n", id="newlines and tabs"),
        pytest.param("\x1b[32mok\x1b[0m\n", "\x1b[32mok\x1b[0m\n", id="a colour"),
        pytest.param("\x1b[1;31mx\x1b[m", "\x1b[1;31mx\x1b[m", id="a bold colour"),
        pytest.param("\x1b[8mx\x1b[41m", "[8mx[41m", id="hidden text, and another background"),
        pytest.param("\x1b[2Jx\x1b]0;t\x07", "[2Jx]0;t", id="a cleared screen and a title"),
        pytest.param(CLEAR_LINE, CLEAR_LINE, id="a line that a command begins again"),
        pytest.param("\r    \r", "\r    \r", id="a line that a command blanks"),
        pytest.param(f"bad{CLEAR_LINE}good\n", "bad[2Kgood\n", id="a line that its text hides"),
        pytest.param(EMOJI, EMOJI, id="scripts and joined emoji"),
    ],
)  # fmt: skip
def test_what_commands_print(text: str, shown: str) -> None:
    whole = io.StringIO()
    stream = printable_stream(whole)
    print(text, end="", file=stream, flush=True)
    assert whole.getvalue() == shown
    assert whole_stream(stream) is whole_stream(whole) is whole


def test_the_command_prints_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hostelry", "status", "--home", f"{tmp_path}/a\x07\x1b]0;b"])
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    with pytest.raises(SystemExit):
        main()
    assert "/a]0;b yet" in capsys.readouterr().err
