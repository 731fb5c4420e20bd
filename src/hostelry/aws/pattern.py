"""Java regular expressions of the service models, as Python ones; knows no shapes."""

import re
import unicodedata
from functools import cache, lru_cache
from itertools import groupby

_SURROGATE_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_ASCII_PROPERTIES = {"ASCII": r"\x00-\x7f", "Print": r"\x20-\x7e", "Alnum": "a-zA-Z0-9"}

# Patterns that can take exponential time, and linear ones that accept the same texts.
_LINEAR = {
    r"[a-z0-9]([-a-z0-9]*[a-z0-9]){0,39}?": r"[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    r"https://([.\-_a-zA-Z0-9]+/?){3,1016}": (
        r"https://(?=(/?[.\-_a-zA-Z0-9]){3})[.\-_a-zA-Z0-9](/?[.\-_a-zA-Z0-9])*/?"
    ),
}


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """`pattern` for `fullmatch`; like Java's, its classes are ASCII unless they name Unicode."""
    pattern = pattern.replace(r"\w-_", r"\w\-_")  # Java takes this hyphen for itself
    joined = _SURROGATE_PAIR.sub(_code_point, _LINEAR.get(pattern, pattern)).replace("${", "(?:$){")
    in_class = False
    parts = []
    for token in re.findall(r"\\p\{\w+\}|\\.|.", joined, re.DOTALL):
        if token.startswith(r"\p{"):
            ranges = _ranges(token[3:-1])
            parts.append(ranges if in_class else f"[{ranges}]")
            continue
        in_class = token == "[" or (in_class and token != "]")
        parts.append(r"\Z" if token == r"\z" else token)
    return re.compile("".join(parts), re.ASCII)


def _code_point(pair: re.Match[str]) -> str:
    high, low = (int(half, 16) for half in pair.groups())
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


def _ranges(name: str) -> str:
    return _ASCII_PROPERTIES.get(name) or _category_ranges(name)


@cache
def _category_ranges(category: str) -> str:
    """The inside of a character class holding every code point of a general category, as 'L'."""
    ranges: list[list[int]] = []
    for name, first, last in _runs():
        if not name.startswith(category):
            continue
        if ranges and ranges[-1][1] == first - 1:
            ranges[-1][1] = last
        else:
            ranges.append([first, last])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


@cache
def _runs() -> tuple[tuple[str, int, int], ...]:
    """Category, first and last of each run of code points of one category, where any is assigned.

    Planes 4 to 13 are empty; 15 and 16 hold private characters only, which no pattern asks for.
    """
    points = (*range(0x40000), *range(0xE0000, 0xE1000))
    runs = (
        (name, list(run))
        for name, run in groupby(points, lambda point: unicodedata.category(chr(point)))
    )
    return tuple((name, run[0], run[-1]) for name, run in runs)
