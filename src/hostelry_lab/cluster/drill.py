"""The drill: a cluster is started, one fault follows another under traffic, all is counted."""

import contextlib
import importlib.util
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import FrameType

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import HostelryError, TerminalError
from hostelry_lab.cluster.cluster_ledger import (
    ClusterLedger,
    LeaderSight,
    ScenarioFacts,
    ScenarioReport,
    StoreFindings,
    add_findings,
    findings,
    not_run,
    report,
)
from hostelry_lab.cluster.cluster_store import ClusterStore
from hostelry_lab.cluster.cluster_traffic import ClusterTraffic
from hostelry_lab.cluster.node_death import play_node_death
from hostelry_lab.cluster.ray_nodes import ray_missing
from hostelry_lab.cluster.scenarios import ClusterScenario, ClusterScene
from hostelry_lab.cluster.small_cluster import FIRST, GATEWAYS, SmallCluster, small_cluster
from hostelry_lab.fixture import DrillFixture
from hostelry_lab.observer import wait_for
from hostelry_lab.outcome import DrillOutcome

NAME = "cluster"
DOES = "faults between hosts: leader, PostgreSQL, partitions, gateways, Ray nodes; in own clusters"
NEEDS = (
    "a cluster is started for it: PostgreSQL's programs (or --store URL of an empty database), "
    "hostelry[postgresql]; root for the partitions of the gateway host (network namespaces); "
    "hostelry[ray] for the death of a node"
)
TARGET = (
    "calls fail only at a host that is cut off or dead; nothing acknowledged is lost; one leader"
)
KIND = "endpoint_config"
SETTLED_S = 60.0
QUIET_S = 1.2  # longer than the lease's renewal interval
COPIES = 2


def run_cluster(
    scenarios: Sequence[ClusterScenario],
    num_threads: int,
    store: str | None,
    say: Callable[[str], None],
) -> DrillOutcome:
    """Start a cluster, run the scenarios on it, and judge them. The cluster is removed afterwards.

    Raises TerminalError if a cluster cannot be started here.
    """
    between_hosts = [it for it in scenarios if it.fault is not None]
    apart = [it for it in scenarios if it.fault is None]
    if store is not None and not between_hosts:
        raise TerminalError(f"--store: {apart[0].name} keeps its records in a home of its own")
    rows: list[ScenarioReport] = []
    found, between = findings((), (), ()), "no host of gateways"
    if between_hosts and importlib.util.find_spec("psycopg") is None:
        raise TerminalError(
            "the drill needs PostgreSQL's driver: pip install 'hostelry[postgresql]'"
        )
    with ended_by_sigterm():
        if between_hosts:
            rows, found, between = play_between_hosts(between_hosts, num_threads, store, say)
        for scenario in apart:
            row, kept = play_apart(scenario, num_threads, say)
            rows, found = [*rows, row], add_findings(found, kept)
    ledger = ClusterLedger(
        scenarios=tuple(rows), store=found, threads_each=num_threads, between=between
    )
    return DrillOutcome(
        drill=NAME,
        target=TARGET,
        missed=tuple(ledger.broken_promises()),
        cluster=ledger,
        not_run=ledger.not_run,
        left_out=ledger.left_out,
    )


def play_between_hosts(
    scenarios: Sequence[ClusterScenario],
    num_threads: int,
    store: str | None,
    say: Callable[[str], None],
) -> tuple[list[ScenarioReport], StoreFindings, str]:
    """Run the scenarios on a small cluster. Returns rows, findings, and how hosts are connected."""
    with small_cluster(store, say) as cluster:
        fixture = DrillFixture(cluster.observer(FIRST))
        name = deploy_component(fixture)
        database = ClusterStore(cluster.store)
        platforms = {it: cluster.observer(it) for it in (FIRST, GATEWAYS)}
        traffic = ClusterTraffic(platforms, fixture.load_target(name))
        scene = ClusterScene(cluster=cluster, store=database, fixture=fixture)
        with database.noted():
            with database.watched(), traffic.flowing(num_threads):
                rows = [play(scene, traffic, it, say) for it in scenarios]
            found = findings(traffic.writes(), database.kept(KIND), database.accepted())
        return rows, found, cluster.without_namespace or "network namespace and forwarders"


