"""Values by name, also in parts. A change makes new objects only of the parts that it touches.

Mappings here are never modified. Each is in the order of its names.
"""

import itertools
import operator
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

T = TypeVar("T")
V = TypeVar("V")
K = TypeVar("K", bound=Hashable)


def apply_changes(known: Mapping[str, T], changed: Mapping[str, T | None]) -> dict[str, T]:
    """Return `known` with the changed values. None removes a name."""
    after = dict(known)
    has_more = False
    for name, value in changed.items():
        if value is None:
            after.pop(name, None)
        else:
            has_more = has_more or name not in after
            after[name] = value
    if not has_more:
        return after
    names = sorted(after)
    return dict(zip(names, map(after.__getitem__, names), strict=True))


def divide(values: Mapping[str, T], part_of: Callable[[T], K]) -> dict[K, Mapping[str, T]]:
    """Divide the values by their part."""
    return apply_to_parts({}, {}, values, part_of)


def apply_to_parts(
    parts: Mapping[K, Mapping[str, T]],
    before: Mapping[str, T],
    changed: Mapping[str, T | None],
    part_of: Callable[[T], K],
) -> dict[K, Mapping[str, T]]:
    """Return the parts of `before` after the values are changed. None removes a name."""
    touched: dict[K, dict[str, T | None]] = {}
    for name, value in changed.items():
        known = before.get(name)
        if known is not None:
            touched.setdefault(part_of(known), {})[name] = None
        if value is not None:
            touched.setdefault(part_of(value), {})[name] = value
    after = dict(parts)
    for part, values in touched.items():
        left = apply_changes(after.get(part, {}), values)
        if left:
            after[part] = left
        else:
            after.pop(part, None)
    return after


def changed_names(before: Mapping[K, V], now: Mapping[K, V]) -> set[K]:
    """Return the names whose object is new, replaced or removed. Values are never None."""
    if before is now:
        return set()
    is_other = map(operator.is_not, now.values(), map(before.get, now))
    return {*itertools.compress(now, is_other), *(before.keys() - now.keys())}


def changed_pairs(before: Mapping[K, V], now: Mapping[K, V], nothing: V) -> list[tuple[V, V]]:
    """Return the old and the new value of each changed name, `nothing` if one is missing."""
    names = changed_names(before, now)
    return [(before.get(it, nothing), now.get(it, nothing)) for it in names]
