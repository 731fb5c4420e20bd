"""Changes between two versions of the routes, and the version as a sum over their parts.

A part is an endpoint without its components (the head), one component, or one failed component. The
version is the sum of the hashes of all parts. So a process that applies changes to its routes
computes the next version from the changed parts alone. If this version equals the version that the
changes name, both processes had the same parts before, and have the same parts now.
"""

import hashlib
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from hostelry.domain.routes import (
    ComponentRoute,
    EndpointRoute,
    FailedComponent,
    RouteSnapshot,
)

EndpointId = tuple[str, str, str]  # account, region, name
HASH_BYTES = 16
ROUTES_HEADER = "x-hostelry-routes"  # of an answer with changes. Its value is DELTA
DELTA = "delta"
P = TypeVar("P", ComponentRoute, FailedComponent)
MANY = 20  # if more than 1/20 of the parts change, all parts are sorted again
_name: Callable[[ComponentRoute | FailedComponent], str] = operator.attrgetter("name")


class EndpointDelta(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's changed routes.

    `head` is the endpoint without components. `components` and `failed` are new or changed parts.
    `gone` and `recovered` are the names that are no longer components, or no longer failed. If it
    `is_whole`, it replaces everything known about the endpoint.
    """

    head: EndpointRoute
    is_whole: bool = False
    components: tuple[ComponentRoute, ...] = ()
    failed: tuple[FailedComponent, ...] = ()
    gone: tuple[str, ...] = ()
    recovered: tuple[str, ...] = ()


class RouteDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The changes from the routes of version `since` to the routes of `version`."""

    since: str
    version: str
    changed: tuple[EndpointDelta, ...]
    removed: tuple[EndpointId, ...] = ()


class EndpointParts(msgspec.Struct, frozen=True, kw_only=True):
    """Some components of an endpoint, and some failed components, by name."""

    components: Mapping[str, ComponentRoute] = msgspec.field(default_factory=dict)
    failed: Mapping[str, FailedComponent] = msgspec.field(default_factory=dict)


NO_PARTS = EndpointParts()


class ChangedParts(msgspec.Struct, frozen=True, kw_only=True):
    """The names of an endpoint's changed parts. If `is_whole`, all parts have changed."""

    is_whole: bool = False
    components: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()

    def __or__(self, later: "ChangedParts") -> "ChangedParts":
        return ChangedParts(
            is_whole=self.is_whole or later.is_whole,
            components=self.components | later.components,
            failed=self.failed | later.failed,
        )

    @property
    def num(self) -> int:
        """The number of parts, including the head."""
        return 1 + len(self.components) + len(self.failed)


def endpoint_id(endpoint: EndpointRoute) -> EndpointId:
    """The endpoint's identity. A snapshot is sorted by it."""
    return endpoint.scope.account, endpoint.scope.region, endpoint.name


def build_head(endpoint: EndpointRoute) -> EndpointRoute:
    """The endpoint without its components."""
    return replace(endpoint, components=(), failed=())


def get_version(total: int) -> str:
    """The version of routes if the sum of their parts' hashes is `total`."""
    return f"{total % 2 ** (8 * HASH_BYTES):0{2 * HASH_BYTES}x}"


def get_total(version: str) -> int:
    """Return the sum in a version. Raises ValueError if the version is of another kind."""
    if len(version) != 2 * HASH_BYTES:
        raise ValueError(f"{version!r} is no sum over the parts of routes")
    return int(version, 16)


def build_snapshot(endpoints: Iterable[EndpointRoute]) -> RouteSnapshot:
    """Build a snapshot with these endpoints. Equal content has an equal version."""
    ordered = tuple(sorted(endpoints, key=endpoint_id))
    return RouteSnapshot(version=get_version(sum(map(endpoint_total, ordered))), endpoints=ordered)


def encode_routes(snapshot: RouteSnapshot) -> bytes:
    """The snapshot as JSON. Endpoints are encoded one by one, so other threads run meanwhile."""
    endpoints = b",".join([msgspec.json.encode(it) for it in snapshot.endpoints])
    version = msgspec.json.encode(snapshot.version)
    return b'{"version":' + version + b',"endpoints":[' + endpoints + b"]}"


def endpoint_total(endpoint: EndpointRoute) -> int:
    """The sum of the hashes of all parts of an endpoint."""
    address = endpoint_id(endpoint)
    return (
        part_hash(address, build_head(endpoint))
        + sum(part_hash(address, it) for it in endpoint.components)
        + sum(part_hash(address, it) for it in endpoint.failed)
    )


def part_hash(address: EndpointId, part: Any) -> int:
    """The hash of one part of an endpoint: its kind, its place and its content."""
    content = msgspec.json.encode((type(part).__name__, address, part))
    return int.from_bytes(hashlib.blake2b(content, digest_size=HASH_BYTES).digest())


def difference(
    head: EndpointRoute, changed: Sequence[tuple[EndpointParts, EndpointParts]]
) -> EndpointDelta:
    """The changes of an endpoint's parts. `changed` has pairs of old and new parts."""
    components, gone = _differing([(old.components, new.components) for old, new in changed])
    failed, recovered = _differing([(old.failed, new.failed) for old, new in changed])
    return EndpointDelta(
        head=head, components=components, failed=failed, gone=gone, recovered=recovered
    )


def changed_parts(delta: EndpointDelta) -> ChangedParts:
    """The names of the parts that a delta changes."""
    if delta.is_whole:
        return ChangedParts(is_whole=True)
    return ChangedParts(
        components=frozenset((*_names(delta.components), *delta.gone)),
        failed=frozenset((*_names(delta.failed), *delta.recovered)),
    )


def build_delta(endpoint: EndpointRoute, changed: ChangedParts) -> EndpointDelta:
    """The present state of an endpoint's changed parts."""
    head = build_head(endpoint)
    if changed.is_whole:
        return EndpointDelta(
            head=head, is_whole=True, components=endpoint.components, failed=endpoint.failed
        )
    components, gone = _present(endpoint.components, changed.components)
    failed, recovered = _present(endpoint.failed, changed.failed)
    return EndpointDelta(
        head=head, components=components, failed=failed, gone=gone, recovered=recovered
    )


def is_empty(delta: EndpointDelta) -> bool:
    """Whether a delta changes at most the head."""
    return not (delta.components or delta.failed or delta.gone or delta.recovered)


def after(endpoint: EndpointRoute | None, delta: EndpointDelta) -> EndpointRoute:
    """Apply the changes to the endpoint. None stands for a new endpoint."""
    if delta.is_whole or endpoint is None:
        return replace(delta.head, components=delta.components, failed=delta.failed)
    return replace(
        delta.head,
        components=_merge_parts(endpoint.components, delta.components, delta.gone),
        failed=_merge_parts(endpoint.failed, delta.failed, delta.recovered),
    )


def total_change(endpoint: EndpointRoute | None, delta: EndpointDelta) -> int:
    """The change of the sum of the parts' hashes when an endpoint's changes are applied."""
    address = endpoint_id(delta.head)
    new = [delta.head, *delta.components, *delta.failed]
    added = sum(part_hash(address, it) for it in new)
    if endpoint is None:
        return added
    if delta.is_whole:
        return added - endpoint_total(endpoint)
    replaced = [
        build_head(endpoint),
        *_present(endpoint.components, {*_names(delta.components), *delta.gone})[0],
        *_present(endpoint.failed, {*_names(delta.failed), *delta.recovered})[0],
    ]
    return added - sum(part_hash(address, it) for it in replaced)


def _names(parts: Iterable[P]) -> list[str]:
    return [it.name for it in parts]


def _differing(
    pairs: Iterable[tuple[Mapping[str, P], Mapping[str, P]]],
) -> tuple[tuple[P, ...], tuple[str, ...]]:
    """The new or different parts, and the names of removed parts, both in order."""
    found: dict[str, P] = {}
    gone: set[str] = set()
    for old, new in pairs:
        gone |= old.keys() - new.keys()
        for name, part in new.items():
            before = old.get(name)
            if before is not part and before != part:
                found[name] = part
    return tuple(found[it] for it in sorted(found)), tuple(sorted(gone - found.keys()))


def _present(parts: Sequence[P], names: Iterable[str]) -> tuple[tuple[P, ...], tuple[str, ...]]:
    """Split `names` into the parts with these names, and the names without a part.

    `parts` is in the order of names.
    """
    found, missing = [], []
    for name in sorted(names):
        place = bisect_left(parts, name, key=_name)
        if place < len(parts) and parts[place].name == name:
            found.append(parts[place])
        else:
            missing.append(name)
    return tuple(found), tuple(missing)


def _merge_parts(old: Sequence[P], changed: Sequence[P], gone: Sequence[str]) -> tuple[P, ...]:
    """Add or replace parts of `old`, which is in the order of names, and remove `gone` parts."""
    if MANY * (len(changed) + len(gone)) > len(old):
        known = {it.name: it for it in old}
        for name in gone:
            known.pop(name, None)
        known |= {it.name: it for it in changed}
        return tuple(known[it] for it in sorted(known))
    found = list(old)
    for name in gone:
        place = bisect_left(found, name, key=_name)
        if place < len(found) and found[place].name == name:
            del found[place]
    for part in changed:
        place = bisect_left(found, part.name, key=_name)
        if place < len(found) and found[place].name == part.name:
            found[place] = part
        else:
            found.insert(place, part)
    return tuple(found)
