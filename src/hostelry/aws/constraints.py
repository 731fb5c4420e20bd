"""Validation of requests against a service model, in AWS's words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from hostelry.aws.models import OPEN_ENUMS
from hostelry.aws.pattern import compiled
from hostelry.base.errors import ServiceError

MAX_SHOWN_CHARACTERS = 1024
MAX_SHOWN_VIOLATIONS = 100
MAX_MATCHED_CHARACTERS = 4096
MAX_MATCHED_OVERLONG = 256
"""A text longer than these (where the model sets no length, or a shorter one) fails its pattern
unseen: a few patterns take quadratic or cubic time on texts made for it."""
FIRST_INSTANT, END_OF_INSTANTS = -62_135_596_800, 253_402_300_800
"""Of the calendar that `datetime` knows, in epoch seconds."""
_NUMBERS = frozenset({"integer", "long", "float", "double"})


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
    """One violation in AWS's words; a sensitive value is left out."""
    shown = "" if shape.metadata.get("sensitive") else f" '{_shown(value)}'"
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
        met = len(value) <= limit and compiled(pattern).fullmatch(value) is not None
        yield f"Member must satisfy regular expression pattern: {pattern}", met
    choices = shape.metadata.get("enum")
    if choices and shape.name not in OPEN_ENUMS:
        yield f"Member must satisfy enum value set: [{', '.join(choices)}]", value in choices


def _violations(shape: Shape, value: Any, path: str) -> Iterator[str]:
    for demand in broken_demands(shape, value):
        yield violation(shape, value, path, demand)
    yield from _inside(shape, value, path)


def _inside(shape: Shape, value: Any, path: str) -> Iterator[str]:
    """Violations of the parts of `value`; the caller lists its own."""
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


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{key}={_shown(item)}" for key, item in value.items()) + "}"
    elif isinstance(value, list):
        text = "[" + ", ".join(_shown(item) for item in value) + "]"
    else:
        text = str(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "..."
