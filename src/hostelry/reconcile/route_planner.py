"""Plans the routes of the endpoints whose records changed, and keeps all other routes."""

import functools
import threading
from collections.abc import Callable, Mapping

import msgspec

from hostelry.domain.at_zero import AtZero
from hostelry.domain.route_delta import (
    ChangedParts,
    EndpointId,
    changed_parts,
    endpoint_total,
    get_version,
    total_change,
)
from hostelry.domain.routes import RouteSnapshot
from hostelry.reconcile.plan.endpoint_state import EndpointState
from hostelry.reconcile.plan.routes import (
    PlannedEndpoint,
    RouteRules,
    WakeRules,
    plan_endpoint_routes,
)
from hostelry.reconcile.record import load_all
from hostelry.store.mirror import MirroredRecord
from hostelry.store.records import State


class PlannedRoutes(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot, and the changes of its endpoints since version `since`.

    In `changed`, None means that the endpoint has no route any more.
    """

    since: str
    snapshot: RouteSnapshot
    changed: Mapping[EndpointId, ChangedParts | None] = msgspec.field(default_factory=dict)


class RoutePlanner:
    """The routes of everything that serves. A call costs as much as has changed since the last.

    `is_llm` decides whether an image is a built-in LLM server. Its answer may change without a
    record, and is asked for again if `plan` is called with `afresh`.
    """

    def __init__(self, state: State, is_llm: Callable[[str], bool], at_zero: AtZero) -> None:
        self._state = state
        self._is_llm = is_llm
        self._at_zero = at_zero
        self._lock = threading.Lock()
        self._targets: list[MirroredRecord] = []
        self._waking = WakeRules(at_zero=at_zero)
        self._planned: dict[EndpointId, PlannedEndpoint] = {}
        self._total = 0

    def plan(self, *, afresh: bool = False) -> PlannedRoutes:
        """The present routes, and what changed in them since the last call."""
        with self._lock:
            waking = self._waking_now()
            # An image is looked up once for all endpoints: that looks at a file.
            rules = RouteRules(is_llm=functools.cache(self._is_llm), waking=waking)
            afresh = afresh or waking is not self._waking
            planned: dict[EndpointId, PlannedEndpoint] = {}
            for state in load_all(self._state):
                if state.endpoint is None:
                    continue
                scope, name = state.endpoint.scope, state.endpoint.name
                address = (scope.account, scope.region, name)
                known = self._planned.get(address)
                if known is None or afresh or not _is_same(known.state, state):
                    known = plan_endpoint_routes(state, rules, known, afresh=afresh)
                planned[address] = known
            since, changed = get_version(self._total), self._take(planned)
            self._waking = waking
            routes = [planned[it].route for it in sorted(planned)]
            endpoints = tuple([it for it in routes if it is not None])
            snapshot = RouteSnapshot(version=get_version(self._total), endpoints=endpoints)
            return PlannedRoutes(since=since, snapshot=snapshot, changed=changed)

    def _waking_now(self) -> WakeRules:
        """The rules of waking. The same object for as long as no rule changes."""
        targets = self._state.scalable_targets
        entries = targets.mirror.entries(targets.kind)
        if entries == self._targets:
            return self._waking
        self._targets = entries
        found = WakeRules.of(self._at_zero, (it.value for it in targets.list()))
        return self._waking if found == self._waking else found

    def _take(
        self, planned: dict[EndpointId, PlannedEndpoint]
    ) -> dict[EndpointId, ChangedParts | None]:
        """Keep the planned routes. Return their differences from the routes before."""
        changed: dict[EndpointId, ChangedParts | None] = {}
        for address in self._planned.keys() | planned.keys():
            known, now = self._planned.get(address), planned.get(address)
            if known is now:
                continue
            old = None if known is None else known.route
            if now is not None and now.delta is not None:
                changed[address] = changed_parts(now.delta)
                self._total += total_change(old, now.delta)
            elif old is not None and (now is None or now.route is None):
                changed[address] = None
                self._total -= endpoint_total(old)
        self._planned = planned
        return changed


def _is_same(one: EndpointState, other: EndpointState) -> bool:
    """Whether both have the same records: a version of a record is decoded once."""
    return (
        one.endpoint is other.endpoint
        and one.components is other.components
        and one.instances is other.instances
        and one.copies is other.copies
    )
