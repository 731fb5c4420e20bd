"""Every component, copy and instance, sorted once for each state of the store."""

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hostelry.domain.component import InferenceComponent
from hostelry.domain.copy import Copy, Instance
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.scope import Scope
from hostelry.store.records import State

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

Name = tuple[Scope, str]
Variant = tuple[Scope, str, str]  # an endpoint's


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """What belongs to what, as of one revision."""

    endpoints: Mapping[Name, Endpoint]
    components: Mapping[Name, InferenceComponent]
    adapters: Mapping[Name, Sequence[InferenceComponent]]  # by their base
    hosted: Mapping[Variant, Sequence[InferenceComponent]]
    copies: Mapping[Name, Sequence[Copy]]  # by their component
    copies_on: Mapping[Variant, Sequence[Copy]]
    instances: Mapping[Variant, Sequence[Instance]]


class Grouping:
    """The groups of a store, cached by its revision. Thread-safe."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._known: tuple[int, Groups] | None = None

    def now(self) -> Groups:
        """The groups as the store has them now."""
        revision = self._state.store.revision()
        with self._lock:
            known = self._known
        if known is not None and known[0] == revision:
            return known[1]
        # Read after the revision: what came in between is read once more the next time.
        groups = self._read()
        with self._lock:
            self._known = (revision, groups)
        return groups

    def _read(self) -> Groups:
        components = [it.value for it in self._state.components.list()]
        copies = [it.value for it in self._state.copies.list()]
        instances = [it.value for it in self._state.instances.list()]
        endpoints = [it.value for it in self._state.endpoints.list()]
        return Groups(
            endpoints={(it.scope, it.name): it for it in endpoints},
            components={(it.scope, it.name): it for it in components},
            adapters=grouped(
                (it for it in components if it.adapter is not None),
                lambda it: (it.scope, "" if it.adapter is None else it.adapter.base_name),
            ),
            hosted=grouped(components, lambda it: (it.scope, it.endpoint_name, it.variant_name)),
            copies=grouped(copies, lambda it: (it.scope, it.component_name or "")),
            copies_on=grouped(copies, lambda it: (it.scope, it.endpoint_name, it.variant_name)),
            instances=grouped(instances, lambda it: (it.scope, it.endpoint_name, it.variant_name)),
        )


def grouped(values: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The values by their keys, in order."""
    found: dict[K, list[T]] = {}
    for value in values:
        found.setdefault(key(value), []).append(value)
    return found
