"""The drills by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base.errors import HostelryError, TerminalError
from hostelry_lab.component_drills import (
    copy_oom,
    crash_at_start,
    crash_loop,
    rolling_update,
)
from hostelry_lab.context import DrillContext
from hostelry_lab.copy_drills import copy_hang, copy_kill
from hostelry_lab.disk_drill import disk_full
from hostelry_lab.isolation_drills import (
    tenant_disk,
    tenant_flood,
    tenant_forks,
    tenant_hang,
    tenant_memory,
)
from hostelry_lab.jobs.drill import jobs
from hostelry_lab.llm_drills import tenant_flood_adapter, tenant_poison, tenant_poison_adapter
from hostelry_lab.many_copies import many_copies
from hostelry_lab.outcome import DrillOutcome
from hostelry_lab.process_drills import (
    agent_hang,
    agent_kill,
    control_hang,
    control_kill,
    gateway_hang,
    gateway_kill,
    gateway_kill_all,
    objectstore_hang,
    objectstore_kill,
    supervisor_kill,
)
from hostelry_lab.rollout.drill import rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """A drill: its name, a description of the fault, and the function that runs it."""

    name: str
    does: str
    run: Callable[[DrillContext], DrillOutcome]

    def outcome(self, context: DrillContext) -> DrillOutcome:
        """The measurements. An unhealthy platform misses the target, with the error as cause."""
        try:
            return self.run(context)
        except (HostelryError, ClientError, BotoCoreError) as error:
            return DrillOutcome(drill=self.name, target=self.does, missed=(str(error),))


DRILLS = (
    Drill(name="copy-kill", does="kill -9 of a model server", run=copy_kill),
    Drill(name="copy-hang", does="SIGSTOP of a model server", run=copy_hang),
    Drill(name="copy-oom", does="a copy takes more memory than it may", run=copy_oom),
    Drill(name="crash-at-start", does="a component's server exits at once", run=crash_at_start),
    Drill(name="crash-loop", does="a component's server crashes repeatedly", run=crash_loop),
    Drill(name="rolling-update", does="a new version, then a broken one", run=rolling_update),
    Drill(
        name="many-copies",
        does="many components at once, and kill -9 of their agent meanwhile",
        run=many_copies,
    ),
    Drill(
        name="tenant-poison", does="a tenant sends requests made to end a server", run=tenant_poison
    ),
    Drill(
        name="tenant-poison-adapter",
        does="a tenant adds an adapter made to freeze its base",
        run=tenant_poison_adapter,
    ),
    Drill(name="tenant-flood", does="a tenant floods its own component", run=tenant_flood),
    Drill(
        name="tenant-flood-adapter",
        does="a tenant floods its adapter of a shared LLM",
        run=tenant_flood_adapter,
    ),
    Drill(name="tenant-memory", does="a tenant's model eats memory", run=tenant_memory),
    Drill(name="tenant-forks", does="a tenant's model starts processes", run=tenant_forks),
    Drill(name="tenant-disk", does="a tenant's model fills the disk", run=tenant_disk),
    Drill(name="tenant-hang", does="a tenant's model hangs", run=tenant_hang),
    Drill(name="agent-kill", does="kill -9 of an agent", run=agent_kill),
    Drill(name="agent-hang", does="SIGSTOP of an agent", run=agent_hang),
    Drill(name="control-kill", does="kill -9 of control", run=control_kill),
    Drill(name="control-hang", does="SIGSTOP of control", run=control_hang),
    Drill(name="gateway-kill", does="kill -9 of a gateway worker", run=gateway_kill),
    Drill(name="gateway-kill-all", does="kill -9 of every gateway worker", run=gateway_kill_all),
    Drill(name="gateway-hang", does="SIGSTOP of a gateway worker", run=gateway_hang),
    Drill(name="objectstore-kill", does="kill -9 of the object store", run=objectstore_kill),
    Drill(name="objectstore-hang", does="SIGSTOP of the object store", run=objectstore_hang),
    Drill(name="supervisor-kill", does="kill -9 of up", run=supervisor_kill),
    Drill(name="disk-full", does="no byte left on the home's small filesystem", run=disk_full),
    Drill(name="rollout", does="kills in each step of an endpoint's updates", run=rollout),
    Drill(name="jobs", does="kills of every process while requests and a batch run", run=jobs),
)
BY_NAME = {drill.name: drill for drill in DRILLS}
EVERYTHING = "everything"


def choose_drills(name: str) -> Sequence[Drill]:
    """The drills of that name. Raises TerminalError for an unknown name."""
    if name == EVERYTHING:
        return DRILLS
    if name not in BY_NAME:
        raise TerminalError(f"there is no drill {name}. There are: {', '.join(BY_NAME)}, cluster")
    return [BY_NAME[name]]
