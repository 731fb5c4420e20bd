"""Patterns from strangers: compiled only if matching them cannot take long.

Python's matcher tries every way to match; nested or many open-ended repeats have more ways than can
be tried. Module paths are short, so a handful of repeats side by side is harmless.
"""

import re

from hostelry.engine.lora.errors import AdapterError

_MAX_CHARS = 2000
_MAX_REPEATS = 5
_ATOM = re.compile(r"\\.|\[\^?\]?[^\]]*\]", re.DOTALL)  # escapes and classes: one character each
_REPEAT = re.compile(r"[*+]|\{\d*,\d*\}|\{\d+\}")


def check_pattern(name: str, pattern: object, *, max_repeats: int = _MAX_REPEATS) -> str:
    """The pattern of field `name`. Raises AdapterError if it is none, or could take too long."""
    if not isinstance(pattern, str):
        raise AdapterError(f"{name} holds {pattern!r}; it must be text")
    if len(pattern) > _MAX_CHARS:
        raise AdapterError(
            f"{name} holds a pattern of {len(pattern)} characters; at most {_MAX_CHARS}"
        )
    bare = _ATOM.sub("x", pattern)
    num_repeats = len(_REPEAT.findall(bare))
    if num_repeats > max_repeats:
        raise AdapterError(
            f"{name} holds a pattern of {num_repeats} open-ended repeats; at most {max_repeats}"
        )
    if _repeats_a_choice(bare):
        raise AdapterError(
            f"{name} holds {pattern!r}, which repeats a group that repeats or chooses"
        )
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise AdapterError(f"{name} holds {pattern!r}, no valid pattern: {error}") from error
    return pattern


def _repeats_a_choice(bare: str) -> bool:
    """Whether a repeated group holds a repeat or an alternative."""
    open_groups = [False]  # for each: whether it holds one
    for index, character in enumerate(bare):
        if character == "(":
            open_groups.append(False)
        elif character == ")" and len(open_groups) > 1:
            inner = open_groups.pop()
            is_repeated = _REPEAT.match(bare, index + 1) is not None
            if inner and is_repeated:
                return True
            open_groups[-1] |= inner or is_repeated
        elif character == "|" or _REPEAT.match(bare, index):
            open_groups[-1] = True
    return False
