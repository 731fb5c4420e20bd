"""Findings of the parsers in a model's text, and searches in text that arrives in pieces."""

import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

S = TypeVar("S")
PIECE_CHARACTERS = 4096  # searched at once, as a search may go to the end of the held text
_IN_JSON = re.compile(r'[{}\[\]"]')
_IN_PYTHON = re.compile(r"""[{}\[\]()"']""")
_IN_STRING = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}
_OPENING = "{[("


class ContentText(msgspec.Struct, frozen=True):
    """More of the answer itself."""

    text: str


class ReasoningText(msgspec.Struct, frozen=True):
    """More of the reasoning before the answer."""

    text: str


class CallName(msgspec.Struct, frozen=True):
    """The next call: the function that it names."""

    name: str


class CallArguments(msgspec.Struct, frozen=True):
    """More of the JSON text of the present call's arguments."""

    text: str


class CallEnd(msgspec.Struct, frozen=True):
    """The end of the present call. `raw` is all of it as the model wrote it."""

    raw: str


Delta = ContentText | ReasoningText | CallName | CallArguments | CallEnd


class TextParser(Protocol[S]):
    """A pure state machine over text that arrives in pieces, cut anywhere.

    The same text gives the same deltas, texts joined, however it is cut. No text is an error: text
    that is not a call is content.
    """

    def start(self) -> S:
        """The state before the first character."""
        ...

    def feed(self, state: S, text: str) -> tuple[S, tuple[Delta, ...]]:
        """The state after more text, and the deltas that it made certain."""
        ...

    def finish(self, state: S) -> tuple[Delta, ...]:
        """The deltas that were held back, at the end of all text."""
        ...


class Cut(msgspec.Struct, frozen=True):
    """The text before the first marker, the marker, and the rest.

    Without a whole marker, `after` is the end of the text that may begin one.
    """

    before: str
    marker: str | None
    after: str


def cut_at(text: str, markers: Sequence[str]) -> Cut:
    """`text` at its first marker. No marker may be the beginning of another."""
    found = [(start, marker) for marker in markers if (start := text.find(marker)) >= 0]
    if found:
        start, marker = min(found)
        return Cut(text[:start], marker, text[start + len(marker) :])
    kept = len(text) - num_begun(text, markers)
    return Cut(text[:kept], None, text[kept:])


def num_begun(text: str, markers: Sequence[str]) -> int:
    """Length of the longest end of `text` that is the beginning of a marker."""
    longest = max((len(marker) for marker in markers), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        end = text[len(text) - length :]
        if any(marker.startswith(end) for marker in markers):
            return length
    return 0


class Nesting(msgspec.Struct, frozen=True):
    """A position in a value: its open brackets, the quote of an open string, a backslash before."""

    depth: int = 0
    quote: str = ""
    escaped: bool = False


BEGIN = Nesting()


def json_end(nesting: Nesting, text: str) -> tuple[Nesting, int | None]:
    """The nesting after `text`, and the index after the value's last bracket if the value ends."""
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
