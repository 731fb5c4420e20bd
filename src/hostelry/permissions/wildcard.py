"""Patterns with ``*`` and ``?``, and policy variables in them."""

import re
from collections.abc import Mapping, Sequence

# Stand for wildcards in a pattern, since a variable's value may hold the characters themselves.
ANY, ONE = "\ue000", "\ue001"
_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_LITERAL = {"*", "?", "$"}
Context = Mapping[str, Sequence[str]]


def compiled(text: str) -> str:
    """`text` with its wildcards marked."""
    return text.replace("*", ANY).replace("?", ONE)


def expanded(text: str, context: Context, missing: set[str], *, wild: bool = True) -> str | None:
    """`text` as a marked pattern, its ``${key}`` replaced by the values of `context`.

    Unless `wild`, ``*`` and ``?`` are characters like others, and not marked.
    ``${*}``, ``${?}`` and ``${$}`` are the characters themselves. None where a key has no single
    value; such keys are added to `missing`.
    """
    parts, end = [], 0
    mark = compiled if wild else str
    for found in _VARIABLE.finditer(text):
        name = found[1].partition(",")[0].strip()
        value = (name,) if name in _LITERAL else context.get(name.lower(), ())
        if len(value) != 1:
            missing.add(name)
            return None
        parts += [mark(text[end : found.start()]), value[0]]
        end = found.end()
    return "".join((*parts, mark(text[end:])))


def matches(pattern: str, text: str) -> bool:
    """Whether the whole `text` fits a marked `pattern`; never more than their lengths' product."""
    at = mark = 0
    star = -1
    for_text = 0
    while for_text < len(text):
        if at < len(pattern) and pattern[at] == ANY:
            star, mark = at, for_text
            at += 1
        elif at < len(pattern) and pattern[at] in (ONE, text[for_text]):
            at += 1
            for_text += 1
        elif star >= 0:
            mark += 1
            at, for_text = star + 1, mark
        else:
            return False
    return all(it == ANY for it in pattern[at:])
