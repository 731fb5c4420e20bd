"""Copies of models on instances."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from hostelry.domain.endpoint import EndpointVariant
from hostelry.domain.isolation import HeldIsolation
from hostelry.domain.model import ArtifactSource, Container
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Requirements, Shape


class InstanceState(Enum):
    """The lifecycle state of an instance."""

    LAUNCHING = "launching"
    RUNNING = "running"
    TERMINATING = "terminating"


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One ML instance of a variant. `agent_address` is set once its agent answers.

    `zone` is the declared availability zone. `idle_since` is when the last copy left the instance.
    A `leaving` instance is surplus, and ends once its copies are replaced on other instances.
    `drain_since` is when an operator requested the same, with another instance in its place.
    """

    id: str
    scope: Scope
    endpoint_name: str
    variant_name: str
    generation: int
    instance_type: str
    shape: Shape
    state: InstanceState
    created_at: float
    agent_address: str | None = None
    zone: str = ""
    idle_since: float | None = None
    leaving: bool = False
    drain_since: float | None = None


class AdapterPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter that a copy must have registered.

    `id` is its name on the model server: the component's name and generation, so that an adapter
    never has the id of a predecessor. `alias` is the component's name. The time limits come from
    AdapterSpec.
    """

    id: str
    alias: str
    source: ArtifactSource
    download_timeout_s: float | None = None
    startup_timeout_s: float | None = None


class CopyPhase(Enum):
    """The phase of a copy as its agent reports it, in this order."""

    PENDING = "pending"
    DOWNLOADING = "downloading"
    STARTING = "starting"  # the process runs, but /ping does not answer 200 yet
    PROVING = "proving"  # /ping answers, and a real invocation is under way
    READY = "ready"  # a real invocation produced an answer
    UNHEALTHY = "unhealthy"  # was ready, and fails its health checks now
    FAILED = "failed"  # the agent has given up, because of the status's `reason`
    STOPPING = "stopping"


class AdapterPhase(Enum):
    """The phase of an adapter on a copy."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"


class AdapterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter on a copy, as its agent last reported it."""

    id: str
    phase: AdapterPhase
    reason: str | None = None


class CopySpec(msgspec.Struct, frozen=True, kw_only=True):
    """The specification of a copy for its agent. The process restarts only if it changes."""

    id: str
    owner: str  # "component/NAME" or "variant/NAME", for logs and errors
    container: Container
    requirements: Requirements | None
    download_timeout_s: float
    startup_timeout_s: float
    adapters: tuple[AdapterPlacement, ...] = ()
    device_ids: tuple[int, ...] = ()  # accelerators of the instance, used by this copy alone
    draining: bool = False  # has no routes, and the agent reports its open connections


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """The utilization of one accelerator and of its memory, in per cent."""

    device: str
    busy_percent: float
    memory_percent: float


class LastEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The last end of a copy's model server, and the last lines of its log, of bounded size.

    `at` is in seconds since the epoch.
    """

    at: float
    cause: str
    log_tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStatus:
    """A copy as its agent last reported it.

    `address` is ``http://host:port`` once the process listens. `key` is the secret that requests
    must carry, or None. `log_tail` has the model server's last lines in the phases FAILED and
    UNHEALTHY. `peak_memory_bytes` is the maximum since the start. `memory_limit` says how the limit
    is enforced: "cgroup", "watched", "container", or empty if it is not. `start_kind` is "cold" or
    "warm", `start_s` the time from start to READY. `open_connections` counts the connections to a
    draining copy (None: unknown). `left_out` names the variables of the container's Environment
    that the server does not get. At `models_address` gateways lease the models of a multi-model
    copy. `last_end` is reported for a while (`fleet/agent/lifecycle.py`), even if the copy is READY
    again. `isolation` separates its processes from others, None before they are looked at.
    `cpu_s` is the CPU time of its processes at `cpu_at` of the machine's monotonic clock (0:
    not measured). `gpus` has the utilization of its accelerators. These three change all the time,
    so comparisons of statuses ignore them.
    """

    id: str
    phase: CopyPhase
    reason: str | None = None
    address: str | None = None
    adapters: tuple[AdapterStatus, ...] = ()
    log_tail: str = ""
    restarts: int = 0
    memory_bytes: int = 0
    pid: int | None = None
    peak_memory_bytes: int = 0
    memory_limit: str = ""
    start_kind: str = ""
    start_s: float | None = None
    key: str | None = field(default=None, repr=False)
    open_connections: int | None = None
    left_out: tuple[str, ...] = ()
    models_address: str | None = None
    last_end: LastEnd | None = None
    isolation: HeldIsolation | None = None
    cpu_s: float = field(default=0.0, compare=False)
    cpu_at: float = field(default=0.0, compare=False)
    gpus: tuple[GpuUse, ...] = field(default=(), compare=False)
    loaded_models: int | None = field(default=None, compare=False)


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy's record: its place, its specification, and its last observed status.

    `ready_at` is when the copy began to serve, `unready_since` when it stopped serving after that,
    `failed_at` when it was first seen FAILED. A draining copy is no longer desired. It first leaves
    the routes, and stops when its requests are done or `drain_deadline_at` passes.
    `drain_started_at` is when a copy with requests began to drain. Once this copy is ready, it
    replaces the copy with the id `replaces` on another instance. `instance_made_at` is when its
    instance was recorded, which is part of the names of log streams.
    """

    scope: Scope
    endpoint_name: str
    variant_name: str
    component_name: str | None
    generation: int
    instance_id: str
    spec: CopySpec
    status: CopyStatus
    created_at: float
    ready_at: float | None = None
    unready_since: float | None = None
    failed_at: float | None = None
    drain_deadline_at: float | None = None
    drain_started_at: float | None = None
    proven_adapters: frozenset[str] = msgspec.field(default_factory=frozenset)
    replaces: str | None = None
    instance_made_at: float = 0.0

    @property
    def draining(self) -> bool:
        """Whether the copy is draining, or stopped."""
        return self.drain_deadline_at is not None

    @property
    def has_served(self) -> bool:
        """True if the copy has ever served."""
        return self.ready_at is not None or self.unready_since is not None

    @property
    def serves(self) -> bool:
        """Whether the copy is READY and not draining."""
        return self.status.phase is CopyPhase.READY and not self.draining


def containers_on(variant: EndpointVariant, instance: Instance) -> Sequence[Container]:
    """The containers on an instance of the variant. Empty if the variant takes components."""
    model = variant.model_on(instance.instance_type)
    return () if model is None else model.containers


def complete_sets(
    variant: EndpointVariant, instances: Iterable[Instance], ready: Iterable[Copy]
) -> Mapping[str, tuple[Copy, ...]]:
    """The copies in `ready` by instance id, in the order of the model's containers.

    Instances without a ready copy of each container are left out.
    """
    by_place = {(it.instance_id, it.spec.container.hostname): it for it in ready}
    found = {}
    for instance in instances:
        names = [it.hostname for it in containers_on(variant, instance)]
        copies = [by_place[instance.id, it] for it in names if (instance.id, it) in by_place]
        if names and len(copies) == len(names):
            found[instance.id] = tuple(copies)
    return found


def num_containers(variant: EndpointVariant) -> int:
    """The number of containers of the variant's model. With pools it is the largest number."""
    return max((len(it.containers) for it in variant.models), default=1)
