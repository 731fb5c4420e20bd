"""Protocol buffers' text format, the format of config.pbtxt, as plain values. Pure.

A message is a dict of lists, because any field may repeat. A scalar is a text.
Source: the specification of the text format at protobuf.dev.
"""

import re
from collections.abc import Iterator

import msgspec

from hostelry.base.errors import HostelryError

MAX_DEPTH = 32
MAX_SHOWN = 80
TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*)
    |(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>[A-Za-z0-9_.+-]+)
    |(?P<mark>[{}<>\[\]:,;])""",
    re.VERBOSE,
)
CLOSING = {"{": "}", "<": ">"}

Message = dict[str, list["Value"]]
Value = str | Message


class TextFormatError(HostelryError):
    """The text is invalid. The error names the line."""


class TextPart(msgspec.Struct, frozen=True):
    """A token of the kind "string", "word", "mark" or "end", with its line."""

    kind: str
    text: str
    line: int

    @property
    def shown(self) -> str:
        """The beginning of the text, for an error."""
        return self.text[:MAX_SHOWN]


def parse_message(text: str) -> Message:
    """Parse a message. Raises TextFormatError."""
    reader = _Reader(list(_tokens(text)))
    return reader.fields("", 0)


def get_messages(message: Message, name: str) -> list[Message]:
    """The messages of a field."""
    return [it for it in message.get(name, ()) if isinstance(it, dict)]


def get_text(message: Message, name: str) -> str:
    """The last scalar of a field, or an empty text."""
    return ([it for it in message.get(name, ()) if isinstance(it, str)] or [""])[-1]


def _tokens(text: str) -> Iterator[TextPart]:
    line, at = 1, 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            raise TextFormatError(f"line {line}: {text[at]!r} is not expected")
        kind, part = str(found.lastgroup), found.group()
        if kind != "skip":
            yield TextPart(kind, part, line)
        line += part.count("\n")
        at = found.end()
    yield TextPart("end", "the end", line)


class _Reader:
    def __init__(self, tokens: list[TextPart]) -> None:
        self._tokens = tokens
        self._at = 0

    def fields(self, closing: str, depth: int) -> Message:
        """The fields up to `closing`, or up to the end if `closing` is empty."""
        if depth > MAX_DEPTH:
            raise TextFormatError(f"line {self._next.line}: more than {MAX_DEPTH} messages deep")
        message: Message = {}
        while not (self._take(closing) if closing else self._next.kind == "end"):
            name = self._next
            if name.kind != "word":
                raise TextFormatError(
                    f"line {name.line}: {name.shown} where a field's name must be"
                )
            self._at += 1
            has_colon = self._take(":")
            message.setdefault(name.text, []).extend(self._values(has_colon, depth))
            self._take(",") or self._take(";")
        return message

    def _values(self, has_colon: bool, depth: int) -> list[Value]:
        if not self._take("["):
            return [self._value(has_colon, depth)]
        values: list[Value] = []
        while not self._take("]"):
            values.append(self._value(True, depth))
            self._take(",")
        return values

    def _value(self, has_colon: bool, depth: int) -> Value:
        first = self._next
        if first.text in CLOSING and first.kind == "mark":
            self._at += 1
            return self.fields(CLOSING[first.text], depth + 1)
        if not has_colon or first.kind not in ("word", "string"):
            raise TextFormatError(f"line {first.line}: {first.shown} where a value must be")
        self._at += 1
        if first.kind == "word":
            return first.text
        parts = [first.text[1:-1]]
        while self._next.kind == "string":  # adjacent strings are joined
            parts.append(self._next.text[1:-1])
            self._at += 1
        return re.sub(r"\\(.)", r"\1", "".join(parts))

    @property
    def _next(self) -> TextPart:
        return self._tokens[self._at]

    def _take(self, mark: str) -> bool:
        """Take the next token if it is this mark. True if it was taken."""
        matches = self._next.kind == "mark" and self._next.text == mark
        self._at += matches
        return matches
