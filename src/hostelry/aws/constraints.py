"""Constraints of the service models, checked as AWS checks them. Their patterns as Python ones."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import groupby
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from hostelry.aws.models import OPEN_ENUMS
from hostelry.base.errors import ServiceError

_SURROGATE_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_ASCII_PROPERTIES = {"ASCII": r"\x00-\x7f", "Print": r"\x20-\x7e", "Alnum": "a-zA-Z0-9"}

# Patterns that can take exponential time, and linear ones that accept the same texts.
_LINEAR = {
    r"[a-z0-9]([-a-z0-9]*[a-z0-9]){0,39}?": r"[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    r"https://([.\-_a-zA-Z0-9]+/?){3,1016}": (
        r"https://(?=(/?[.\-_a-zA-Z0-9]){3})[.\-_a-zA-Z0-9](/?[.\-_a-zA-Z0-9])*/?"
    ),
}
MAX_SHOWN_CHARACTERS = 1024
MAX_SHOWN_VIOLATIONS = 100
MAX_MATCHED_CHARACTERS = 4096
MAX_MATCHED_OVERLONG = 256
"""A text longer than these (where the model sets no length, or a shorter one) fails its pattern
unseen: a few patterns take quadratic or cubic time on texts made for it."""
FIRST_INSTANT, END_OF_INSTANTS = -62_135_596_800, 253_402_300_800
"""Of the calendar that `datetime` knows, in epoch seconds."""
_NUMBERS = frozenset({"integer", "long", "float", "double"})


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """`pattern` for `fullmatch`. As in Java, classes are ASCII unless they name Unicode."""
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

    Planes 4 to 13 are empty. Planes 15 and 16 hold private characters, which no pattern names.
    """
    points = (*range(0x40000), *range(0xE0000, 0xE1000))
    runs = (
        (name, list(run))
        for name, run in groupby(points, lambda point: unicodedata.category(chr(point)))
    )
    return tuple((name, run[0], run[-1]) for name, run in runs)


def check_params(shape: StructureShape, params: Mapping[str, Any]) -> None:
    """Raise one ValidationException (400) listing everything in `params` that breaks `shape`."""
    broken = list(_structure(shape, params, ""))
    if broken:
        raise violations_error(broken, "ValidationException")


def violations_error(broken: Sequence[str], code: str) -> ServiceError:
    """The error that lists several violations, in AWS's form."""
    errors = "error" if len(broken) == 1 else "errors"
    listed = "; ".join(broken[:MAX_SHOWN_VIOLATIONS])
    return ServiceError(code, f"{len(broken)} validation {errors} detected: {listed}")


def violation(shape: Shape, value: object, path: str, demand: str) -> str:
    """One violation in AWS's words, without sensitive values."""
    shown = "" if shape.metadata.get("sensitive") else f" '{_format(value)}'"
    return f"Value{shown} at '{path}' failed to satisfy constraint: {demand}"


def broken_demands(shape: Shape, value: Any) -> list[str]:
    """The demands of `shape` on one value by itself that `value` does not meet."""
    return [demand for demand, met in _demands(shape, value) if not met]


def _demands(shape: Shape, value: Any) -> Iterator[tuple[str, bool]]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    numeric = shape.type_name in _NUMBERS
    size = value if numeric else len(value) if hasattr(value, "__len__") else 0
    measure = "value" if numeric else "length"
    if most is not None:
        yield f"Member must have {measure} less than or equal to {most}", size <= most
    if least is not None:
        yield f"Member must have {measure} greater than or equal to {least}", size >= least
    if shape.type_name == "timestamp":
        yield "Member must be within the years 1 to 9999", FIRST_INSTANT <= value < END_OF_INSTANTS
    pattern = shape.metadata.get("pattern")
    if pattern is not None:
        limit = MAX_MATCHED_CHARACTERS if most is None else max(most, MAX_MATCHED_OVERLONG)
        met = len(value) <= limit and compile_pattern(pattern).fullmatch(value) is not None
        yield f"Member must satisfy regular expression pattern: {pattern}", met
    choices = shape.metadata.get("enum")
    if choices and shape.name not in OPEN_ENUMS:
        yield f"Member must satisfy enum value set: [{', '.join(choices)}]", value in choices


def _violations(shape: Shape, value: Any, path: str) -> Iterator[str]:
    for demand in broken_demands(shape, value):
        yield violation(shape, value, path, demand)
    yield from _inside(shape, value, path)


def _inside(shape: Shape, value: Any, path: str) -> Iterator[str]:
    """Violations of the parts of `value`. The caller lists the violations of `value` itself."""
    if isinstance(shape, StructureShape):
        yield from _structure(shape, value, f"{path}.")
    elif isinstance(shape, ListShape):
        yield from _list(shape, value, path)
    elif isinstance(shape, MapShape):
        yield from _map(shape, value, path)


def _structure(shape: StructureShape, value: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name in shape.required_members:
        if name not in value:
            where = prefix + member_path(name)
            yield f"Value null at '{where}' failed to satisfy constraint: Member must not be null"
    if shape.is_tagged_union and len(value) != 1:
        where = prefix.rstrip(".")
        yield violation(shape, value, where, "Exactly one member of the union must be set")
    for name, member in value.items():
        yield from _violations(shape.members[name], member, prefix + member_path(name))


def _list(shape: ListShape, value: Sequence[Any], path: str) -> Iterator[str]:
    if any(broken_demands(shape.member, item) for item in value):
        demands = _all_demands(shape.member, value)
        yield violation(shape, value, path, f"Member must satisfy constraint: [{demands}]")
    for number, item in enumerate(value, 1):
        yield from _inside(shape.member, item, f"{path}.{number}.member")


def _map(shape: MapShape, value: Mapping[str, Any], path: str) -> Iterator[str]:
    for word, part, items in (
        ("keys", shape.key, value.keys()),
        ("value", shape.value, value.values()),
    ):
        if any(broken_demands(part, item) for item in items):
            demands = _all_demands(part, list(items))
            yield violation(shape, value, path, f"Map {word} must satisfy constraint: [{demands}]")
    for key, item in value.items():
        yield from _inside(shape.value, item, f"{path}.{key}.member")


def _all_demands(shape: Shape, items: Sequence[Any]) -> str:
    return ", ".join(demand for demand, _ in _demands(shape, items[0]))


def member_path(name: str) -> str:
    """A member's name as AWS writes it in messages: its first letter in lower case."""
    return name[:1].lower() + name[1:]


def _format(value: object) -> str:
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{key}={_format(item)}" for key, item in value.items()) + "}"
    elif isinstance(value, list):
        text = "[" + ", ".join(_format(item) for item in value) + "]"
    else:
        text = str(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "..."