def play_apart(
    scenario: ClusterScenario, num_threads: int, say: Callable[[str], None]
) -> tuple[ScenarioReport, StoreFindings]:
    """Run the scenario on a separate cluster, if Ray is installed."""
    nothing = findings((), (), ())
    why_not = ray_missing()
    if why_not is not None:
        say(f"{scenario.name}: not run: {why_not}")
        return not_run(scenario.name, scenario.means, why_not), nothing
    try:
        return play_node_death(scenario, num_threads, say)
    except HostelryError as error:
        row = not_run(scenario.name, scenario.means, str(error))
        return replace(row, missed=(str(error),)), nothing


def deploy_component(fixture: DrillFixture) -> str:
    """Create the component that traffic invokes. Raises TerminalError with its failure reason."""
    try:
        fixture.make()
        name = fixture.add(copies=COPIES)
        fixture.wait_ready(name, COPIES)
    except (ClientError, BotoCoreError) as error:
        raise TerminalError(f"the drill's own endpoint {fixture.endpoint}: {error}") from error
    return name


def play(
    scene: ClusterScene,
    traffic: ClusterTraffic,
    scenario: ClusterScenario,
    say: Callable[[str], None],
) -> ScenarioReport:
    """Run one scenario, beginning and ending with a healthy cluster."""
    why_not = scenario.needs(scene.cluster)
    if why_not is not None:
        say(f"{scenario.name}: not run: {why_not}")
        return not_run(scenario.name, scenario.means, why_not)
    if not wait_until_settled(scene.cluster, traffic):
        why_not = f"before it the cluster did not get well within {SETTLED_S:g} s"
        return replace(not_run(scenario.name, scenario.means, why_not), missed=(why_not,))
    say(f"{scenario.name}: {scenario.means}")
    assert scenario.fault is not None
    before, leader, trouble = scene.store.sight(), scene.leader(), None
    old_pid = scene.cluster.control_pid(leader)
    fault_at = monotonic_s()
    try:
        scenario.fault(scene)
    except (HostelryError, ClientError, BotoCoreError) as error:
        trouble = str(error)
    healed_at = monotonic_s()
    fenced_at = None
    if scenario.limits.fenced_s is not None:
        fenced_at = wait_for(
            lambda: monotonic_s() if scene.cluster.control_pid(leader) != old_pid else None,
            scenario.limits.fenced_s,
        )
    if not wait_until_settled(scene.cluster, traffic):
        trouble = trouble or f"the cluster did not get well within {SETTLED_S:g} s of the fault"
    return report(
        ScenarioFacts(
            name=scenario.name,
            means=scenario.means,
            fault_at=fault_at,
            healed_at=healed_at,
            calls=traffic.calls(),
            writes=traffic.writes(),
            before=before,
            sights=since(scene.store.sights, before),
            fenced_at=fenced_at,
            trouble=trouble,
        ),
        scenario.limits,
    )


def wait_until_settled(cluster: SmallCluster, traffic: ClusterTraffic) -> bool:
    """Wait until both hosts answer calls and writes, and both controls are known."""
    threading.Event().wait(QUIET_S)
    instant = monotonic_s()

    def is_well() -> bool | None:
        if not traffic.is_well_since(instant):
            return None
        return True if cluster.knows_both() else None

    return wait_for(is_well, SETTLED_S) is not None


def since(sights: Sequence[LeaderSight], before: LeaderSight) -> list[LeaderSight]:
    """The changes of the lease after the sight `before`."""
    return [it for it in tuple(sights) if it.epoch > before.epoch]


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Within the block, SIGTERM acts like Ctrl-C: all that the drill started is ended."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
