"""Reads one endpoint's state from the store, and writes the difference to the next one.

A crash after any write leaves a state that still serves and can be planned from. Hence the order:
new and observed records, statuses, records that are leaving, settled components, removals.
"""

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from hostelry.base.errors import Conflict
from hostelry.base.json import decode
from hostelry.domain.alarm import AlarmState
from hostelry.domain.at_zero import Wakeable
from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, Instance, InstanceState
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.hidden_endpoint import (
    HiddenKind,
    find_hidden_kind,
    get_job_name,
    is_hidden,
)
from hostelry.domain.load import LoadKey
from hostelry.domain.scaling import Dimension, target_name
from hostelry.domain.scope import Scope
from hostelry.reconcile.plan.endpoint_state import (
    SERVING_COMPONENT,
    SERVING_ENDPOINT,
    ComponentSet,
    CopySet,
    EndpointState,
    GroupKey,
    InstanceFacts,
    InstanceSet,
    find_changed_families,
)
from hostelry.reconcile.plan.guards import get_component_alarms, get_endpoint_alarms
from hostelry.scaling.decide.composite import list_children, parse
from hostelry.scaling.decide.wake import wakeable
from hostelry.store.mirror import NO_RECORDS, RecordGroup
from hostelry.store.protocol import Change, Key, RecordWrite
from hostelry.store.records import Records, State, all_groups, endpoint_address, groups_named

ALARM_KINDS = ("metric_alarm", "composite_alarm")
ON_ENDPOINT = ("component", "instance", "copy")
WRITTEN_TOGETHER = 100
EVALUATION_S = 10.0  # from the end of a period until an alarm has been evaluated on it

RANK_NEW, RANK_ENDPOINT, RANK_COMPONENT, RANK_LEAVING, RANK_SETTLED, RANK_GONE = range(6)


class LoadedEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's state, and the version of each of its records when read, by kind and name."""

    key: GroupKey
    state: EndpointState
    versions: Mapping[str, Mapping[str, int]]


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One record to write. A `value` of None removes it, and the tags of `arn` with it."""

    rank: int
    kind: str
    name: str
    value: Any | None
    arn: str | None = None


class OwnWrites:
    """Writes of passes that the watch has not seen yet. No pass follows them. Thread-safe.

    A change that the watch sees is an own one if it has the body that a pass wrote last: the plan
    of that state changes nothing. An API call that came later left another body.
    """

    def __init__(self) -> None:
        self._bodies: dict[Key, bytes | None] = {}
        self._lock = threading.Lock()

    def expect(self, writes: Iterable[RecordWrite]) -> None:
        """Know these writes as own ones. A write that fails is followed by a pass in any case."""
        with self._lock:
            self._bodies.update((it.key, it.body) for it in writes)

    def others(self, changes: Iterable[Change]) -> list[Change]:
        """The changes that are not own ones. Each own write is known once."""
        with self._lock:
            return [it for it in changes if not self._is_own(it)]

    def _is_own(self, change: Change) -> bool:
        if change.key not in self._bodies:
            return False
        body = self._bodies.pop(change.key)
        return body == (None if change.record is None else change.record.body)


def load(
    state: State,
    key: GroupKey,
    facts: Mapping[str, InstanceFacts],
) -> LoadedEndpoint:
    """The recorded state of the endpoint named by `key`, and of everything on it."""
    name = endpoint_address(key.scope, key.endpoint_name)
    groups = groups_named(_kinds(state), name)
    endpoint = groups["endpoint"].values.get(key.endpoint_name)
    known = {it: facts[it] for it in groups["instance"].values if it in facts}
    loaded = _build_state(endpoint, groups, known)
    versions = {kind: it.versions for kind, it in groups.items()}
    return LoadedEndpoint(key=key, state=loaded, versions=versions)


def load_alarms(state: State, scope: Scope, names: Iterable[str]) -> dict[str, AlarmState]:
    """The states of the alarms that exist, by name."""
    found: dict[str, AlarmState] = {}
    for name in names:
        metric = state.metric_alarms.get(scope, name)
        composite = None if metric else state.composite_alarms.get(scope, name)
        if metric is not None:
            found[name] = metric.value.status.state
        elif composite is not None:
            found[name] = composite.value.status.state
    return found


def get_alarm_view_s(state: State, scope: Scope, names: Iterable[str]) -> float:
    """For how long the slowest of the alarms must have seen a version to judge it.

    Its periods and one more, as they begin at whole ones, and its evaluation. A composite alarm is
    as slow as those that it names.
    """
    left, known, longest_s = list(names), set[str](), 0.0
    while left:
        name = left.pop()
        if name in known:
            continue
        known.add(name)
        metric = state.metric_alarms.get(scope, name)
        composite = None if metric else state.composite_alarms.get(scope, name)
        if metric is not None:
            rule = metric.value.rule
            view_s = rule.period_s * (rule.evaluation_periods + 1) + EVALUATION_S
            longest_s = max(longest_s, view_s)
        elif composite is not None:
            left.extend(list_children(parse(composite.value.expression)))
    return longest_s


def find_guarded_keys(state: State, scope: Scope, alarm_name: str) -> set[GroupKey]:
    """The endpoints with an update under way that an alarm guards."""
    endpoints = (it.value for it in state.endpoints.list(scope))
    components = (it.value for it in state.components.list(scope))
    guarded = {it.name for it in endpoints if alarm_name in get_endpoint_alarms(it)}
    guarded |= {it.endpoint_name for it in components if alarm_name in get_component_alarms(it)}
    return {GroupKey(scope, it) for it in guarded}


def load_all(state: State) -> list[EndpointState]:
    """Load the state of every endpoint without facts, for the routes and for display."""
    groups = all_groups(_kinds(state))
    found = [
        _build_state(endpoint, {it: groups[it].get(name, NO_RECORDS) for it in ON_ENDPOINT}, {})
        for name, of_endpoint in groups["endpoint"].items()
        for endpoint in of_endpoint.values.values()
    ]
    return sorted(found, key=_get_sort_key)


def _build_state(
    endpoint: Endpoint | None,
    groups: Mapping[str, RecordGroup],
    facts: Mapping[str, InstanceFacts],
) -> EndpointState:
    components, copies = groups["component"], groups["copy"]
    families: Mapping[Any, Mapping[str, InferenceComponent]] = components.parts
    by_component: Mapping[Any, Mapping[str, Copy]] = copies.parts
    return EndpointState(
        endpoint=endpoint,
        component_set=ComponentSet(components.values, families),
        instance_set=InstanceSet(groups["instance"].values),
        copy_set=CopySet(copies.values, by_component),
        facts=facts,
    )


def _get_sort_key(state: EndpointState) -> tuple[str, str, str]:
    endpoint = state.endpoint
    assert endpoint is not None, "only endpoints that there are have a state here"
    return endpoint.name, endpoint.scope.account, endpoint.scope.region


def filter_visible(states: Iterable[EndpointState]) -> list[EndpointState]:
    """Keep the endpoints that clients see: all but the endpoints of transform jobs."""
    return [it for it in states if it.endpoint is None or not is_hidden(it.endpoint.name)]


def list_hidden_jobs(state: State, kind: HiddenKind) -> set[tuple[Scope, str]]:
    """The jobs of a kind that have an endpoint, by account, region and name."""
    endpoints = (it.value for it in state.endpoints.list())
    return {
        (endpoint.scope, get_job_name(endpoint.name))
        for endpoint in endpoints
        if find_hidden_kind(endpoint.name) is kind
    }


def list_keys(state: State) -> set[GroupKey]:
    """Every endpoint that has a record, or to which a record still belongs."""
    groups = all_groups(_kinds(state))
    return {GroupKey(*name) for of_kind in groups.values() for name in of_kind}


def find_changed_keys(state: State, changes: Iterable[Change]) -> set[GroupKey]:
    """Find the endpoints whose records changed. A removal came from a plan of its endpoint."""
    keys: set[GroupKey] = set()
    for change in changes:
        scope, name = change.key.scope, change.key.name
        if change.key.kind in ALARM_KINDS:
            keys |= find_guarded_keys(state, scope, name)
        elif change.key.kind == "endpoint":
            keys.add(GroupKey(scope, name))
        elif change.key.kind in ON_ENDPOINT and change.record is not None:
            keys.add(GroupKey(scope, decode(change.record.body, _OnEndpoint).endpoint_name))
    return keys


class _OnEndpoint(msgspec.Struct):
    """The one member that says to which endpoint a record belongs. The others are not read."""

    endpoint_name: str


def _kinds(state: State) -> dict[str, Records[Any]]:
    """The kinds of records that are planned together, in groups by their endpoint."""
    return {
        "endpoint": state.endpoints,
        "component": state.components,
        "instance": state.instances,
        "copy": state.copies,
    }


def list_writes(before: EndpointState, after: EndpointState) -> list[Write]:
    """List the writes, in order, that take the records from `before` to `after`."""
    found = [*_list_endpoint_write(before, after)]
    if before.instances is not after.instances:
        found += _list_differences("instance", before.instances, after.instances)
    names = find_changed_families(before, after)
    components = (_collect_records(it.families, names) for it in (before, after))
    found += _list_differences("component", *components)
    copies = (_collect_records(it.copy_set.by_component, names) for it in (before, after))
    found += _list_differences("copy", *copies)
    return sorted(found, key=lambda it: (it.rank, RANK_OF_REMOVAL.index(it.kind), it.name))


def _collect_records(
    families: Mapping[Any, Mapping[str, Any]], names: Iterable[str | None]
) -> Mapping[str, Any]:
    """The records of these families by name. A record may have moved to another family."""
    return {key: value for name in names for key, value in families.get(name, {}).items()}


RANK_OF_REMOVAL = ("copy", "instance", "component", "endpoint")


def _list_endpoint_write(before: EndpointState, after: EndpointState) -> Iterator[Write]:
    old, new = before.endpoint, after.endpoint
    if old is None or old == new:
        return
    rank = RANK_GONE if new is None else RANK_ENDPOINT
    yield Write(rank=rank, kind="endpoint", name=old.name, value=new, arn=old.arn)


def _list_differences(
    kind: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Write]:
    for name, value in after.items():
        known = before.get(name)
        if known is not value and known != value:
            yield Write(rank=_get_rank(kind, value), kind=kind, name=name, value=value)
    for name, value in before.items():
        if name not in after:
            arn = getattr(value, "arn", None)
            yield Write(rank=RANK_GONE, kind=kind, name=name, value=None, arn=arn)


def _get_rank(kind: str, value: Any) -> int:
    if kind == "component":
        # A client that sees the component settled must not see surplus copies still serving.
        return RANK_SETTLED if _is_settled(value) else RANK_COMPONENT
    if isinstance(value, Copy):
        return RANK_LEAVING if value.draining else RANK_NEW
    leaving = isinstance(value, Instance) and value.state is InstanceState.TERMINATING
    return RANK_LEAVING if leaving else RANK_NEW


def _is_settled(component: InferenceComponent) -> bool:
    return component.status is ComponentStatus.IN_SERVICE and component.failure_reason is None


def write(
    state: State, loaded: LoadedEndpoint, changes: Sequence[Write], own: OwnWrites | None = None
) -> None:
    """Write `changes` over the loaded records, WRITTEN_TOGETHER in one transaction.

    `own` notes each write before it is made. Raises Conflict if a record changed meanwhile. The
    changes before that one are written.
    """
    for first in range(0, len(changes), WRITTEN_TOGETHER):
        together = changes[first : first + WRITTEN_TOGETHER]
        with state.writing:
            lists = [_list_record_writes(state, loaded, change) for change in together]
            writes = list(itertools.chain.from_iterable(lists))
            if own is not None:
                own.expect(writes)
            try:
                state.store.write_all(writes)
            except Conflict:
                for one in writes:
                    state.store.write_all([one])


def _list_record_writes(
    state: State, loaded: LoadedEndpoint, change: Write
) -> Iterator[RecordWrite]:
    expect = loaded.versions.get(change.kind, {}).get(change.name)
    assert change.value is not None or expect is not None, "only a record that was read is removed"
    scope = loaded.key.scope
    yield _kinds(state)[change.kind].write(scope, change.name, change.value, expect=expect)
    if change.value is None and change.arn is not None:
        tags = state.tags.get(scope, change.arn)
        if tags is not None:
            yield state.tags.write(scope, change.arn, None, expect=tags.version)


def has_desired_copies(state: State, key: LoadKey) -> bool:
    """Whether copies of the endpoint or component `key` are desired, or a request may start one.

    The records are a moment ahead of the routes. An endpoint counts while it is InService or
    Updating, a component if both are, and its base desires copies or is `wakeable`. An empty
    endpoint name stands for the endpoint that the component is on.
    """
    if key.component_name is None:
        return _is_serving(state, key.scope, key.endpoint_name)
    found = state.components.get(key.scope, key.component_name)
    if found is None or found.value.status not in SERVING_COMPONENT:
        return False
    endpoint_name = found.value.endpoint_name
    if key.endpoint_name not in ("", endpoint_name):
        return False
    return _is_serving(state, key.scope, endpoint_name) and _can_have_copies(state, found.value)


def _is_serving(state: State, scope: Scope, endpoint_name: str) -> bool:
    endpoint = state.endpoints.get(scope, endpoint_name)
    return endpoint is not None and endpoint.value.status in SERVING_ENDPOINT


def _can_have_copies(state: State, component: InferenceComponent) -> bool:
    base = component
    if component.adapter is not None:
        found = state.components.get(component.scope, component.adapter.base_name)
        if found is None:
            return False
        base = found.value
    if base.desired_copies > 0:
        return True
    name = target_name(f"inference-component/{base.name}", Dimension.COPIES)
    target = state.scalable_targets.get(base.scope, name)
    return wakeable(None if target is None else target.value) is Wakeable.YES
