"""State of one endpoint and everything on it, as plain values: input and output of every plan.

A plan is a function from an EndpointState to the one to record next; `reconciler` writes the
difference.
"""

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from hostelry.base.parts import changed_names, parts_of, parts_with_changes
from hostelry.comparison.fleet_verdict import StepVerdict
from hostelry.domain.alarm import AlarmState
from hostelry.domain.component import ComponentStatus, InferenceComponent, family_name
from hostelry.domain.copy import AdapterPhase, Copy, CopyPhase, Instance, InstanceState
from hostelry.domain.copy_restart import CopyRestart
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.scope import ZONE_LETTERS, Scope
from hostelry.domain.shape import Shape
from hostelry.fleet.protocol import Observation

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

DRAIN_S = 2.0
MAX_DRAIN_S = 490.0  # the longest that a stream may take, and a little
DELETE_DRAIN_S = 30.0  # a delete does not wait for the end of a stream
LOST_AFTER_S = 60.0
LEAST_PROVISION_S = 60.0
LIVE_COMPONENT = frozenset(
    {ComponentStatus.CREATING, ComponentStatus.UPDATING, ComponentStatus.IN_SERVICE}
)
SERVING_COMPONENT = LIVE_COMPONENT - {ComponentStatus.CREATING}
SERVING_ENDPOINT = frozenset({EndpointStatus.IN_SERVICE, EndpointStatus.UPDATING})


@dataclass(frozen=True, slots=True)
class GroupKey:
    """An endpoint's identity; everything on an endpoint is planned together."""

    scope: Scope
    endpoint_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFacts:
    """Facts about an instance's agent, gathered since this process started.

    `applied` names the copies that the agent was given before it made `observation`. `attempts`
    counts failed launches in a row, `problem` describes the last; `terminal` means that a retry
    cannot help, `no_capacity` that no machine was available. `gone` is set once the instance is
    terminated. `unreachable_since` is when an agent that had answered before first did not; `lost`
    that the fleet knows its machine to be gone, and its copies with it.
    """

    address: str | None = None
    observation: Observation | None = None
    applied: frozenset[str] = frozenset()
    problem: str | None = None
    terminal: bool = False
    no_capacity: bool = False
    attempts: int = 0
    gone: bool = False
    unreachable_since: float | None = None
    lost: bool = False


NOTHING_KNOWN = InstanceFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """Inputs of a plan beside the state: the time, fresh ids, declared shapes, and settings.

    `pace` divides the waits that last minutes on AWS (cooldowns, bakes, provisioning time-outs).
    `max_drain_s` is how long a draining copy may take for its requests. `zone_letters` make the
    availability zones of a region. `alarms` has the states of alarms that guard an update;
    `watched_since` is when this process began to evaluate alarms, `alarm_view_s` for how long the
    slowest of them must have seen a version. `verdict` is that on the endpoint's own update.
    """

    now: float
    new_instance_id: Callable[[], str]
    new_copy_id: Callable[[], str]
    shape_of: Callable[[str], Shape]
    pace: float = 1.0
    max_drain_s: float = MAX_DRAIN_S
    zone_letters: str = ZONE_LETTERS
    alarms: Mapping[str, AlarmState] = field(default_factory=dict)
    watched_since: float = 0.0
    alarm_view_s: float = 0.0
    verdict: StepVerdict | None = None

    def after(self, since: float, wait_s: float) -> bool:
        """Whether one of AWS's waits, begun at `since`, is over."""
        return self.now >= self.end_of(since, wait_s)

    def came_up_by(self, since: float, limit_s: float) -> float:
        """The time limit of real work begun at `since`: `pace` makes no machine faster."""
        return since + max(limit_s / self.pace, min(limit_s, LEAST_PROVISION_S))

    def end_of(self, since: float, wait_s: float) -> float:
        """The end of one of AWS's waits, begun at `since`."""
        return since + wait_s / self.pace


