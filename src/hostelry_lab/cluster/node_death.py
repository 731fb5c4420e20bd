"""The death of a Ray node, on a separate small cluster: `up --fleet ray` on three nodes.

Each node has room for one instance. The component has a copy on each of two nodes, and the third is
spare. A node other than the head, on which the platform itself runs, loses all its processes.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from botocore.exceptions import BotoCoreError, ClientError, ResponseStreamingError
from urllib3.exceptions import HTTPError

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_ports
from hostelry.home.home import Home, load_config, load_credentials
from hostelry_lab.call import LoadCall
from hostelry_lab.cluster.cluster_ledger import (
    NO_LEASE,
    ScenarioFacts,
    ScenarioReport,
    StoreFindings,
    findings,
    in_progress,
    report,
)
from hostelry_lab.cluster.cluster_traffic import ClusterTraffic
from hostelry_lab.cluster.forwarding import LOOPBACK
from hostelry_lab.cluster.ray_nodes import RayNodes
from hostelry_lab.cluster.scenarios import ClusterScenario
from hostelry_lab.cluster.small_cluster import CLI, FIRST, run_command
from hostelry_lab.fixture import INSTANCE_TYPE, PREFIX, DrillFixture
from hostelry_lab.load import outcome_of
from hostelry_lab.observer import PlatformObserver, wait_for
from hostelry_lab.threads import running_threads

NODES, COPIES = 3, 2
STREAMS, CHUNKS, CHUNK_WAIT_S = 6, 100, 0.15
STREAM_BYTES = sum(len(f"{it}\n") for it in range(CHUNKS))
BEGUN_S = CHUNKS * CHUNK_WAIT_S
WELL_S = 90.0
WATCHED_S = 3.0  # after the instant from which no call may fail
END_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPlatform:
    """The platform on the nodes."""

    nodes: RayNodes
    observer: PlatformObserver


def play_node_death(
    scenario: ClusterScenario, num_threads: int, say: Callable[[str], None]
) -> tuple[ScenarioReport, StoreFindings]:
    """Start a cluster, kill a node under traffic, and judge. The cluster is removed afterwards.

    Raises TerminalError if the cluster cannot be started.
    """
    with ray_platform(say) as platform:
        fixture = DrillFixture(platform.observer)
        try:
            fixture.make(instances=COPIES)
            name = fixture.add(copies=COPIES)
            fixture.wait_ready(name, COPIES)
            traffic = ClusterTraffic({FIRST: platform.observer}, fixture.load_target(name))
            with traffic.flowing(num_threads):
                say(f"{scenario.name}: {scenario.means}")
                facts = killed_node(platform, fixture, name, traffic, scenario)
            kept = configurations(fixture)
        except (ClientError, BotoCoreError) as error:
            raise TerminalError(f"the platform on Ray's nodes: {error}") from error
    return report(facts, scenario.limits), findings(traffic.writes(), kept, ())


def killed_node(
    platform: RayPlatform,
    fixture: DrillFixture,
    component: str,
    traffic: ClusterTraffic,
    scenario: ClusterScenario,
) -> ScenarioFacts:
    """Kill a copy's node, and wait until all is well. Raises TerminalError if it was not before."""
    nodes, began = platform.nodes, monotonic_s()
    if wait_for(lambda: traffic.is_well_since(began) or None, WELL_S) is None:
        raise TerminalError(f"the platform on Ray's nodes is not well within {WELL_S:g} s")
    before = ready(fixture, component)
    of_copies = nodes.nodes_of(before)
    victim = min(of_copies - {nodes.head}, default=None)
    if len(of_copies) != COPIES or victim is None:
        raise TerminalError(f"the {COPIES} copies run on {len(of_copies)} of Ray's nodes")
    streams = NodeStreams(fixture, component)
    with running_threads(threading.Event(), *[streams.once] * STREAMS):
        if wait_for(lambda: len(streams.begun) == STREAMS or None, BEGUN_S) is None:
            raise TerminalError(f"{len(streams.begun)} of {STREAMS} streams began")
        lost = before & nodes.processes(victim)
        fault_at = monotonic_s()
        nodes.kill(victim)
        killed_at = monotonic_s()
        copies_at = wait_for(partial(whole, fixture, component, lost), WELL_S)
    watched_until = killed_at + scenario.limits.served_s + WATCHED_S
    threading.Event().wait(max(0.0, watched_until - monotonic_s()))
    trouble = in_progress(streams.calls, fault_at)
    now = monotonic_s()
    if wait_for(lambda: traffic.is_well_since(now) or None, WELL_S) is None:
        trouble = trouble or f"calls and writes are not well within {WELL_S:g} s of the fault"
    return ScenarioFacts(
        name=scenario.name, means=scenario.means, fault_at=fault_at, healed_at=killed_at,
        calls={FIRST: [*traffic.calls()[FIRST], *streams.calls]}, writes=traffic.writes(),
        before=NO_LEASE, sights=(), copies_at=copies_at, trouble=trouble,
    )  # fmt: skip


