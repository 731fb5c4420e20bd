"""State of one endpoint and everything on it, as plain values: input and output of every plan.

A plan is a function from an EndpointState to the next one to record. `reconciler` writes the
difference.
"""

import dataclasses
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from hostelry.base.parts import apply_changes, apply_to_parts, changed_names
from hostelry.comparison.fleet_verdict import StepVerdict
from hostelry.domain.alarm import AlarmState
from hostelry.domain.component import ComponentStatus, InferenceComponent, family_name
from hostelry.domain.copy import Copy, CopyPhase, Instance, InstanceState
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.scope import ZONE_LETTERS, Scope
from hostelry.domain.shape import Shape
from hostelry.fleet.protocol import Observation

V = TypeVar("V")

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


class GroupKey(msgspec.Struct, frozen=True):
    """An endpoint's identity. Everything on an endpoint is planned together."""

    scope: Scope
    endpoint_name: str


class InstanceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about an instance's agent, gathered since this process started.

    `applied` names the copies that the agent was given before it made `observation`. `attempts`
    counts failed launches in a row, and `problem` describes the last. `terminal`: a retry cannot
    help. `no_capacity`: no machine was available. `gone`: the instance is terminated.
    `unreachable_since` is when an agent that had answered before first did not. `lost`: the fleet
    knows that its machine and the copies there are gone.
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