@dataclass(frozen=True, kw_only=True)  # no slots: cached properties need a __dict__
class EndpointState:
    """An endpoint (None once deleted), its components by name, instances and copies by id.

    What is found from these is found once, and kept where that did not change (`FOUND_FROM`).
    """

    endpoint: Endpoint | None
    components: Mapping[str, InferenceComponent] = field(default_factory=dict)
    instances: Mapping[str, Instance] = field(default_factory=dict)
    copies: Mapping[str, Copy] = field(default_factory=dict)
    facts: Mapping[str, InstanceFacts] = field(default_factory=dict)

    def with_endpoint(self, endpoint: Endpoint) -> "EndpointState":
        """This state with `endpoint`; itself where that changes nothing."""
        return self if self.endpoint == endpoint else self._with(endpoint=endpoint)

    def with_copies(self, copies: Iterable[Copy]) -> "EndpointState":
        """This state with `copies` added or replaced; itself where that changes nothing."""
        changed = _differing(self.copies, ((it.spec.id, it) for it in copies))
        return self._with_changed("copies", changed) if changed else self

    def without_copies(self, copy_ids: Iterable[str]) -> "EndpointState":
        """This state without these copies; itself where it has none of them."""
        gone = {it: None for it in copy_ids if it in self.copies}
        return self._with_changed("copies", gone) if gone else self

    def with_instances(self, instances: Iterable[Instance]) -> "EndpointState":
        """This state with `instances` added or replaced; itself where that changes nothing."""
        changed = _differing(self.instances, ((it.id, it) for it in instances))
        return self._with(instances={**self.instances, **changed}) if changed else self

    def with_component(self, component: InferenceComponent) -> "EndpointState":
        """This state with `component` replaced; itself where that changes nothing."""
        return self.with_components((component,))

    def with_components(self, components: Iterable[InferenceComponent]) -> "EndpointState":
        """This state with `components` replaced; itself where that changes nothing."""
        changed = _differing(self.components, ((it.name, it) for it in components))
        return self._with_changed("components", changed) if changed else self

    def with_changed_components(
        self, changed: Mapping[str, InferenceComponent | None]
    ) -> "EndpointState":
        """This state with these components; None: without one of that name."""
        return self._with_changed("components", changed) if changed else self

    def with_live_components(self, components: Mapping[str, InferenceComponent]) -> "EndpointState":
        """This state with other components, which the caller may still change."""
        return self._with(components=components)

    def facts_of(self, instance_id: str) -> InstanceFacts:
        """Facts about an instance; none for one that is new to this process."""
        return self.facts.get(instance_id, NOTHING_KNOWN)

    def deployments(self) -> tuple[Deployment, ...]:
        """Deployments that should have instances: the active one, then those beside it."""
        endpoint = self.endpoint
        if endpoint is None or endpoint.status in (EndpointStatus.DELETING, EndpointStatus.FAILED):
            return ()
        return endpoint.deployments

    def variants(self) -> list[tuple[Deployment, EndpointVariant]]:
        """The variants of all `deployments`, each with its deployment."""
        return [(it, variant) for it in self.deployments() for variant in it.variants]

    def hosts(self, generation: int, variant_name: str) -> list[Instance]:
        """Instances of a deployment's variant that are not terminating, oldest first.

        The same list each time, not to be changed.
        """
        return self._hosts_by_variant.get((generation, variant_name), [])

    def able(self, instances: Iterable[Instance], now: float) -> list[Instance]:
        """Those that new copies may be placed on: reachable, neither leaving nor cordoned."""
        staying = [it for it in self.staying(instances) if not it.leaving]
        return [it for it in staying if not is_lost(self.facts_of(it.id), now)]

    def staying(self, instances: Iterable[Instance]) -> list[Instance]:
        """Those that are not cordoned: neither draining, nor replaced for a copy's restart."""
        return [it for it in instances if it.id not in self._cordoned]

    def copies_of(self, component_name: str | None) -> Sequence[Copy]:
        """All copies of a component (None: of the model), oldest first."""
        copies = self.copy_parts.get(component_name)
        return _oldest_first(copies, self._of_component, component_name)

    def copies_at(self, instance_id: str) -> Sequence[Copy]:
        """All copies recorded on an instance, oldest first."""
        return _oldest_first(self.instance_parts.get(instance_id), self._at_instance, instance_id)

    def copies_on(self, hosts: Sequence[Instance], component_name: str | None) -> list[Copy]:
        """A component's (None: the model's) copies on `hosts` that are not draining."""
        mine = self.copies_of(component_name)
        if not mine:
            return []
        ids = self._ids_of_hosts.get(id(hosts)) or {host.id for host in hosts}
        return [it for it in mine if it.instance_id in ids and not it.draining]

    def adapters_of(self, base_name: str) -> Sequence[InferenceComponent]:
        """The adapter components on a base component, by name."""
        family = self.families.get(base_name, {})
        return [it for it in family.values() if it.adapter is not None]

    def lost_among(self, hosts: Sequence[Instance], now: float) -> frozenset[str]:
        """The ids of those of `hosts` that no new copy may be placed on."""
        key = (id(hosts), now)
        if id(hosts) not in self._ids_of_hosts or key not in self._lost:
            lost = frozenset({it.id for it in hosts} - {it.id for it in self.able(hosts, now)})
            if id(hosts) not in self._ids_of_hosts:
                return lost
            self._lost[key] = lost
        return self._lost[key]

    def _with_changed(self, kind: str, changed: Mapping[str, Any]) -> "EndpointState":
        """This state with values of a kind added or replaced, and its parts; None: without one."""
        before: Mapping[str, Any] = getattr(self, kind)
        values = {**before, **changed}
        for name, value in changed.items():
            if value is None:
                del values[name]
        after = self._with(**{kind: values})
        for name, part_of in PARTS[kind].items():
            if name in self.__dict__:
                parts = parts_with_changes(self.__dict__[name], before, changed, part_of)
                after.know(**{name: parts})
        known = after.known_unsettled
        if known is not None:
            both = (it for name in changed for it in (before.get(name), changed[name]))
            touched = {FAMILY_OF[kind](it) for it in both if it is not None}
            after.know(_unsettled=known | touched)
        return after

    def know(self, **found: Any) -> None:
        """Take these values of what is found from this state; it need not be looked for then."""
        self.__dict__.update(found)

    def _with(self, **changes: Any) -> "EndpointState":
        """This state with other values; what is found from the others is not looked for again."""
        after = replace(self, **changes)
        for name, sources in FOUND_FROM.items():
            if name in self.__dict__ and not sources & changes.keys():
                after.__dict__[name] = self.__dict__[name]
        return after

    def refused_adapters(self, base_name: str) -> frozenset[str]:
        """The ids of adapters that a copy of a base, also one that drains, reports as FAILED."""
        if base_name not in self._refused:
            self._refused[base_name] = frozenset(
                adapter.id
                for copy in self.copy_parts.get(base_name, {}).values()
                for adapter in copy.status.adapters
                if adapter.phase is AdapterPhase.FAILED
            )
        return self._refused[base_name]

    def unsettled_components(self) -> Iterator[InferenceComponent]:
        """The components of the families that a plan must look at, in no order."""
        known = self.known_unsettled
        if known is None:
            yield from self.components.values()
        else:
            for name in known:
                yield from self.families.get(name or "", {}).values()

    def unsettled_copies(self) -> Iterator[Copy]:
        """The copies of the families that a plan must look at, in no order."""
        known = self.known_unsettled
        if known is None:
            yield from self.copies.values()
        else:
            for name in known:
                yield from self.copy_parts.get(name, {}).values()

    def unsettled_copies_at(self, hosts: Iterable[Instance]) -> list[Copy]:
        """Those of them that are recorded on `hosts`, of each the oldest first."""
        by_instance = _grouped(sorted(self.unsettled_copies(), key=_by_age), instance_of)
        return [copy for it in hosts for copy in by_instance.get(it.id, ())]

    @property
    def unsettled(self) -> frozenset[str | None]:
        """The families that a plan must look at, by their bases' names (None: the model's copies).

        All of them, unless some are known to be settled: see `settled`.
        """
        known = self.known_unsettled
        return frozenset({*self.families, *self.copy_parts}) if known is None else known

    @property
    def known_unsettled(self) -> frozenset[str | None] | None:
        """As `unsettled`; None: all of them, as nothing is known."""
        known: frozenset[str | None] | None = self.__dict__.get("_unsettled")
        return known

    @cached_property
    def with_news(self) -> frozenset[str]:
        """The ids of the instances that a plan must look at the reports of."""
        return frozenset(self.instances)

    @cached_property
    def _refused(self) -> dict[str, frozenset[str]]:
        return {}

    @cached_property
    def restarts(self) -> Mapping[str, CopyRestart]:
        """The restarts that a person asked for, by the id of the copy to be replaced."""
        restarts = () if self.endpoint is None else self.endpoint.restarts
        return {it.copy_id: it for it in restarts}

    @cached_property
    def restarting(self) -> frozenset[str]:
        """Ids of the copies for which a replacement comes up now."""
        return frozenset(name for name, it in self.restarts.items() if it.is_under_way)

    @cached_property
    def _cordoned(self) -> frozenset[str]:
        restarts = [it for it in self.restarts.values() if it.is_under_way and it.with_instance]
        replaced = {it.instance_id for it in restarts}
        draining = {it.id for it in self.instances.values() if it.drain_since is not None}
        return frozenset(draining | replaced)

    @cached_property
    def _ids_of_hosts(self) -> Mapping[int, frozenset[str]]:
        """The ids of the instances in each list that `hosts` returns, by the list's identity."""
        return {id(it): frozenset(host.id for host in it) for it in self._hosts_by_variant.values()}

    @cached_property
    def _lost(self) -> dict[tuple[int, float], frozenset[str]]:
        return {}

    @cached_property
    def _hosts_by_variant(self) -> Mapping[tuple[int, str], list[Instance]]:
        hosts = [it for it in self.instances.values() if it.state is not InstanceState.TERMINATING]
        hosts.sort(key=lambda it: (it.created_at, it.id))
        return _grouped(hosts, lambda it: (it.generation, it.variant_name))

    @cached_property
    def families(self) -> Mapping[str, Mapping[str, InferenceComponent]]:
        """The components by name, in its order, with the adapters on it, by the base's name.

        One is the same object for as long as none of its components changes.
        """
        return parts_of(self.components, family_name)

    @cached_property
    def copy_parts(self) -> Mapping[str | None, Mapping[str, Copy]]:
        """The copies by id, in its order, by their component's name (None: the model's).

        One is the same object for as long as none of its copies changes.
        """
        return parts_of(self.copies, component_of)

    @cached_property
    def instance_parts(self) -> Mapping[str, Mapping[str, Copy]]:
        """The copies by id, in its order, by their instance's id; see `copy_parts`."""
        return parts_of(self.copies, instance_of)

    @cached_property
    def _of_component(self) -> dict[str | None, Sequence[Copy]]:
        return {}

    @cached_property
    def _at_instance(self) -> dict[str, Sequence[Copy]]:
        return {}


