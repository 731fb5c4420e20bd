"""The end of a bracketed value in text that arrives in pieces."""

import re
from dataclasses import dataclass, replace

_IN_JSON = re.compile(r'[{}\[\]"]')
_IN_PYTHON = re.compile(r"""[{}\[\]()"']""")
_IN_STRING = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}
_OPENING = "{[("


@dataclass(frozen=True, slots=True)
class Nesting:
    """A position in a value: its open brackets, the quote of an open string, a backslash before."""

    depth: int = 0
    quote: str = ""
    escaped: bool = False


BEGIN = Nesting()


def json_end(nesting: Nesting, text: str) -> tuple[Nesting, int | None]:
    """The nesting after `text`, and the index after the value's last bracket where it ends."""
    return _end(nesting, text, _IN_JSON)


def python_end(nesting: Nesting, text: str) -> tuple[Nesting, int | None]:
    """The same for Python's literals, with its quotes and parentheses."""
    return _end(nesting, text, _IN_PYTHON)


def _end(nesting: Nesting, text: str, outside: re.Pattern[str]) -> tuple[Nesting, int | None]:
    at = 0
    while at < len(text):
        if nesting.quote:
            nesting, at = _in_string(nesting, text, at)
            continue
        found = outside.search(text, at)
        if found is None:
            break
        at, mark = found.end(), found.group()
        if mark in "\"'":
            nesting = replace(nesting, quote=mark)
            continue
        nesting = replace(nesting, depth=nesting.depth + (1 if mark in _OPENING else -1))
        if nesting.depth <= 0:
            return nesting, at
    return nesting, None


def _in_string(nesting: Nesting, text: str, at: int) -> tuple[Nesting, int]:
    """The nesting where an open string ends, or at the end of the text."""
    if nesting.escaped:
        return replace(nesting, escaped=False), at + 1
    found = _IN_STRING[nesting.quote].search(text, at)
    if found is None:
        return nesting, len(text)
    is_escape = found.group() == "\\"
    quote = nesting.quote if is_escape else ""
    return replace(nesting, escaped=is_escape, quote=quote), found.end()
