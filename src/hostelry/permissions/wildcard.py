"""Patterns with ``*`` and ``?``, ARNs as patterns, and texts with policy variables.

Patterns and texts are compiled once, when a document is parsed.

Sources: IAM user guide, pages reference_policies_elements_resource (wildcards in resource ARNs),
reference_policies_elements_condition_operators (ARN operators), reference_policies_variables.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

# Stand for wildcards in a pattern, since a variable's value may hold the characters themselves.
ANY, ONE = "\ue000", "\ue001"
_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_LITERAL = {"*", "?", "$"}
Context = Mapping[str, Sequence[str]]
MAX_WORK_CHARACTERS = 50_000_000
# A step costs this much more than its characters: it is a few calls, whatever it compares.
STEP_CHARACTERS = 16
ARN_PARTS = 6


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


class TextPattern(msgspec.Struct, frozen=True):
    """A text with marked wildcards, split at each ANY. Without an ANY it has no `last`.

    A prefix is a text without ONE, and an ANY at its end.
    """

    first: str
    pieces: tuple[str, ...]
    last: str | None
    size: int
    is_prefix: bool


class ArnPattern(msgspec.Struct, frozen=True):
    """A pattern of resources: a whole pattern, or one per part of an ARN.

    It has `parts` only if some wildcard must not match colons.
    """

    whole: TextPattern
    parts: tuple[TextPattern, ...] = ()


class Variable(msgspec.Struct, frozen=True):
    """A policy variable. `name` is as written, `key` in lower case."""

    name: str
    key: str
    default: str | None = None


class Template(msgspec.Struct, frozen=True):
    """Marked texts and variables, in the order in which they are joined."""

    parts: tuple[str | Variable, ...]
    size: int

    @property
    def text(self) -> str | None:
        """The marked text of a template without variables, or None."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], str) else None

    @property
    def keys(self) -> frozenset[str]:
        """The keys of the context that it reads, in lower case."""
        return frozenset(it.key for it in self.parts if isinstance(it, Variable))


def mark_wildcards(text: str) -> str:
    """`text` with its wildcards marked."""
    return text.replace("*", ANY).replace("?", ONE)


def compile_pattern(marked: str) -> TextPattern:
    """The pattern of a text whose wildcards are marked."""
    first, *pieces = marked.split(ANY)
    last = pieces.pop() if pieces else None
    is_prefix = last == "" and not pieces and ONE not in first
    return TextPattern(first, tuple(pieces), last, len(marked), is_prefix)


def compile_resource(marked: str) -> ArnPattern:
    """The pattern of a resource.

    In the first five parts of an ARN a wildcard matches no colon, except an ANY at the end of a
    part, which matches beyond it.
    """
    parts = marked.split(":", ARN_PARTS - 1)
    inner = (ONE in it or ANY in it.removesuffix(ANY) for it in parts[:-1])
    by_part = tuple(map(compile_pattern, parts)) if any(inner) else ()
    return ArnPattern(compile_pattern(marked), by_part)


def build_template(text: str, *, wild: bool = True, variables: bool = True) -> Template:
    """Parse a text with ``${key}`` and ``${key, 'default'}``.

    Unless `wild`, ``*`` and ``?`` are characters like others, and not marked. Unless `variables`,
    a variable is a text like others. ``${*}``, ``${?}`` and ``${$}`` are the characters themselves.
    """
    mark = mark_wildcards if wild else str
    parts: list[str | Variable] = [""]
    end = 0
    for found in _VARIABLE.finditer(text) if variables else ():
        _append(parts, mark(text[end : found.start()]))
        name, comma, default = (it.strip() for it in found[1].partition(","))
        _append(parts, name if name in _LITERAL else _build_variable(name, comma and default))
        end = found.end()
    _append(parts, mark(text[end:]))
    return Template(tuple(parts), len(text))