_by_age = operator.attrgetter("created_at", "spec.id")
component_of: Callable[[Copy], str | None] = operator.attrgetter("component_name")
instance_of: Callable[[Copy], str] = operator.attrgetter("instance_id")

# The parts of the values of a kind, as cached properties, and the part of a value.
PARTS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "components": {"families": family_name},
    "copies": {"copy_parts": component_of, "instance_parts": instance_of},
}
FAMILY_OF: Mapping[str, Callable[[Any], str | None]] = {
    "components": family_name,
    "copies": component_of,
}

# What each cached property of an EndpointState is found from.
FOUND_FROM: Mapping[str, frozenset[str]] = {
    "_unsettled": frozenset({"endpoint", "instances", "facts"}),
    "_refused": frozenset({"copies"}),
    "restarts": frozenset({"endpoint"}),
    "restarting": frozenset({"endpoint"}),
    "_cordoned": frozenset({"endpoint", "instances"}),
    "_ids_of_hosts": frozenset({"instances"}),
    "_lost": frozenset({"endpoint", "instances", "facts"}),
    "_hosts_by_variant": frozenset({"instances"}),
    "copy_parts": frozenset({"copies"}),
    "instance_parts": frozenset({"copies"}),
    "_of_component": frozenset({"copies"}),
    "_at_instance": frozenset({"copies"}),
    "families": frozenset({"components"}),
}


