"""Text of models and containers as a terminal may get it. Pure."""

import unicodedata

# Joiners of scripts and emoji are of category Cf, too, and change no other character.
JOINERS = frozenset("\u200c\u200d")
KEPT = frozenset("\n\t")
BREAKS = {"\u2028": "\n", "\u2029": "\n"}
DROPPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def printable(text: str) -> str:
    """`text` without characters that steer a terminal or its reader's eye.

    Control characters, escape sequences' first bytes, changes of writing direction, invisible
    characters and lone surrogates are left out; newlines and tabs stay. As it looks at single
    characters, pieces of a stream may be given one by one.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(BREAKS.get(it, it) for it in text if _is_kept(it))


def one_line(text: str, most: int = 0) -> str:
    """The first line of `text` that is not empty, printable; cut to `most` characters if given."""
    lines = (it.strip() for it in printable(text).splitlines())
    line = next((it for it in lines if it), "")
    return f"{line[: most - 3]}..." if 0 < most < len(line) else line


def _is_kept(character: str) -> bool:
    if character in KEPT or character in BREAKS or character in JOINERS:
        return True
    return unicodedata.category(character) not in DROPPED_CATEGORIES
