"""One endpoint and everything on it, as plain values: what every plan starts from and ends in.

A plan is a function from a World to the World that should be recorded next; `reconciler` writes
the difference. Only here is said which copies belong to what.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, CopyPhase, Instance, InstanceState
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.fleet.protocol import Observation

DRAIN_S = 2.0
LIVE_COMPONENT = frozenset(
    {ComponentStatus.CREATING, ComponentStatus.UPDATING, ComponentStatus.IN_SERVICE}
)


@dataclass(frozen=True, slots=True)
class GroupKey:
    """An endpoint's identity; everything on an endpoint is planned together."""

    scope: Scope
    endpoint_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFacts:
    """What is known of an instance's agent since this process started.

    `applied` names the copies that the agent had been told to run before `observation` was made.
    `attempts` counts failed launches in a row, `problem` tells the last one; `terminal` means that
    trying again cannot help. `gone` is set once the instance is terminated.
    """

    address: str | None = None
    observation: Observation | None = None
    applied: frozenset[str] = frozenset()
    problem: str | None = None
    terminal: bool = False
    attempts: int = 0
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Givens:
    """What a plan may not find out by itself: the time, fresh ids, and declared shapes."""

    now: float
    new_instance_id: Callable[[], str]
    new_copy_id: Callable[[], str]
    shape_of: Callable[[str], Shape]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """An endpoint (None once deleted), its components by name, instances and copies by id."""

    endpoint: Endpoint | None
    components: Mapping[str, InferenceComponent] = field(default_factory=dict)
    instances: Mapping[str, Instance] = field(default_factory=dict)
    copies: Mapping[str, Copy] = field(default_factory=dict)
    facts: Mapping[str, InstanceFacts] = field(default_factory=dict)

    def with_copies(self, copies: Sequence[Copy]) -> "World":
        """This world with `copies` added or replaced."""
        if not copies:
            return self
        return replace(self, copies={**self.copies, **{it.spec.id: it for it in copies}})

    def with_instances(self, instances: Sequence[Instance]) -> "World":
        """This world with `instances` added or replaced."""
        if not instances:
            return self
        return replace(self, instances={**self.instances, **{it.id: it for it in instances}})

    def with_component(self, component: InferenceComponent) -> "World":
        """This world with `component` replaced; the same world where nothing of it changed."""
        if self.components.get(component.name) == component:
            return self
        return replace(self, components={**self.components, component.name: component})

    def facts_of(self, instance_id: str) -> InstanceFacts:
        """What is known of an instance; nothing yet is known of a new one."""
        return self.facts.get(instance_id, InstanceFacts())

    def deployments(self) -> tuple[Deployment, ...]:
        """What should have instances now: the active deployment, then the pending one."""
        endpoint = self.endpoint
        if endpoint is None or endpoint.status in (EndpointStatus.DELETING, EndpointStatus.FAILED):
            return ()
        return (
            (endpoint.active,) if endpoint.pending is None else (endpoint.active, endpoint.pending)
        )

    def hosts(self, generation: int, variant_name: str) -> list[Instance]:
        """Instances of a deployment's variant that are not on their way out, oldest first."""
        mine = [
            it
            for it in self.instances.values()
            if it.generation == generation
            and it.variant_name == variant_name
            and it.state is not InstanceState.TERMINATING
        ]
        return sorted(mine, key=lambda it: (it.created_at, it.id))

    def copies_on(self, hosts: Sequence[Instance], component_name: str | None) -> list[Copy]:
        """A component's (None: the model's) copies on `hosts` that are not on their way out."""
        ids = {host.id for host in hosts}
        mine = [
            it
            for it in self.copies.values()
            if it.component_name == component_name and it.instance_id in ids and not it.draining
        ]
        return sorted(mine, key=lambda it: (it.created_at, it.spec.id))

    def adapters_of(self, base_name: str) -> list[InferenceComponent]:
        """The adapter components on a base component, by name."""
        mine = [
            it
            for it in self.components.values()
            if it.adapter is not None and it.adapter.base_name == base_name
        ]
        return sorted(mine, key=lambda it: it.name)


def is_routable(copy: Copy) -> bool:
    """Whether requests may be sent to a copy: it proved ready with its adapters settled."""
    return (
        copy.status.phase is CopyPhase.READY
        and copy.status.address is not None
        and copy.ready_at is not None
        and not copy.draining
    )


def drained(copy: Copy, now: float) -> Copy:
    """The copy on its way out; one that takes requests stays until the routes have spread."""
    if copy.draining:
        return copy
    return replace(copy, drain_deadline_at=now + DRAIN_S if is_routable(copy) else now)


def stopped(copy: Copy, now: float) -> Copy:
    """The copy on its way out at once."""
    if copy.drain_deadline_at is not None and copy.drain_deadline_at <= now:
        return copy
    return replace(copy, drain_deadline_at=now)