def _build_variable(name: str, default: str) -> Variable:
    quoted = len(default) > 1 and default[0] == default[-1] == "'"
    return Variable(name, name.lower(), default[1:-1] if quoted else None)


def _append(parts: list[str | Variable], part: str | Variable) -> None:
    """Add a part, and join neighbouring texts."""
    last = parts[-1]
    if isinstance(last, str) and isinstance(part, str):
        parts[-1] = last + part
    elif part or isinstance(part, Variable):
        if last == "":
            parts.pop()
        parts.append(part)


def expand(template: Template, context: Context, missing: set[str], work: MatchWork) -> str | None:
    """The marked text of `template` with the values of `context`.

    None if a variable has no value. Its key is added to `missing`. A key with an empty value or
    with several values counts as absent. A default replaces the value.
    """
    work.spend(template.size)
    texts = []
    for part in template.parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        found = context.get(part.key, ())
        value = found[0] if len(found) == 1 else ""
        if not value and part.default is None:
            missing.add(part.name)
            return None
        value = value or part.default or ""
        if ANY in value or ONE in value:
            return None  # a value must not bring wildcards
        work.spend(len(value))
        texts.append(value)
    return "".join(texts)


def matches(pattern: TextPattern, text: str, work: MatchWork) -> bool:
    """Whether the whole `text` fits a `pattern`.

    The time grows with the sum of their lengths. A piece with ONE between two ANY is compared at
    more than one place: `work` counts each of them.
    """
    first, last = pattern.first, pattern.last
    work.spend(pattern.size + len(text), 1 + len(pattern.pieces))
    if pattern.is_prefix:
        return text.startswith(first)
    if last is None:
        return len(first) == len(text) and _is_at(first, text, 0)
    end = len(text) - len(last)
    if len(first) > end or not _is_at(first, text, 0) or not _is_at(last, text, end):
        return False
    at = len(first)
    for piece in pattern.pieces:  # the first place is best: it leaves the most for the next pieces
        found = _find_place(piece, text, at, end, work)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def matches_resource(pattern: ArnPattern, text: str, work: MatchWork) -> bool:
    """Whether the ARN `text`, or ``*``, is a resource of the pattern."""
    if not pattern.parts:
        return matches(pattern.whole, text, work)
    *heads, tail = pattern.parts
    starts = [0]  # places in `text` at which the next part may begin
    for head in heads:
        following: set[int] = set()
        for start in starts:
            colon = text.find(":", start)
            if colon >= 0 and matches(head, text[start:colon], work):
                crosses = head.last == ""
                following.update(_list_ends(text, colon) if crosses else [colon + 1])
        starts = sorted(following)
    return any(matches(tail, text[start:], work) for start in starts)


def _list_ends(text: str, colon: int) -> list[int]:
    """The places after the colons of `text` from `colon` on."""
    return [at + 1 for at in range(colon, len(text)) if text[at] == ":"]


def compile_arn(marked: str) -> tuple[TextPattern, ...]:
    """The patterns of an ARN's parts, or one pattern of a text with fewer parts."""
    parts = marked.split(":", ARN_PARTS - 1)
    return tuple(map(compile_pattern, parts if len(parts) == ARN_PARTS else [marked]))


def matches_arn(wanted: Sequence[TextPattern], text: str, work: MatchWork) -> bool:
    """Whether an ARN fits the patterns of `compile_arn`, as the ARN operators compare.

    The parts are compared one by one. A pattern with fewer parts, as ``*key/my-key`` in AWS's
    examples, is compared with the whole ARN.
    """
    given = text.split(":", ARN_PARTS - 1) if len(wanted) > 1 else [text]
    if len(wanted) != len(given):
        return False
    return all(matches(part, it, work) for part, it in zip(wanted, given, strict=True))


def _is_at(piece: str, text: str, at: int) -> bool:
    """Whether `piece`, which has no ANY and ends within `text`, fits it at this place."""
    if ONE not in piece:
        return text.startswith(piece, at)
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
