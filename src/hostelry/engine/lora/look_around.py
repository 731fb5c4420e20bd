"""Matcher of patterns that look around, which RE2 refuses. It never backtracks.

A set of positions in the text is an integer with a bit for each. Position i is before character i.
Each part of a pattern maps the set of its possible starts to the set of its possible ends.
Patterns without back references need no more. Repeats within repeats can still take many steps.
Therefore the steps are counted, and a pattern that takes too many is refused.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from re import _parser  # type: ignore[attr-defined]  # Python's own reading of a pattern
from typing import Any

from hostelry.engine.lora.errors import AdapterError

MAX_STEPS = 4_000_000  # of one pattern, over all texts: about two seconds
MAX_DEPTH = 40  # of groups in groups
# Counted as that many instructions, so that an adapter has four such patterns at most.
INSTRUCTIONS = 50_000

_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "DIGIT": str.isdecimal,
    "SPACE": str.isspace,
    "WORD": lambda char: char.isalnum() or char == "_",
}


class Unsupported(Exception):  # noqa: N818
    """The pattern looks around and has an unsupported part."""


class LookAroundPattern:
    """A compiled pattern that looks around. `text_shown` names it in errors."""

    programsize = INSTRUCTIONS

    def __init__(self, pattern: str, text_shown: str) -> None:
        """Raise Unsupported for flags, back references, conditions and atomic groups."""
        parsed = _parser.parse(pattern)
        if parsed.state.flags & ~re.UNICODE:
            raise Unsupported("flags")
        self._ends = _build_sequence(parsed, 0)
        self._shown = text_shown
        self._steps_left = MAX_STEPS

    def match(self, text: str) -> "Matched | None":
        """A match at the beginning of `text`. Raises AdapterError once it took too many steps."""
        return Matched() if self._match_positions(text) else None

    def fullmatch(self, text: str) -> "Matched | None":
        """A match of the whole `text`. Raises AdapterError once it took too many steps."""
        return Matched() if self._match_positions(text) >> len(text) else None

    def _match_positions(self, text: str) -> int:
        scan = _Scan(text, self._steps_left)
        try:
            return self._ends(scan, 1)
        except _TooManyStepsError:
            raise AdapterError(
                f"{self._shown} takes more than {MAX_STEPS} steps to match; use a simpler pattern"
            ) from None
        finally:
            self._steps_left = scan.steps_left


class Matched:
    """A match whose groups are not known."""

    def __getitem__(self, group: str) -> str:
        """Raise KeyError."""
        raise KeyError(group)


class _TooManyStepsError(Exception):
    pass


class _Scan:
    """A text that is matched, and the steps that are left for it."""

    def __init__(self, text: str, steps_left: int) -> None:
        self.text = text
        self.steps_left = steps_left - len(text)
        self._of_char: dict[str, int] = {}
        for position, char in enumerate(text):
            self._of_char[char] = self._of_char.get(char, 0) | 1 << position
        self._of_class: dict[Callable[[str], bool], int] = {}

    def take(self, steps: int = 1) -> None:
        """Count steps. Raises _TooManyStepsError."""
        self.steps_left -= steps
        if self.steps_left < 0:
            raise _TooManyStepsError

    def find_char(self, char: str) -> int:
        """The positions of a character."""
        return self._of_char.get(char, 0)

    def find_class(self, has: Callable[[str], bool]) -> int:
        """The positions of the characters that a class has."""
        found = self._of_class.get(has)
        if found is None:
            self.take(len(self._of_char))
            found = 0
            for char, positions in self._of_char.items():
                if has(char):
                    found |= positions
            self._of_class[has] = found
        return found


Ends = Callable[[_Scan, int], int]
Class = Callable[[str], bool]


def _build_sequence(items: Any, depth: int) -> Ends:
    if depth > MAX_DEPTH:
        raise Unsupported(f"more than {MAX_DEPTH} groups in groups")
    parts = [_build_part(str(operator), value, depth) for operator, value in items]

    def ends(scan: _Scan, starts: int) -> int:
        for part in parts:
            scan.take()
            starts = part(scan, starts)
            if not starts:
                break
        return starts

    return ends


def _build_part(operator: str, value: Any, depth: int) -> Ends:
    if operator == "LITERAL":
        return lambda scan, starts: (starts & scan.find_char(chr(value))) << 1
    if operator in ("NOT_LITERAL", "ANY", "IN"):
        has = _build_class(operator, value)
        return lambda scan, starts: (starts & scan.find_class(has)) << 1
    if operator == "AT":
        return _build_place(str(value))
    if operator == "BRANCH":
        return _build_branch([_build_sequence(items, depth + 1) for items in value[1]])
    if operator == "SUBPATTERN" and not value[1] and not value[2]:  # flags that it adds and drops
        return _build_sequence(value[3], depth + 1)
    if operator in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, items = value
        return _build_repeat(_build_sequence(items, depth + 1), int(low), int(high))
    if operator in ("ASSERT", "ASSERT_NOT"):
        direction, items = value
        width = items.getwidth()[0] if direction < 0 else None
        return _build_look(_build_sequence(items, depth + 1), width, is_wanted=operator == "ASSERT")
    raise Unsupported(operator.lower().replace("_", " "))


def _build_class(operator: str, value: Any) -> Class:
    if operator == "ANY":
        return lambda char: char != "\n"
    if operator == "NOT_LITERAL":
        return lambda char: ord(char) != value
    tests = [_build_class_item(str(kind), item) for kind, item in value if str(kind) != "NEGATE"]
    is_negated = len(tests) < len(value)
    # A class may have as many parts as the pattern has characters: each character is tested once.
    return cache(lambda char: any(test(char) for test in tests) != is_negated)


def _build_class_item(kind: str, item: Any) -> Class:
    if kind == "LITERAL":
        return lambda char: ord(char) == item
    if kind == "RANGE":
        low, high = item
        return lambda char: bool(low <= ord(char) <= high)
    name = str(item).removeprefix("CATEGORY_")
    test = _CATEGORIES[name.removeprefix("NOT_")]
    return (lambda char: not test(char)) if name.startswith("NOT_") else test


def _build_place(name: str) -> Ends:
    def ends(scan: _Scan, starts: int) -> int:
        last = len(scan.text)
        if name in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
            return starts & 1
        if name == "AT_END_STRING":
            return starts & 1 << last
        if name == "AT_END":
            return starts & (1 << last | (1 << last - 1 if scan.text.endswith("\n") else 0))
        words = scan.find_class(_CATEGORIES["WORD"])
        borders = words ^ words << 1
        if name == "AT_BOUNDARY":
            return starts & borders
        return starts & ~borders if last else 0  # as Python, to which an empty text has neither

    return ends


def _build_branch(choices: Sequence[Ends]) -> Ends:
    def ends(scan: _Scan, starts: int) -> int:
        found = 0
        for choice in choices:
            scan.take()
            found |= choice(scan, starts)
        return found

    return ends


def _build_repeat(body: Ends, low: int, high: int) -> Ends:
    """Between `low` and `high` times. More repeats than positions change nothing."""

    def ends(scan: _Scan, starts: int) -> int:
        most = len(scan.text) + 1
        for _ in range(min(low, most)):
            scan.take()
            starts = body(scan, starts)
            if not starts:
                return 0
        found = frontier = starts
        for _ in range(min(high - low, most)):
            scan.take()
            frontier = body(scan, frontier) & ~found
            if not frontier:
                break
            found |= frontier
        return found

    return ends


def _build_look(body: Ends, width: int | None, *, is_wanted: bool) -> Ends:
    """The starts that text which `body` matches follows, or precedes with that width."""

    def is_there(scan: _Scan, position: int) -> bool:
        if width is None:
            return bool(body(scan, 1 << position))
        if position < width:
            return False
        return bool(body(scan, 1 << position - width) >> position & 1)

    def ends(scan: _Scan, starts: int) -> int:
        found = 0
        for position in range(starts.bit_length()):
            if starts >> position & 1:
                scan.take()
                if is_there(scan, position) == is_wanted:
                    found |= 1 << position
        return found

    return ends