def _differing(known: Mapping[str, T], values: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Those of `values` that are not what is known under their name."""
    found: dict[str, T] = {}
    for name, value in values:
        before = known.get(name)
        if before is not value and before != value:
            found[name] = value
    return found


def _oldest_first(
    copies: Mapping[str, Copy] | None, known: dict[K, Sequence[Copy]], name: K
) -> Sequence[Copy]:
    """The copies in order, once for each name."""
    if not copies:
        return ()
    if len(copies) == 1:
        return tuple(copies.values())
    if name not in known:
        known[name] = sorted(copies.values(), key=_by_age)
    return known[name]


def _grouped(values: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def changed_families(before: EndpointState, after: EndpointState) -> set[str]:
    """The names of the bases of which, or of whose adapters or copies, there are other objects."""
    copied = changed_names(before.copy_parts, after.copy_parts)
    return changed_names(before.families, after.families) | {it for it in copied if it is not None}


def is_routable(copy: Copy) -> bool:
    """Whether requests may go to a copy: it proved ready, its adapters are settled, it stays."""
    return (
        copy.status.phase is CopyPhase.READY
        and copy.status.address is not None
        and copy.ready_at is not None
        and not copy.draining
    )


def is_lost(facts: InstanceFacts, now: float) -> bool:
    """Whether others replace an instance: its machine is gone, or its agent long out of reach."""
    if facts.lost:
        return True
    return facts.unreachable_since is not None and now >= facts.unreachable_since + LOST_AFTER_S


def drained(copy: Copy, context: PlanContext, limit_s: float | None = None) -> Copy:
    """The copy draining: until its requests are done, or for at most `limit_s`.

    its state             result
    -------------------   ------------------------------------------------------------
    draining already      ends at the earlier of both limits, never later than before
    takes no requests     ends now
    takes requests        ends in `limit_s`, at least DRAIN_S: routes must change first
    """
    now, limit_s = context.now, context.max_drain_s if limit_s is None else limit_s
    if copy.drain_deadline_at is not None:
        ends_at = min(copy.drain_deadline_at, (copy.drain_started_at or now) + limit_s)
        is_sooner = ends_at < copy.drain_deadline_at
        return replace(copy, drain_deadline_at=ends_at) if is_sooner else copy
    if not is_routable(copy):
        return replace(copy, drain_deadline_at=now)
    spec = replace(copy.spec, draining=True)
    return replace(
        copy, spec=spec, drain_started_at=now, drain_deadline_at=now + max(limit_s, DRAIN_S)
    )


def stopped(copy: Copy, now: float) -> Copy:
    """The copy with its drain ended."""
    if copy.drain_deadline_at is not None and copy.drain_deadline_at <= now:
        return copy
    return replace(copy, drain_deadline_at=now)
