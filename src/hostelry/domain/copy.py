"""Instances and copies: the records between what is wanted and what the agents run."""

from dataclasses import dataclass, field
from enum import Enum

from hostelry.domain.model import ArtifactSource, Container
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Requirements, Shape


class InstanceState(Enum):
    """Where an instance is in its life."""

    LAUNCHING = "launching"
    RUNNING = "running"
    TERMINATING = "terminating"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One ML instance of a variant; `agent_address` is set once its agent answers.

    `zone` is its declared availability zone; `idle_since` when the last copy left it. One that is
    `leaving` is one too many: it ends once others serve in the place of the copies on it.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPlacement:
    """An adapter that a copy must have registered.

    `id` is the name the model server knows it by: the component's name and its generation, so that
    a replaced adapter never shares an id with its predecessor. `alias` is the component's name.
    """

    id: str
    alias: str
    source: ArtifactSource


class CopyPhase(Enum):
    """How far a copy has come; a phase is reported by the agent, in this order."""

    PENDING = "pending"
    DOWNLOADING = "downloading"
    STARTING = "starting"  # the process runs; /ping does not answer 200 yet
    PROVING = "proving"  # /ping answers; a real invocation is under way
    READY = "ready"  # a real invocation produced an answer
    UNHEALTHY = "unhealthy"  # was ready; now fails its health checks
    FAILED = "failed"  # gave up; `reason` says why
    STOPPING = "stopping"


class AdapterPhase(Enum):
    """How far an adapter on a copy has come."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterStatus:
    """An adapter on a copy, as its agent saw it last."""

    id: str
    phase: AdapterPhase
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySpec:
    """What an agent must run; equal specs mean the same process may go on."""

    id: str
    owner: str  # "component/NAME" or "variant/NAME"; names the copy in logs and errors
    container: Container
    requirements: Requirements | None
    download_timeout_s: float
    startup_timeout_s: float
    adapters: tuple[AdapterPlacement, ...] = ()
    device_ids: tuple[int, ...] = ()  # the accelerators of the instance that are this copy's alone
    draining: bool = False  # it has left the routes: its agent reports the connections still open


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """How busy one accelerator is, and how full its memory; in per cent."""

    device: str
    busy_percent: float
    memory_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LastEnd:
    """How a copy's model server ended last, and the last lines of its log then.

    `at` is in seconds since the epoch. The log's end is of bounded size.
    """

    at: float
    cause: str
    log_tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStatus:
    """A copy as its agent saw it last.

    `address` is ``http://host:port`` once the process listens, and `key` what it asks to be shown
    with each request; None: it asks for nothing. `log_tail` holds the model server's
    last lines when the phase is FAILED or UNHEALTHY. `peak_memory_bytes` is the most it was seen to
    hold since it started, `memory_limit` how its limit is kept ("cgroup", "watched", "container";
    empty: not at all), `start_kind` and `start_s` how its process was started ("cold", "warm") and
    how long that took until READY. `open_connections` is how many others hold to a copy that is
    draining; None while that is not known. `left_out` names the variables of the container's
    Environment that its server does not get. `last_end` is told for a while
    (`fleet/agent/lifecycle.py`), also once the copy is READY again. `cpu_s` is the CPU time of its
    processes, at `cpu_at` of its machine's clock that never goes back (0: not measured), `gpus`
    the use of the accelerators it sees; these move always, so they make no status another one.
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
    last_end: LastEnd | None = None
    cpu_s: float = field(default=0.0, compare=False)
    cpu_at: float = field(default=0.0, compare=False)
    gpus: tuple[GpuUse, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy's record: where it is placed, what it runs, and what was last observed of it.

    `ready_at` is since when it serves, `unready_since` since when one that had served does not.
    `draining` is set once nothing wants it any more: it leaves the routes first and is stopped
    when its requests are done or `drain_deadline_at` passes; `drain_started_at` is when one that
    takes requests began to drain. `replaces` is the id of the copy, on
    another instance, whose place it takes once it is ready.
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
    drain_deadline_at: float | None = None
    drain_started_at: float | None = None
    proven_adapters: frozenset[str] = field(default_factory=frozenset)
    replaces: str | None = None

    @property
    def draining(self) -> bool:
        """Whether the copy is on its way out."""
        return self.drain_deadline_at is not None

    @property
    def serves(self) -> bool:
        """Whether the copy is proven and stays."""
        return self.status.phase is CopyPhase.READY and not self.draining
