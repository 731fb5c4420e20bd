"""The newest or oldest of thousands of records in parts, of which few are looked through."""

import heapq
import itertools
import operator
from collections.abc import Hashable, Iterable, Mapping
from typing import Protocol, TypeVar

from hostelry.base.parts import changed_names

MAX_KNOWN = 2_000  # groups; then all are looked at again


class CreatedRecord(Protocol):
    """A record with a name and an instant of creation."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def created_at(self) -> float:
        """Seconds since the epoch."""
        ...


C = TypeVar("C", bound=CreatedRecord)
Parts = Mapping[Hashable, Mapping[str, C]]
Ends = Mapping[Hashable, tuple[float, str]]
_created = operator.attrgetter("created_at", "name")
# By group and direction: its parts when it was last looked at, and the first record of each.
_known: dict[tuple[Hashable, bool], tuple[Parts[CreatedRecord], Ends]] = {}


def first_created(
    groups: Iterable[tuple[Hashable, Parts[C]]], num: int, *, descending: bool
) -> list[C]:
    """The first `num` records by instant of creation, then name, among some that come later.

    A part that is the same object as at the last call costs next to nothing. The first records are
    in the `num` parts whose own first ones come first, and none comes after those of all of them.
    """
    heads: list[tuple[tuple[float, str], Hashable, Mapping[str, C]]] = []
    for group, parts in groups:
        ends = _ends(group, parts, descending=descending)
        heads += [(end, part, parts[part]) for part, end in ends.items()]
    first = heapq.nlargest if descending else heapq.nsmallest
    chosen = first(num, heads, key=operator.itemgetter(0))
    found = itertools.chain.from_iterable(part.values() for _, _, part in chosen)
    if len(chosen) < num:
        return list(found)
    (last, _), _, _ = chosen[-1]
    if descending:
        return [it for it in found if it.created_at >= last]
    return [it for it in found if it.created_at <= last]


def _ends(group: Hashable, parts: Parts[C], *, descending: bool) -> Ends:
    """The position of the first record of each part."""
    before, known = _known.get((group, descending), ({}, {}))
    if before is parts:
        return known
    found, first = dict(known), max if descending else min
    for name in changed_names(before, parts):
        found.pop(name, None)
        if name in parts:
            found[name] = first(map(_created, parts[name].values()))
    if len(_known) >= MAX_KNOWN:
        _known.clear()
    _known[group, descending] = parts, found
    return found
