"""Endpoint as a gateway knows it: its parts, changed in time of what changed."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

from hostelry.domain.route_delta import EndpointDelta, P, build_head, endpoint_id, part_hash
from hostelry.domain.routes import ComponentRoute, EndpointRoute, FailedComponent

NAME = attrgetter("name")


class KnownEndpoint:
    """An endpoint without its components, its `head`, and beside it these in the order of names."""

    __slots__ = ("components", "failed", "head")

    def __init__(self, route: EndpointRoute) -> None:
        self.head = build_head(route)
        self.components: list[ComponentRoute] = list(route.components)
        self.failed: list[FailedComponent] = list(route.failed)

    def route(self) -> EndpointRoute:
        """The endpoint as it is published; takes the time of all components."""
        return replace(self.head, components=tuple(self.components), failed=tuple(self.failed))

    def failed_component(self, name: str) -> FailedComponent | None:
        """The failed component of that name, or None."""
        place, is_there = _place(self.failed, name)
        return self.failed[place] if is_there else None

    def replaced(self, change: EndpointDelta) -> tuple[list[ComponentRoute], list[FailedComponent]]:
        """The present components, and failed ones, that `change`, not a whole one, replaces."""
        return (
            _present(self.components, change.components, change.gone),
            _present(self.failed, change.failed, change.recovered),
        )

    def total_change(self, change: EndpointDelta) -> int:
        """By how much `change`, not a whole one, changes the sum of all parts' hashes."""
        address = endpoint_id(self.head)
        old, failed = self.replaced(change)
        added = sum(part_hash(address, it) for it in (*change.components, *change.failed))
        added -= sum(part_hash(address, it) for it in (*old, *failed))
        if change.head != self.head:
            added += part_hash(address, change.head) - part_hash(address, self.head)
        return added

    def apply(self, change: EndpointDelta) -> None:
        """Replace the parts that changed."""
        self.head = change.head
        _merge(self.components, change.components, change.gone)
        _merge(self.failed, change.failed, change.recovered)


def _place(parts: Sequence[P], name: str) -> tuple[int, bool]:
    """The place of the part of that name in the order, and whether it is there."""
    place = bisect_left(parts, name, key=NAME)
    return place, place < len(parts) and parts[place].name == name


def _present(parts: Sequence[P], changed: Iterable[P], gone: Iterable[str]) -> list[P]:
    places = [_place(parts, name) for name in {*map(NAME, changed), *gone}]
    return [parts[place] for place, is_there in places if is_there]


def _merge(parts: list[P], changed: Iterable[P], gone: Iterable[str]) -> None:
    for name in gone:
        place, is_there = _place(parts, name)
        if is_there:
            del parts[place]
    for part in changed:
        place, is_there = _place(parts, part.name)
        if is_there:
            parts[place] = part
        else:
            parts.insert(place, part)
