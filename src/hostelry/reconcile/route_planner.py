"""Plans the routes of the endpoints whose records changed, and keeps those of all others."""

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hostelry.domain.at_zero import AtZero
from hostelry.domain.route_delta import (
    ChangedParts,
    EndpointId,
    changed_parts,
    delta_of,
    endpoint_total,
    total_change,
    version_of,
)
from hostelry.domain.routes import EndpointRoute, RouteSnapshot
from hostelry.reconcile.plan.endpoint_state import EndpointState
from hostelry.reconcile.plan.routes import (
    PlannedEndpoint,
    RouteRules,
    WakeRules,
    planned_endpoint,
)
from hostelry.reconcile.record import load_all
from hostelry.store.records import State


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRoutes:
    """A snapshot, and its endpoints that differ from those of version `since`, by what.

    None: the endpoint has no route any more.
    """

    since: str
    snapshot: RouteSnapshot
    changed: Mapping[EndpointId, ChangedParts | None] = field(default_factory=dict)


class RoutePlanner:
    """The routes of everything that serves; a call costs as much as has changed since the last.

    `is_llm` decides whether an image is a built-in LLM server; its answer may change without a
    record, and is asked for again where `plan` is called with `afresh`.
    """

    def __init__(self, state: State, is_llm: Callable[[str], bool], at_zero: AtZero) -> None:
        self._state = state
        self._is_llm = is_llm
        self._at_zero = at_zero
        self._lock = threading.Lock()
        self._targets: WakeRules | None = None
        self._planned: dict[EndpointId, PlannedEndpoint] = {}
        self._routes: dict[EndpointId, EndpointRoute] = {}
        self._total = 0

    def plan(self, *, afresh: bool = False) -> PlannedRoutes:
        """The present routes, and what changed in them since the last call."""
        with self._lock:
            rules = self._rules()
            afresh = afresh or rules.waking != self._targets
            self._targets = rules.waking
            planned: dict[EndpointId, PlannedEndpoint] = {}
            for state in load_all(self._state):
                if state.endpoint is None:
                    continue
                scope, name = state.endpoint.scope, state.endpoint.name
                address = (scope.account, scope.region, name)
                before = self._planned.get(address)
                if before is None or afresh or not _is_same(before.state, state):
                    before = planned_endpoint(state, rules, before)
                planned[address] = before
            since, changed = version_of(self._total), self._take(planned)
            ordered = tuple(self._routes[it] for it in sorted(self._routes))
            snapshot = RouteSnapshot(version=version_of(self._total), endpoints=ordered)
            return PlannedRoutes(since=since, snapshot=snapshot, changed=changed)

    def _rules(self) -> RouteRules:
        targets = (it.value for it in self._state.scalable_targets.list())
        # An image is looked up once for all endpoints: that looks at a file.
        return RouteRules(
            is_llm=functools.cache(self._is_llm), waking=WakeRules.of(self._at_zero, targets)
        )

    def _take(
        self, planned: dict[EndpointId, PlannedEndpoint]
    ) -> dict[EndpointId, ChangedParts | None]:
        """Keep what is planned; returns what differs from what was."""
        changed: dict[EndpointId, ChangedParts | None] = {}
        for address in self._routes.keys() | planned.keys():
            old, new = self._routes.get(address), planned.get(address)
            route = None if new is None else new.route
            if route is old:
                continue
            if route is None:
                assert old is not None, "an endpoint without any route is not kept"
                changed[address] = None
                self._total -= endpoint_total(old)
                del self._routes[address]
                continue
            parts = changed_parts(old, route)
            if parts is not None:
                changed[address] = parts
                self._total += total_change(old, delta_of(route, parts))
            self._routes[address] = route
        self._planned = planned
        return changed


def _is_same(one: EndpointState, other: EndpointState) -> bool:
    """Whether both are of the same records: a record is decoded once for each of its versions."""
    return (
        one.endpoint is other.endpoint
        and one.components is other.components
        and one.instances is other.instances
        and one.copies is other.copies
    )
