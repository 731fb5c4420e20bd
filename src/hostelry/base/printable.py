"""Remove control characters from the text of models, containers and users before it is printed.

`PrintableStream` filters all output of commands. Pieces of a streamed answer, and text that rich
draws, pass through `printable` first.
"""

import re
import unicodedata
from typing import Any, TextIO, cast

# Joiners in scripts and emoji are of category Cf, too, but change no other character.
JOINERS = frozenset("\u200c\u200d")
KEPT = frozenset("\n\t")
BREAKS = {"\u2028": "\n", "\u2029": "\n"}
BREAK = re.compile("[\n\u2028\u2029]")
MAX_SHORT = 999_999.5  # from here on, the format g writes exponents
MAX_THREE_DIGITS = 999.5  # from here on, the format .3g does
CLEAR_LINE = "\r\x1b[2K"
OTHER = re.compile(r"[^\n\t -~]")
COLOUR = re.compile(r"(\x1b\[(?:[0-24]|3[0-79]|9[0-7])?(?:;(?:[0-24]|3[0-79]|9[0-7]))*m)")
OWN_LINE_START = re.compile(r"\r(?:\x1b\[2K| *\r)?")
DROPPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def printable(text: str) -> str:
    """`text` without characters that control a terminal or mislead its reader.

    Removes control characters, the first bytes of escape sequences, changes of writing direction,
    invisible characters and lone surrogates. Newlines and tabs stay. The function looks at single
    characters, so the pieces of a stream may be given one by one.
    """
    if OTHER.search(text) is None:
        return text
    return "".join(BREAKS.get(it, it) for it in text if _is_kept(it))


class PrintableStream:
    """A text stream that drops characters which control a terminal.

    Colours pass. The codes that begin a line again pass if they are written alone, as commands do.
    """

    def __init__(self, stream: TextIO) -> None:
        self.whole = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def write(self, text: str) -> int:
        """Write the printable part of `text`. Returns the number of characters given."""
        if OTHER.search(text) is not None and OWN_LINE_START.fullmatch(text) is None:
            parts = COLOUR.split(text)  # every odd part is a colour
            parts[::2] = map(printable, parts[::2])
            text = "".join(parts)
        return self.whole.write(text)


def printable_stream(stream: TextIO) -> TextIO:
    """`stream` without characters that control a terminal."""
    return cast("TextIO", PrintableStream(stream))


def whole_stream(stream: TextIO) -> TextIO:
    """The unfiltered stream below a printable one, for rich, which moves the cursor."""
    return stream.whole if isinstance(stream, PrintableStream) else stream


def terminal_lines(text: str) -> list[str]:
    """The lines of `text` as a terminal shows them."""
    return BREAK.split(text.removesuffix("\n"))


def one_line(text: str, most: int = 0) -> str:
    """The first non-empty line of `text`, made printable, and cut to `most` characters if given."""
    lines = (it.strip() for it in printable(text).splitlines())
    line = next((it for it in lines if it), "")
    return f"{line[: most - 3]}..." if 0 < most < len(line) else line


def plain_number(value: float) -> str:
    """A number of at most six significant digits, or with all digits of a larger whole part."""
    if isinstance(value, int):
        return str(value)
    return f"{value:.0f}" if abs(value) >= MAX_SHORT else f"{value:g}"


def short_number(value: float) -> str:
    """A number of three significant digits, or with all digits of a larger whole part."""
    return f"{value:.0f}" if abs(value) >= MAX_THREE_DIGITS else f"{value:.3g}"


def _is_kept(character: str) -> bool:
    if character in KEPT or character in BREAKS or character in JOINERS:
        return True
    return unicodedata.category(character) not in DROPPED_CATEGORIES
