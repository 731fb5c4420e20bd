"""Values by name, also in parts: a change makes new objects of the parts that it touches alone.

Mappings here are never modified; each is in the order of its names.
"""

import itertools
import operator
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

T = TypeVar("T")
V = TypeVar("V")
K = TypeVar("K", bound=Hashable)


def apply_changes(known: Mapping[str, T], changed: Mapping[str, T | None]) -> dict[str, T]:
    """`known` with these values; None: without one of that name."""
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
    """The values by the part that each belongs to."""
    return apply_to_parts({}, {}, values, part_of)


def apply_to_parts(
    parts: Mapping[K, Mapping[str, T]],
    before: Mapping[str, T],
    changed: Mapping[str, T | None],
    part_of: Callable[[T], K],
) -> dict[K, Mapping[str, T]]:
    """The parts of `before` once these values are changed; None: without one of that name."""
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
    """The names whose object is new, another or gone; no value is None."""
    if before is now:
        return set()
    is_other = map(operator.is_not, now.values(), map(before.get, now))
    return {*itertools.compress(now, is_other), *(before.keys() - now.keys())}


def changed_pairs(before: Mapping[K, V], now: Mapping[K, V], nothing: V) -> list[tuple[V, V]]:
    """What was and what is under each of those names; `nothing` where there is none."""
    names = changed_names(before, now)
    return [(before.get(it, nothing), now.get(it, nothing)) for it in names]