def ready(fixture: DrillFixture, component: str) -> set[int]:
    """Process ids of the component's copies that are ready."""
    copies = fixture.copies_of(component)
    return {it["pid"] for it in copies if it["phase"] == "ready" and it["pid"]}


def whole(fixture: DrillFixture, component: str, lost: set[int]) -> float | None:
    """The instant at which all copies were ready, none of them `lost`, and each answered a call."""
    try:
        pids = ready(fixture, component)
    except TerminalError:  # control does not answer yet
        return None
    if len(pids) != COPIES or pids & lost:
        return None
    answered = set()
    for _ in range(8 * COPIES):
        try:
            answer = fixture.runtime.invoke_endpoint(
                EndpointName=fixture.endpoint,
                InferenceComponentName=component,
                Body=b"{}",
            )
            answered.add(json.loads(answer["Body"].read())["pid"])
        except (ClientError, BotoCoreError):
            return None
    return monotonic_s() if pids <= answered else None


class NodeStreams:
    """Long streams and their outcomes. The streams of `begun` have sent their first part."""

    def __init__(self, fixture: DrillFixture, component: str) -> None:
        self.calls: list[LoadCall] = []
        self.begun: list[float] = []
        self._runtime = fixture.runtime
        self._asked = {
            "EndpointName": fixture.endpoint,
            "InferenceComponentName": component,
            "Body": json.dumps({"chunks": CHUNKS, "chunk_wait_s": CHUNK_WAIT_S}).encode(),
        }

    def once(self) -> None:
        """Read one stream to its end, and note its outcome."""
        began_at = monotonic_s()
        try:
            outcome = outcome_of(self._read)
        except HTTPError as error:  # botocore reads streams with urllib3, and passes its errors on
            outcome = type(error).__name__
        self.calls.append(LoadCall(began_at=began_at, ended_at=monotonic_s(), outcome=outcome))

    def _read(self) -> None:
        answer = self._runtime.invoke_endpoint_with_response_stream(**self._asked)
        num_bytes = 0
        with closing(answer["Body"]) as events:
            for event in events:
                if num_bytes == 0:
                    self.begun.append(monotonic_s())
                num_bytes += len(event["PayloadPart"]["Bytes"])
        if num_bytes != STREAM_BYTES:
            raise ResponseStreamingError(error=f"{num_bytes} of {STREAM_BYTES} bytes came")


def configurations(fixture: DrillFixture) -> set[str]:
    """The names of the existing endpoint configurations."""
    pages = fixture.sagemaker.get_paginator("list_endpoint_configs").paginate(NameContains=PREFIX)
    return {it["EndpointConfigName"] for page in pages for it in page["EndpointConfigs"]}


@contextmanager
def ray_platform(say: Callable[[str], None]) -> Iterator[RayPlatform]:
    """A platform on a new Ray cluster for the block. Raises TerminalError."""
    say(f"starting Ray on {NODES} nodes, and a platform on them")
    with ExitStack() as parts:
        nodes = parts.enter_context(closing(RayNodes()))
        for _ in range(NODES):
            nodes.add({INSTANCE_TYPE: 1})
        home = Home(nodes.folder / "home")
        home.root.mkdir(mode=0o700)
        port, s3_port, cluster_port = map(str, free_ports(3))

        def command(name: str, *arguments: str) -> None:
            argv = (*CLI, name, "--home", str(home.root), *arguments)
            run_command(argv, nodes.environment, f"`hostelry {name} --fleet ray`")

        def down() -> None:
            with suppress(TerminalError):
                command("down", "--timeout", f"{END_S:g}")

        parts.callback(down)
        command(
            "up", "--detach", "--port", port, "--s3-port", s3_port, "--gateway-workers", "1",
            "--no-console", "--no-mirror-process", "--fleet", "ray", "--ray-address", nodes.address,
            "--cluster-host", LOOPBACK, "--cluster-port", cluster_port,
        )  # fmt: skip
        config, credentials = load_config(home), load_credentials(home)
        yield RayPlatform(
            nodes=nodes,
            observer=PlatformObserver(home=home, config=config, credentials=credentials),
        )
