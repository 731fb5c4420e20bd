"""The scenarios. Each fault is a function that returns at the fault's end, and has its promises."""

import io
import random
import tarfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from signal import SIGKILL

from hostelry.base.errors import TerminalError
from hostelry.fleet.host.processes import send
from hostelry_lab.cluster.cluster_ledger import ScenarioLimits
from hostelry_lab.cluster.cluster_store import ClusterStore
from hostelry_lab.cluster.small_cluster import FIRST, GATEWAYS, SECOND, SmallCluster
from hostelry_lab.copy_drills import NO_MODEL
from hostelry_lab.fixture import DrillFixture, new_name
from hostelry_lab.observer import stop_processes

FROZEN_S = 15.0
CUT_S = 12.0
DELAY_S = 0.5
AWAY_S = 3.0  # between the end of a host and its restart
CONTROL_NAME = b"\x00\x07control"  # the server name in a TLS hello, with its length before it
FORWARDER = "a forwarder of the drill's holds every byte"
BETWEEN = f"network namespace; {FORWARDER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterScene:
    """The parts of the platform on which a fault acts."""

    cluster: SmallCluster
    store: ClusterStore
    fixture: DrillFixture

    def leader(self) -> str:
        """The host whose control leads."""
        holder = self.store.sight().holder
        return SECOND if holder == self.cluster.second_address else FIRST


