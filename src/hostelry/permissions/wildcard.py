"""Patterns with ``*`` and ``?``, and policy variables in them."""

import re
from collections.abc import Mapping, Sequence

# Stand for wildcards in a pattern, since a variable's value may hold the characters themselves.
ANY, ONE = "\ue000", "\ue001"
_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_LITERAL = {"*", "?", "$"}
Context = Mapping[str, Sequence[str]]
MAX_WORK_CHARACTERS = 50_000_000
# A step costs this much more than its characters: it is a few calls, whatever it compares.
STEP_CHARACTERS = 16


class TooMuchMatching(ValueError):  # noqa: N818 - reads well
    """The decisions compare more characters than their budget has."""


class MatchWork:
    """Budget of characters to compare, so that costly decisions are refused instead."""

    def __init__(self, limit: int = MAX_WORK_CHARACTERS) -> None:
        self._left = limit

    def spend(self, num_characters: int, num_steps: int = 1) -> None:
        """Count characters before they are compared. Raises TooMuchMatching above the limit."""
        self._left -= num_characters + STEP_CHARACTERS * num_steps
        if self._left < 0:
            raise TooMuchMatching


def mark_wildcards(text: str) -> str:
    """`text` with its wildcards marked."""
    return text.replace("*", ANY).replace("?", ONE)


def expand(
    text: str, context: Context, missing: set[str], work: MatchWork, *, wild: bool = True
) -> str | None:
    """`text` as a marked pattern, its ``${key}`` replaced by the values of `context`.

    Unless `wild`, ``*`` and ``?`` are characters like others, and not marked.
    ``${*}``, ``${?}`` and ``${$}`` are the characters themselves. None if a key has no single
    value. Such keys are added to `missing`.
    """
    work.spend(len(text))
    parts, end = [], 0
    mark = mark_wildcards if wild else str
    for found in _VARIABLE.finditer(text):
        name = found[1].partition(",")[0].strip()
        value = (name,) if name in _LITERAL else context.get(name.lower(), ())
        if len(value) != 1:
            missing.add(name)
            return None
        work.spend(len(value[0]))
        parts += [mark(text[end : found.start()]), value[0]]
        end = found.end()
    return "".join((*parts, mark(text[end:])))


def matches(pattern: str, text: str, work: MatchWork) -> bool:
    """Whether the whole `text` fits a marked `pattern`.

    The time grows with the sum of their lengths. A piece with ONE between two ANY is compared at
    more than one place: `work` counts each of them.
    """
    first, *pieces = pattern.split(ANY)
    work.spend(len(pattern) + len(text), 1 + len(pieces))
    if not pieces:
        return len(first) == len(text) and _is_at(first, text, 0)
    last = pieces.pop()
    end = len(text) - len(last)
    if len(first) > end or not _is_at(first, text, 0) or not _is_at(last, text, end):
        return False
    at = len(first)
    for piece in pieces:  # the first place is best: it leaves the most for the next pieces
        found = _find_place(piece, text, at, end, work)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _is_at(piece: str, text: str, at: int) -> bool:
    """Whether `piece`, which has no ANY and ends within `text`, fits it at this place."""
    for run in piece.split(ONE):
        if not text.startswith(run, at):
            return False
        at += len(run) + 1
    return True


def _find_place(piece: str, text: str, start: int, end: int, work: MatchWork) -> int:
    """The first place between `start` and `end` at which `piece` fits, or -1."""
    if ONE not in piece:
        return text.find(piece, start, end)
    longest = max(piece.split(ONE), key=len)
    offset = piece.index(longest)
    at = start
    while at + len(piece) <= end:
        at = text.find(longest, at + offset, end) - offset
        if at < start or at + len(piece) > end:
            return -1
        work.spend(len(piece))
        if _is_at(piece, text, at):
            return at
        at += 1
    return -1
