"""Differences between two values of plain mappings and lists. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

NAMES = ("VariantName", "Name", "Id", "ContainerHostname", "AlarmName", "InstanceType")
"""Members by which the items of a list are known."""


@dataclass(frozen=True, slots=True)
class Absent:
    """No value."""


ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field, its value before and after; ABSENT where there is none."""

    field: str
    before: Any
    after: Any


def changes(before: Any, after: Any, path: str = "") -> list[FieldChange]:
    """Every difference, by the innermost field."""
    return list(_changes(before, after, path))


def _changes(before: Any, after: Any, path: str) -> Iterator[FieldChange]:
    before, after = _alike(before, after), _alike(after, before)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            inner = f"{path}.{name}" if path else str(name)
            yield from _changes(before.get(name, ABSENT), after.get(name, ABSENT), inner)
    elif isinstance(before, list) and isinstance(after, list) and before != after:
        one, other = _by_name(before), _by_name(after)
        if one is None or other is None:
            yield FieldChange(path, before, after)
            return
        for name in dict.fromkeys((*one, *other)):
            inner = f"{path}[{name}]"
            yield from _changes(one.get(name, ABSENT), other.get(name, ABSENT), inner)
    elif before != after:
        yield FieldChange(path, before, after)


def _alike(value: Any, other: Any) -> Any:
    """An empty value of `other`'s kind where `value` is absent, so that its members are shown."""
    if value is not ABSENT or not other:
        return value
    if isinstance(other, Mapping):
        return {}
    has_names = isinstance(other, list) and all(_name_of(it) is not None for it in other)
    return [] if has_names else value


def _by_name(items: list[Any]) -> dict[str, Any] | None:
    """The items by their name; None where they have none, or two have the same."""
    if len(items) == 1 and isinstance(items[0], Mapping):
        return {str(_name_of(items[0]) or 0): items[0]}
    if all(isinstance(it, Mapping) and set(it) == {"Name", "Value"} for it in items):
        return {str(it["Name"]): it["Value"] for it in items}
    names = [_name_of(it) for it in items]
    if None in names or len(set(names)) < len(names):
        return None
    return dict(zip(map(str, names), items, strict=True))


def _name_of(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return None
    return next((item[name] for name in NAMES if name in item), None)