Fault = Callable[[ClusterScene], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterScenario:
    """A fault, the means by which it is made, its limits, and why it cannot run here (`needs`).

    `fault` None: the fault of `node_death.py`, on a separate cluster.
    """

    name: str
    means: str
    limits: ScenarioLimits
    fault: Fault | None = None
    needs: Callable[[SmallCluster], str | None] = lambda _: None


def killed_leader(scene: ClusterScene) -> None:
    """Kill -9 the control that leads. Its supervisor restarts it."""
    send([scene.cluster.process(scene.leader(), "control")], SIGKILL)


def frozen_leader(scene: ClusterScene) -> None:
    """SIGSTOP the leader and its supervisor, which would end a control that hangs."""
    host = scene.leader()
    victims = [scene.cluster.process(host, it) for it in ("up", "control")]
    with stop_processes(victims):
        wait(FROZEN_S)


def restarted_store(scene: ClusterScene) -> None:
    """Stop PostgreSQL as its operator does, and start it again."""
    postgres = scene.cluster.postgres
    assert postgres is not None
    postgres.stop()
    postgres.start()


def killed_store(scene: ClusterScene) -> None:
    """Kill -9 every process of PostgreSQL, which recovers."""
    postgres = scene.cluster.postgres
    assert postgres is not None
    postgres.kill()
    postgres.start()


def store_cut_off(scene: ClusterScene) -> None:
    """Cut the leader's host off the database. The other host keeps it."""
    between = scene.cluster.between
    link = between.second_store if scene.leader() == SECOND else between.first_store
    with scene.cluster.links.cut(link):
        wait(CUT_S)


def control_cut_off(scene: ClusterScene) -> None:
    """Cut the host of gateways off every control. It keeps the copies."""
    links, between = scene.cluster.links, scene.cluster.between
    assert between.proxy is not None
    assert between.second is not None
    with links.cut(between.proxy, containing=CONTROL_NAME), links.cut(between.second):
        wait(CUT_S)


def proxy_cut_off(scene: ClusterScene) -> None:
    """Cut the node proxies of the first host and of the host of gateways off each other's host."""
    between = scene.cluster.between
    assert between.proxy is not None
    assert between.back is not None
    with scene.cluster.links.cut(between.proxy, between.back):
        wait(CUT_S)


def slow_objects(scene: ClusterScene) -> None:
    """Delay each piece of the object store's answers while a component with an artifact starts."""
    cluster, fixture = scene.cluster, scene.fixture
    bucket = new_name()
    fixture.s3.create_bucket(Bucket=bucket)
    fixture.s3.put_object(Bucket=bucket, Key="model.tar.gz", Body=archive())
    with cluster.links.slowed(cluster.between.objects, DELAY_S):
        name = fixture.add(copies=1, artifact_uri=f"s3://{bucket}/model.tar.gz")
        fixture.wait_ready(name, 1)


def drained_gateways(scene: ClusterScene) -> None:
    """`hostelry down` on the host of gateways, which drains. Then start it again."""
    scene.cluster.stop_gateways()
    wait(AWAY_S)
    scene.cluster.start_gateways()


def killed_gateways(scene: ClusterScene) -> None:
    """Kill -9 every process of the host of gateways. Then start it again."""
    send(scene.cluster.gateway_processes(), SIGKILL)
    wait(AWAY_S)
    scene.cluster.start_gateways()


def archive() -> bytes:
    """A model archive that is large enough for several pieces."""
    buffer, content = io.BytesIO(), random.randbytes(512 * 1024)
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        member = tarfile.TarInfo("weights.bin")
        member.size = len(content)
        made.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def wait(for_s: float) -> None:
    """Let a fault last."""
    threading.Event().wait(for_s)


def own_database(cluster: SmallCluster) -> str | None:
    """Why PostgreSQL cannot be restarted, or None if the drill started it."""
    return None if cluster.postgres is not None else "the database of --store is not the drill's"


def namespaces(cluster: SmallCluster) -> str | None:
    """Why the host of gateways cannot be cut off, or None if it has a separate network."""
    return cluster.without_namespace


MODELLED = NO_MODEL | {"ModelStreamError"}
AT_GATEWAYS = frozenset({GATEWAYS})
SCENARIOS = (
    ClusterScenario(
        name="leader-kill",
        means="kill -9 of the control that leads",
        fault=killed_leader,
        limits=ScenarioLimits(leader_s=3.0, write_s=10.0),
    ),
    ClusterScenario(
        name="leader-freeze",
        means=f"SIGSTOP of the leader and its supervisor for {FROZEN_S:g} s, then SIGCONT",
        fault=frozen_leader,
        limits=ScenarioLimits(leader_s=10.0, write_s=15.0, fenced_s=20.0),
    ),
    ClusterScenario(
        name="store-restart",
        means="PostgreSQL stopped and started",
        fault=restarted_store,
        limits=ScenarioLimits(),
        needs=own_database,
    ),
    ClusterScenario(
        name="store-kill",
        means="kill -9 of PostgreSQL, then started",
        fault=killed_store,
        limits=ScenarioLimits(),
        needs=own_database,
    ),
    ClusterScenario(
        name="store-partition",
        means=f"leader and PostgreSQL for {CUT_S:g} s; {FORWARDER}",
        fault=store_cut_off,
        limits=ScenarioLimits(leader_s=10.0, write_s=12.0, fenced_s=20.0),
    ),
    ClusterScenario(
        name="control-partition",
        means=f"gateway host and both controls for {CUT_S:g} s; {BETWEEN}",
        fault=control_cut_off,
        limits=ScenarioLimits(no_writes=AT_GATEWAYS),
        needs=namespaces,
    ),
    ClusterScenario(
        name="proxy-partition",
        means=f"gateway host and the node proxy for {CUT_S:g} s; {BETWEEN}",
        fault=proxy_cut_off,
        limits=ScenarioLimits(cut_off=AT_GATEWAYS, no_calls=AT_GATEWAYS),
        needs=namespaces,
    ),
    ClusterScenario(
        name="objects-slow",
        means=f"each piece of the object store's answers {DELAY_S:g} s late, by a forwarder",
        fault=slow_objects,
        limits=ScenarioLimits(),
    ),
    ClusterScenario(
        name="gateway-drain",
        means="`hostelry down` of the gateway host, which drains; started again",
        fault=drained_gateways,
        limits=ScenarioLimits(),
    ),
    ClusterScenario(
        name="gateway-kill",
        means="kill -9 of every process of the gateway host; started again",
        fault=killed_gateways,
        limits=ScenarioLimits(cut_off=AT_GATEWAYS),
    ),
    ClusterScenario(
        name="node-kill",
        means="kill -9 of every process of one of three Ray nodes; `--fleet ray`, a cluster apart",
        limits=ScenarioLimits(
            cut_off=frozenset({FIRST}), write_s=10.0, errors=MODELLED, copies_s=30.0
        ),
    ),
)


def chosen_scenarios(names: str | None) -> list[ClusterScenario]:
    """The scenarios of a list with commas, in the drill's order, or all without a list.

    Raises TerminalError for an unknown name.
    """
    known = {it.name: it for it in SCENARIOS}
    wanted = set(known) if names is None else {it.strip() for it in names.split(",")}
    if unknown := sorted(wanted - set(known)):
        raise TerminalError(
            f"--scenarios: there is no {unknown[0]!r}; there are {', '.join(known)}"
        )
    return [it for it in SCENARIOS if it.name in wanted]
