"""Untrusted regular expressions, matched in time linear in pattern and text.

Python's matcher backtracks, which can take exponential time, and holds the interpreter's lock
meanwhile. RE2 does neither. Patterns that look around, which RE2 cannot express, have a matcher
that counts its steps. Back references are refused. PEFT matches with Python's matcher. Therefore a
pattern has to be valid there too, and syntax that the two read differently is refused.
"""

import re
from collections.abc import Iterable
from typing import Protocol

import re2

from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.look_around import LookAroundPattern, Unsupported

_MAX_CHARS = 2000
_MAX_BYTES = 1 << 18  # of one pattern's program and of what matching remembers of it
MAX_INSTRUCTIONS = 200_000  # of all patterns of one adapter. A character takes about two
# RE2 reads the first as a class of letters and the second as itself.
_READ_DIFFERENTLY = ("[:", "{,")
_LOOKING_AROUND = ("(?=", "(?!", "(?<=", "(?<!")


class NameMatch(Protocol):
    """A match of a pattern."""

    def __getitem__(self, group: str) -> str:
        """The text of a group."""
        ...


class NamePattern(Protocol):
    """A compiled pattern."""

    @property
    def programsize(self) -> int:
        """Its number of instructions, the most that matching a character costs."""
        ...

    def match(self, text: str) -> NameMatch | None:
        """A match at the beginning of `text`."""
        ...

    def fullmatch(self, text: str) -> NameMatch | None:
        """A match of the whole `text`."""
        ...


def compile_pattern(name: str, pattern: object, form: str = "{}") -> NamePattern:
    """Compile the pattern of field `name`, inserted into `form`.

    Raises AdapterError if it is invalid or cannot be matched in bounded time.
    """
    if not isinstance(pattern, str):
        raise AdapterError(f"{name} holds {pattern!r}; it must be text")
    if len(pattern) > _MAX_CHARS:
        raise AdapterError(
            f"{name} holds a pattern of {len(pattern)} characters; at most {_MAX_CHARS}"
        )
    text = next((it for it in _READ_DIFFERENTLY if it in pattern), None)
    if text is not None:
        raise AdapterError(
            f"{name} holds {quote_value(pattern)}; {text} in a pattern is not supported"
        )
    whole = form.replace("{}", pattern)
    try:
        for text in (pattern, whole):
            re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise AdapterError(
            f"{name} holds {quote_value(pattern)}, no valid pattern: {error}"
        ) from error
    try:
        if "(?P<" not in form and any(mark in pattern for mark in _LOOKING_AROUND):
            return LookAroundPattern(whole, f"{name} {quote_value(pattern)}")
        return _re2_pattern(whole)
    except Unsupported as part:
        reason = f"{part}, beside looking around"
    except (re2.error, UnicodeEncodeError) as error:
        reason = _reason(error)
    raise AdapterError(
        f"{name} holds {quote_value(pattern)}, which cannot be matched in linear time ({reason}); "
        "patterns are RE2's, and may look around"
    )


def _re2_pattern(pattern: str) -> NamePattern:
    options = re2.Options()
    options.max_mem = _MAX_BYTES
    options.log_errors = False
    found: NamePattern = re2.compile(pattern, options)
    return found


def check_size(patterns: Iterable[NamePattern]) -> None:
    """Raise AdapterError if an adapter's patterns together could take too long to match."""
    size = sum(pattern.programsize for pattern in patterns)
    if size > MAX_INSTRUCTIONS:
        raise AdapterError(
            f"the patterns of adapter_config.json compile to {size} instructions; at most "
            f"{MAX_INSTRUCTIONS}: use fewer or shorter ones"
        )


def _reason(error: Exception) -> str:
    """The message of an RE2 error, which RE2 gives as bytes."""
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)


def quote_value(value: object) -> str:
    """The value for a message, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
