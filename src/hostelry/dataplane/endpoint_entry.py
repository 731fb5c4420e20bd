"""Endpoint as a gateway knows it: its parts. A change takes time for the changed parts only."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter

from msgspec.structs import replace

from hostelry.domain.route_delta import EndpointDelta, P, build_head, endpoint_id, part_hash
from hostelry.domain.routes import ComponentRoute, EndpointRoute, FailedComponent

NAME = attrgetter("name")


class EndpointEntry:
    """An endpoint: its `head` has no components. The components are apart, sorted by name."""

    __slots__ = ("components", "failed", "head")

    def __init__(self, route: EndpointRoute) -> None:
        self.head = build_head(route)
        self.components: list[ComponentRoute] = list(route.components)
        self.failed: list[FailedComponent] = list(route.failed)

    def route(self) -> EndpointRoute:
        """Build the endpoint as it is published. Takes time for all components."""
        return replace(self.head, components=tuple(self.components), failed=tuple(self.failed))

    def find_failed(self, name: str) -> FailedComponent | None:
        """Find the failed component of that name."""
        place, is_there = _place(self.failed, name)
        return self.failed[place] if is_there else None

    def find_replaced(
        self, change: EndpointDelta
    ) -> tuple[list[ComponentRoute], list[FailedComponent]]:
        """Find the parts that `change` replaces. It is not a whole one."""
        return (
            _present(self.components, change.components, change.gone),
            _present(self.failed, change.failed, change.recovered),
        )

    def total_change(self, change: EndpointDelta) -> int:
        """Compute how `change` changes the sum of all parts' hashes. It is not a whole one."""
        address = endpoint_id(self.head)
        old, failed = self.find_replaced(change)
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
    """Find the place of a part in the order, and if the part is there."""
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
