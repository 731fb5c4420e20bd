"""Finds the newest or oldest of thousands of records by looking into few parts of them."""

import heapq
import itertools
import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from hostelry.base.parts import changed_names

MAX_KNOWN = 2_000  # remembered groups. With more groups, all are read again


class CreatedRecord(Protocol):
    """A record with a name and a time of creation."""

    @property
    def name(self) -> str:
        """The record's name."""
        ...

    @property
    def created_at(self) -> float:
        """Seconds since the epoch."""
        ...


C = TypeVar("C", bound=CreatedRecord)
Parts = Mapping[Hashable, Mapping[str, C]]
Head = tuple[tuple[float, str], Mapping[str, Any]]  # sort key of a part's first record, the part
_created = operator.attrgetter("created_at", "name")
_position = operator.itemgetter(0)


class _KnownGroup(msgspec.Struct, frozen=True):
    """A group as it was at the last look: its parts, their heads, and the heads in order."""

    parts: Parts[Any] = msgspec.field(default_factory=dict)
    heads: Mapping[Hashable, Head] = msgspec.field(default_factory=dict)
    in_order: Sequence[Head] = ()


class FirstCreated:
    """Finds the first records of groups. Groups that are the same objects as before cost nothing.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Hashable, bool], _KnownGroup] = {}  # by group and direction

    def among(
        self, groups: Iterable[tuple[Hashable, Parts[C]]], num: int, *, descending: bool
    ) -> list[C]:
        """Candidates that include the first `num` records by time of creation, then name.

        In the order of their first records, the first `num` parts contain them.
        """
        heads = [self._heads(group, parts, descending=descending) for group, parts in groups]
        merged = heapq.merge(*heads, key=_position, reverse=descending)
        chosen = list(itertools.islice(merged, num))
        found: Iterable[C] = itertools.chain.from_iterable(part.values() for _, part in chosen)
        if len(chosen) < num:
            return list(found)
        (last, _), _ = chosen[-1]
        if descending:
            return [it for it in found if it.created_at >= last]
        return [it for it in found if it.created_at <= last]

    def _heads(self, group: Hashable, parts: Parts[C], *, descending: bool) -> Sequence[Head]:
        """The sorted heads of a group's parts."""
        before = self._known.get((group, descending), _KnownGroup())
        if before.parts is parts:
            return before.in_order
        heads, first = dict(before.heads), max if descending else min
        for name in changed_names(before.parts, parts):
            heads.pop(name, None)
            if name in parts:
                heads[name] = first(map(_created, parts[name].values())), parts[name]
        in_order = sorted(heads.values(), key=_position, reverse=descending)
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[group, descending] = _KnownGroup(parts, heads, in_order)
        return in_order