class PlanContext(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of a plan besides the state: the time, fresh ids, declared shapes, and settings.

    `pace` divides the waits that last minutes on AWS (cooldowns, bakes, provisioning time-outs).
    `max_drain_s` is how long a draining copy may take for its requests. `zone_letters` make the
    availability zones of a region. `alarms` has the states of alarms that guard an update.
    `watched_since` is when this process began to evaluate alarms, `alarm_view_s` for how long the
    slowest of them must have seen a version. `verdict` is on the endpoint's own update.
    """

    now: float
    new_instance_id: Callable[[], str]
    new_copy_id: Callable[[], str]
    get_shape: Callable[[str], Shape]
    pace: float = 1.0
    max_drain_s: float = MAX_DRAIN_S
    zone_letters: str = ZONE_LETTERS
    alarms: Mapping[str, AlarmState] = msgspec.field(default_factory=dict)
    watched_since: float = 0.0
    alarm_view_s: float = 0.0
    verdict: StepVerdict | None = None

    def after(self, since: float, wait_s: float) -> bool:
        """Whether one of AWS's waits, begun at `since`, is over."""
        return self.now >= self.get_wait_end(since, wait_s)

    def get_work_limit(self, since: float, limit_s: float) -> float:
        """The time limit of real work begun at `since`: `pace` makes no machine faster."""
        return since + max(limit_s / self.pace, min(limit_s, LEAST_PROVISION_S))

    def get_wait_end(self, since: float, wait_s: float) -> float:
        """The end of one of AWS's waits, begun at `since`."""
        return since + wait_s / self.pace


@dataclass(frozen=True)
class ComponentSet:
    """The components of an endpoint by name, and by family.

    A family is the same object for as long as none of its components changes.
    """

    by_name: Mapping[str, InferenceComponent]
    families: Mapping[str, Mapping[str, InferenceComponent]] = field(compare=False)

    def change(self, changes: Mapping[str, InferenceComponent | None]) -> "ComponentSet":
        """Return the set with components added or replaced by name, or removed (None)."""
        families = apply_to_parts(self.families, self.by_name, changes, family_name)
        return ComponentSet(apply_changes(self.by_name, changes), families)


@dataclass(frozen=True)
class CopySet:
    """The copies of an endpoint by id, by component (None: the model's), and by instance.

    The copies of a component are the same object for as long as none of them changes.
    """

    by_id: Mapping[str, Copy]
    by_component: Mapping[str | None, Mapping[str, Copy]] = field(compare=False)

    def change(self, changes: Mapping[str, Copy | None]) -> "CopySet":
        """Return the set with copies added or replaced by id, or removed (None)."""
        by_component = apply_to_parts(
            self.by_component, self.by_id, changes, operator.attrgetter("component_name")
        )
        return CopySet(apply_changes(self.by_id, changes), by_component)

    @cached_property
    def by_instance(self) -> Mapping[str, Mapping[str, Copy]]:
        """The copies by id, by the id of their instance."""
        found: dict[str, dict[str, Copy]] = {}
        for name, copy in self.by_id.items():
            found.setdefault(copy.instance_id, {})[name] = copy
        return found


@dataclass(frozen=True)
class InstanceSet:
    """The instances of an endpoint by id, and by variant."""

    by_id: Mapping[str, Instance]

    @cached_property
    def by_variant(self) -> Mapping[tuple[int, str], Sequence[Instance]]:
        """The instances that are not terminating, oldest first, by generation and variant."""
        found: dict[tuple[int, str], list[Instance]] = {}
        for host in sorted(self.by_id.values(), key=operator.attrgetter("created_at", "id")):
            if host.state is not InstanceState.TERMINATING:
                found.setdefault((host.generation, host.variant_name), []).append(host)
        return found


NO_COMPONENTS = ComponentSet({}, {})
NO_COPIES = CopySet({}, {})
NO_INSTANCES = InstanceSet({})


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointState:
    """An endpoint (None once it is deleted) and every record on it.

    A family is a base component, its adapters and their copies. It has the name of its base, and
    None is the name of the copies of the endpoint's model. `dirty` has the families that a plan
    must look at, `news` the instances whose reports it must read. As a whole, None means all.
    """

    endpoint: Endpoint | None
    component_set: ComponentSet = NO_COMPONENTS
    instance_set: InstanceSet = NO_INSTANCES
    copy_set: CopySet = NO_COPIES
    facts: Mapping[str, InstanceFacts] = field(default_factory=dict)
    dirty: frozenset[str | None] | None = field(default=None, compare=False)
    news: frozenset[str] | None = field(default=None, compare=False)

    @property
    def components(self) -> Mapping[str, InferenceComponent]:
        """The components by name."""
        return self.component_set.by_name

    @property
    def instances(self) -> Mapping[str, Instance]:
        """The instances by id."""
        return self.instance_set.by_id

    @property
    def copies(self) -> Mapping[str, Copy]:
        """The copies by id."""
        return self.copy_set.by_id

    @property
    def families(self) -> Mapping[str, Mapping[str, InferenceComponent]]:
        """The base component and the adapters of each family by name, by the name of the base."""
        return self.component_set.families

    def replace_endpoint(self, endpoint: Endpoint | None) -> "EndpointState":
        """Return this state with `endpoint`, and all families dirty. The same object if equal."""
        return (
            self
            if self.endpoint == endpoint
            else dataclasses.replace(self, endpoint=endpoint, dirty=None)
        )

    def replace_components(self, components: Iterable[InferenceComponent]) -> "EndpointState":
        """Return this state with `components` replaced. The same object if none differs."""
        return self.change_components({it.name: it for it in components})

    def change_components(
        self, changes: Mapping[str, InferenceComponent | None]
    ) -> "EndpointState":
        """Return this state with components replaced by name, or removed (None)."""
        changes = _only_changes(self.components, changes)
        if not changes:
            return self
        touched = (it for name in changes for it in (self.components.get(name), changes[name]))
        return dataclasses.replace(
            self,
            component_set=self.component_set.change(changes),
            dirty=self._mark_dirty(family_name(it) for it in touched if it is not None),
        )

    def add_copies(self, copies: Iterable[Copy]) -> "EndpointState":
        """Return this state with `copies` added or replaced. The same object if none differs."""
        return self._change_copies({it.spec.id: it for it in copies})

    def remove_copies(self, copy_ids: Iterable[str]) -> "EndpointState":
        """Return this state without these copies. The same object if it has none of them."""
        return self._change_copies(dict.fromkeys(copy_ids))

    def add_instances(self, instances: Iterable[Instance]) -> "EndpointState":
        """Return this state with `instances` added or replaced, and all families dirty.

        The same object if no instance differs.
        """
        changes = _only_changes(self.instances, {it.id: it for it in instances})
        if not changes:
            return self
        after = InstanceSet(apply_changes(self.instances, changes))
        return dataclasses.replace(self, instance_set=after, dirty=None)

    def remove_instances(self, instance_ids: Iterable[str]) -> "EndpointState":
        """Return this state without these instances, and all families dirty.

        The same object if it has none of them.
        """
        changes = _only_changes(self.instances, dict.fromkeys(instance_ids))
        if not changes:
            return self
        after = InstanceSet(apply_changes(self.instances, changes))
        return dataclasses.replace(self, instance_set=after, dirty=None)

    def _change_copies(self, changes: Mapping[str, Copy | None]) -> "EndpointState":
        changes = _only_changes(self.copies, changes)
        if not changes:
            return self
        touched = (it for name in changes for it in (self.copies.get(name), changes[name]))
        return dataclasses.replace(
            self,
            copy_set=self.copy_set.change(changes),
            dirty=self._mark_dirty(it.component_name for it in touched if it is not None),
        )

    def _mark_dirty(self, names: Iterable[str | None]) -> frozenset[str | None] | None:
        return None if self.dirty is None else self.dirty.union(names)

    def get_facts(self, instance_id: str) -> InstanceFacts:
        """Return the facts about an instance. NOTHING_KNOWN if this process has seen none."""
        return self.facts.get(instance_id, NOTHING_KNOWN)

    def deployments(self) -> tuple[Deployment, ...]:
        """Deployments that should have instances: the active one, then the others."""
        endpoint = self.endpoint
        if endpoint is None or endpoint.status in (EndpointStatus.DELETING, EndpointStatus.FAILED):
            return ()
        return endpoint.deployments

    def variants(self) -> list[tuple[Deployment, EndpointVariant]]:
        """The variants of all `deployments`, each with its deployment."""
        return [(it, variant) for it in self.deployments() for variant in it.variants]

    def hosts(self, generation: int, variant_name: str) -> Sequence[Instance]:
        """Instances of a deployment's variant that are not terminating, oldest first."""
        return self.instance_set.by_variant.get((generation, variant_name), ())

    def able(self, instances: Iterable[Instance], now: float) -> list[Instance]:
        """The instances that new copies may be placed on: reachable, not leaving, not cordoned."""
        staying = [it for it in self.staying(instances) if not it.leaving]
        return [it for it in staying if not is_lost(self.get_facts(it.id), now)]

    def is_able(self, instance_id: str, now: float) -> bool:
        """Whether new copies may be placed on an instance."""
        instance = self.instances.get(instance_id)
        if instance is None or instance.leaving or self._is_cordoned(instance):
            return False
        return not is_lost(self.get_facts(instance_id), now)

    def staying(self, instances: Iterable[Instance]) -> list[Instance]:
        """The instances that are not cordoned: neither draining, nor replaced for a restart."""
        return [it for it in instances if not self._is_cordoned(it)]

    def _is_cordoned(self, instance: Instance) -> bool:
        if instance.drain_since is not None:
            return True
        endpoint = self.endpoint
        if endpoint is None or not endpoint.restarts:
            return False
        restarts = (it for it in endpoint.restarts if it.is_under_way and it.with_instance)
        return any(it.instance_id == instance.id for it in restarts)

    def list_copies(self, component_name: str | None) -> Sequence[Copy]:
        """All copies of a component (None: of the model), oldest first."""
        return _oldest_first(self.copy_set.by_component.get(component_name))

    def list_copies_at(self, instance_id: str) -> Sequence[Copy]:
        """All copies recorded on an instance, oldest first."""
        return _oldest_first(self.copy_set.by_instance.get(instance_id))

    def list_variant_copies(
        self, generation: int, variant_name: str, component_name: str | None
    ) -> list[Copy]:
        """A component's (None: the model's) copies on `hosts` of a variant, none draining."""
        instances, found = self.instances, []
        for copy in self.list_copies(component_name):
            host = instances.get(copy.instance_id)
            if (
                host is not None
                and host.generation == generation
                and host.variant_name == variant_name
                and host.state is not InstanceState.TERMINATING
                and not copy.draining
            ):
                found.append(copy)
        return found

    def list_copies_on(self, hosts: Iterable[Instance], component_name: str | None) -> list[Copy]:
        """A component's (None: the model's) copies on `hosts` that are not draining."""
        mine = self.list_copies(component_name)
        if not mine:
            return []
        ids = {host.id for host in hosts}
        return [it for it in mine if it.instance_id in ids and not it.draining]

    def list_adapters(self, base_name: str) -> Sequence[InferenceComponent]:
        """The adapter components on a base component, by name."""
        family = self.families.get(base_name, {})
        return [it for it in family.values() if it.adapter is not None]

    def dirty_names(self) -> Collection[str | None]:
        """The names of the families that a plan must look at, in no order."""
        if self.dirty is not None:
            return self.dirty
        return self.families.keys() | self.copy_set.by_component.keys()

    def dirty_components(self) -> Iterable[InferenceComponent]:
        """The components of the families that a plan must look at, in no order."""
        if self.dirty is None:
            return self.components.values()
        families = [self.families.get(it, {}) for it in self.dirty if it is not None]
        return [component for family in families for component in family.values()]

    def dirty_copies(self) -> Iterable[Copy]:
        """The copies of the families that a plan must look at, in no order."""
        if self.dirty is None:
            return self.copies.values()
        by_component = self.copy_set.by_component
        return [copy for name in self.dirty for copy in by_component.get(name, {}).values()]

    @property
    def restarting(self) -> frozenset[str]:
        """Ids of the copies for which a replacement comes up now."""
        restarts = () if self.endpoint is None else self.endpoint.restarts
        return frozenset(it.copy_id for it in restarts if it.is_under_way)


def build_state(
    endpoint: Endpoint | None,
    components: Mapping[str, InferenceComponent] | None = None,
    instances: Mapping[str, Instance] | None = None,
    copies: Mapping[str, Copy] | None = None,
) -> EndpointState:
    """Build a state from records by name or id, in the order of their names."""
    return EndpointState(
        endpoint=endpoint,
        component_set=NO_COMPONENTS.change(components or {}),
        instance_set=InstanceSet(instances or {}),
        copy_set=NO_COPIES.change(copies or {}),
    )


def find_changed_families(before: EndpointState, after: EndpointState) -> set[str | None]:
    """The names of the families in which any component or copy is another object."""
    with_copies = changed_names(before.copy_set.by_component, after.copy_set.by_component)
    return {*changed_names(before.families, after.families), *with_copies}


def _only_changes(known: Mapping[str, V], changes: Mapping[str, V | None]) -> dict[str, V | None]:
    """Keep the changes that differ from the known values."""
    return {
        name: value
        for name, value in changes.items()
        if known.get(name) is not value and known.get(name) != value
    }


def _oldest_first(copies: Mapping[str, Copy] | None) -> Sequence[Copy]:
    if not copies:
        return ()
    if len(copies) == 1:
        return tuple(copies.values())
    return sorted(copies.values(), key=operator.attrgetter("created_at"))  # then by their ids


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


def drain_copy(copy: Copy, context: PlanContext, limit_s: float | None = None) -> Copy:
    """The copy draining: until its requests are done, or for at most `limit_s`.

    its state             result
    -------------------   ------------------------------------------------------------
    draining already      ends at the earlier of both limits, never later than before
    takes no requests     ends now
    takes requests        ends in `limit_s`, at the earliest in DRAIN_S: routes change first
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


def stop_copy(copy: Copy, now: float) -> Copy:
    """The copy with its drain ended."""
    if copy.drain_deadline_at is not None and copy.drain_deadline_at <= now:
        return copy
    return replace(copy, drain_deadline_at=now)
