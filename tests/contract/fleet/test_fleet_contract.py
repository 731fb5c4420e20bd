"""One suite for all fleets: the promises of the interfaces `Fleet` and `Agent`."""

import asyncio
import dataclasses
import gc
import socket
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.integration.agent_rig import (
    Rig,
    echo,
    instance,
    kill,
    rig,
    until,
    until_ready,
    until_true,
)
from tests.integration.agent_rig import until_gone as until_process_gone
from tests.ray_rig import RayCluster, ray_cluster
from tests.selection import thorough

from hostelry.base import tls
from hostelry.base.clock import SystemClock
from hostelry.base.errors import CapacityError, HostelryError, InstanceLostError, RetryableError
from hostelry.base.json import decode
from hostelry.base.peers import PeerRole
from hostelry.base.proc import ProcessIdentity
from hostelry.base.tls import TlsFolder
from hostelry.cluster.host_files import HostFiles
from hostelry.domain.copy import CopyPhase, CopySpec, CopyStatus
from hostelry.fleet.fake import FakeFleet, FakeSwitches
from hostelry.fleet.local.client import HttpAgent
from hostelry.fleet.protocol import Agent, Fleet, RunningInstance
from hostelry.fleet.ray.node_home import NodeHome
from hostelry.fleet.records import InstanceFolder
from hostelry.home.home import load_config, load_credentials, save_config
from hostelry.processes.fleets import build_ray_fleet

ID = "i-1"


@dataclass(frozen=True)
class Place:
    """A fleet, and acts of tests on it that no interface offers."""

    fleet: Fleet
    connect: Callable[[str], Agent]
    kill_agent: Callable[[str], None]
    heals: bool = False  # the fleet starts a dead agent again by itself

    async def launched(self, instance_id: str = ID) -> Agent:
        return self.connect((await self.launch(instance_id)).address)

    async def launch(self, instance_id: str = ID) -> RunningInstance:
        """Launch an instance. On a busy machine, try a second time, as control does."""
        try:
            return await self.fleet.launch(instance(instance_id))
        except CapacityError:
            raise
        except RetryableError:
            return await self.fleet.launch(instance(instance_id))


def fake_place() -> Place:
    fleet = FakeFleet()
    return Place(fleet=fleet, connect=fleet.connect, kill_agent=fleet.kill_agent)


def local_place(found: Rig) -> Place:
    return Place(
        fleet=found.fleet,
        connect=lambda address: HttpAgent(address, found.key),
        kill_agent=lambda instance_id: kill(found.agent_pid(instance_id)),
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster({"ml.m5.large": 2}) as found:
        yield found


@contextmanager
def ray_place(
    tmp_path: Path, cluster: RayCluster, cluster_host: str | None = None
) -> Iterator[Place]:
    """With `cluster_host` the instances are reached by their nodes' addresses."""
    with socket.create_server(("127.0.0.1", 0)) as store, rig(tmp_path) as found:
        url = f"http://127.0.0.1:{store.getsockname()[1]}"
        config = load_config(found.home)
        nodes = tmp_path / "nodes"
        on_ray = dataclasses.replace(
            config, fleet="ray", ray_address=cluster.address, node_dir=str(nodes)
        )
        with_store = dataclasses.replace(on_ray, s3_endpoint=url)
        save_config(
            found.home, dataclasses.replace(with_store, cluster_host=cluster_host, cluster_port=1)
        )
        credentials = load_credentials(found.home)
        files = HostFiles(TlsFolder(found.home.tls), credentials.cluster_id)
        files.make(PeerRole.CONTROL, "control", SystemClock().now())
        tls.use(found.home.tls)
        fleet = build_ray_fleet(found.home, credentials)

        def kill_agent(instance_id: str) -> None:
            (path,) = nodes.glob(f"*/*/{instance_id}-*")
            record = InstanceFolder(NodeHome(path).instances / instance_id).load_agent()
            assert record is not None
            kill(record.pid)

        yield Place(fleet=fleet, connect=fleet.connect, kill_agent=kill_agent, heals=True)
        asyncio.run(fleet.end_all())
        fleet.close()
        with warnings.catch_warnings():  # httpx leaves the socket of a cancelled TLS handshake open
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        assert list(nodes.glob("*/*/*")) == [], "an instance that ended leaves nothing"


PLACES = [
    pytest.param("fake", id="the fake fleet"),
    pytest.param("local", id="the local fleet", marks=pytest.mark.integration),
    pytest.param("ray", id="the Ray fleet", marks=pytest.mark.integration),
]
# On Ray an instance has the local fleet's agent. Tests of this agent alone run with `--all`.
of_each_fleet = pytest.mark.parametrize("place", PLACES, indirect=True)
of_agents = pytest.mark.parametrize(
    "place", [*PLACES[:2], thorough("ray", id="the Ray fleet")], indirect=True
)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "fake":
        yield fake_place()
        return
    if request.param == "ray":
        with ray_place(tmp_path, request.getfixturevalue("cluster")) as found_on_ray:
            yield found_on_ray
        return
    with rig(tmp_path) as found:
        yield local_place(found)


async def ids(agent: Agent) -> list[str]:
    return [it.id for it in (await agent.observe()).copies]


async def until_gone(agent: Agent, copy_id: str) -> None:
    await until(agent, lambda copies: copy_id not in copies)


@of_each_fleet
async def test_an_instance_lives_from_its_launch_to_its_end(place: Place) -> None:
    assert await place.fleet.list() == []
    first = await place.launch()
    again = await place.launch()
    assert again == first, "it is not started twice"
    assert list(await place.fleet.list()) == [first]
    other = await place.launch("i-2")
    assert other.address != first.address
    await place.fleet.terminate("i-2")
    await place.fleet.terminate("i-2")
    await place.fleet.terminate("i-never")
    assert list(await place.fleet.list()) == [first]
    await place.fleet.terminate(ID)
    assert await place.fleet.list() == []
    with pytest.raises(RetryableError):
        await place.connect(first.address).observe()


@of_agents
async def test_an_agent_runs_exactly_the_desired_copies(place: Place) -> None:
    agent = await place.launched()
    assert await ids(agent) == []
    await agent.apply([echo("c-1"), echo("c-2")])
    before = await until_ready(agent, "c-1")
    await until_ready(agent, "c-2")
    await agent.apply([echo("c-1"), echo("c-2")])
    still = await until_ready(agent, "c-1")
    assert same_process(still, before), "the same wish again changes nothing"
    await agent.apply([echo("c-1"), echo("c-3")])
    await until_gone(agent, "c-2")
    await until_ready(agent, "c-3")
    assert await ids(agent) == ["c-1", "c-3"]
    assert same_process(await until_ready(agent, "c-1"), before)
    await agent.apply([])
    await until_gone(agent, "c-1")
    await until_gone(agent, "c-3")


def same_process(one: CopyStatus, other: CopyStatus) -> bool:
    return (one.address, one.pid, one.restarts) == (other.address, other.pid, other.restarts)


@of_each_fleet
async def test_copies_outlive_their_agent_and_are_adopted_by_its_successor(place: Place) -> None:
    agent = await place.launched()
    await agent.apply([echo("c-1")])
    before = await until_ready(agent, "c-1")
    place.kill_agent(ID)
    with pytest.raises(RetryableError):
        await agent.observe()
    assert place.heals or await place.fleet.list() == []
    successor = await place.launched()
    assert same_process(await until_ready(successor, "c-1"), before)
    await place.fleet.terminate(ID)


@of_agents
async def test_an_observation_is_waited_for_only_while_nothing_is_new(place: Place) -> None:
    agent = await place.launched()
    have = (await agent.observe()).version
    assert (await agent.observe(have, 0.05)).version == have
    waiting = asyncio.create_task(agent.observe(have, 20.0))
    await agent.apply([echo("c-1")])
    assert (await waiting).version != have
    assert (await agent.observe("a version that never was", 20.0)).version != have


@of_agents
async def test_a_copy_that_cannot_run_fails_with_a_reason_and_leaves_the_others_be(
    place: Place,
) -> None:
    if isinstance(place.fleet, FakeFleet):
        place.fleet.switches.broken_images["nowhere:1"] = "no program /nowhere/server"
    agent = await place.launched()
    await agent.apply([echo("c-1"), echo("c-2", image="nowhere:1")])
    copies = await until(agent, lambda it: it["c-2"].phase is CopyPhase.FAILED)
    assert copies["c-2"].reason
    await until_ready(agent, "c-1")
    assert isinstance(await agent.log_tail("c-2"), str)
    assert await agent.log_tail("c-9") == "", "of one that never was there is nothing to read"


@of_agents
async def test_a_draining_copy_is_the_same_process_and_counts_its_connections(place: Place) -> None:
    agent = await place.launched()
    await agent.apply([echo("c-1"), echo("c-2")])
    before = await until_ready(agent, "c-1")
    await until_ready(agent, "c-2")
    assert before.open_connections is None
    await agent.apply([draining(echo("c-1")), echo("c-2")])
    copies = await until(agent, lambda it: it["c-1"].open_connections is not None)
    assert copies["c-1"].open_connections == 0
    assert copies["c-1"].phase is CopyPhase.READY
    assert copies["c-2"].open_connections is None
    assert same_process(copies["c-1"], before)


def draining(spec: CopySpec) -> CopySpec:
    return replace(spec, draining=True)


@of_agents
async def test_the_memory_of_a_copy_is_reported(place: Place) -> None:
    if isinstance(place.fleet, FakeFleet):
        place.fleet.switches.memory_bytes["component/c-1"] = 20 << 20
    agent = await place.launched()
    await agent.apply([echo("c-1")])
    await until(agent, lambda it: it["c-1"].memory_bytes > 0)


@pytest.mark.integration
@pytest.mark.thorough
def test_an_instance_ends_with_its_actor_on_ray(tmp_path: Path, cluster: RayCluster) -> None:
    """Also: a third instance has no room, and its request is withdrawn when it ends.

    Its agent is reached through a node proxy, on the node's address, even after a proxy has died.
    """

    def actors() -> list[Path]:
        return list(tmp_path.glob("nodes/*/*/i-1-*/actor.json"))

    def proxy() -> int:
        (path,) = tmp_path.glob("nodes/*/*/i-1-*/proxy.json")
        return decode(path.read_bytes(), ProcessIdentity).pid

    async def case(place: Place) -> None:
        running = await place.launch()
        node = cluster.address.rpartition(":")[0]
        assert running.address.startswith(f"https://i-1@{node}:")
        first = proxy()
        kill(first)
        await until_process_gone(first)
        await until_true(lambda: proxy() != first, "the proxy is started again")
        agent = await place.launched()
        again = await place.fleet.list()
        assert [it.address for it in again] == [running.address], "on the same port"
        await agent.apply([echo("c-1")])
        copy = await until_ready(agent, "c-1")
        (actor,) = actors()
        await place.launched("i-2")
        full = await raised(place.fleet.launch(instance("i-3")))
        assert isinstance(full, CapacityError)
        assert "no room for ml.m5.large (1 of ml.m5.large)" in str(full)
        await place.fleet.terminate("i-3")
        last_proxy = proxy()
        kill(decode(actor.read_bytes(), ProcessIdentity).pid)
        assert isinstance(await raised(observed_for_ever(agent)), InstanceLostError)
        await until_process_gone(copy.pid or 0)
        await until_process_gone(last_proxy)
        await until_true(lambda: not actors(), "its home is removed")
        other = await place.launched()
        assert (await other.observe()).copies == ()

    with ray_place(tmp_path, cluster, "127.0.0.1") as place:
        asyncio.run(case(place))


async def observed_for_ever(agent: Agent) -> None:
    while True:
        await agent.observe((await agent.observe()).version, 30.0)


async def raised(work: Awaitable[object]) -> HostelryError | None:
    try:
        await work
    except HostelryError as error:
        return error
    return None


async def test_the_fake_fleet_plays_what_goes_wrong() -> None:
    """Faults that a real fleet cannot produce at will: the switches for the planner's tests."""
    fleet = FakeFleet(FakeSwitches(no_capacity={"ml.p4d.24xlarge": "none to be had"}))
    launched = await fleet.launch(instance(ID))
    fleet.switches.hung_instances.add(ID)
    capacity, observed, applied, fine = [
        await raised(fleet.launch(instance("i-2", "ml.p4d.24xlarge"))),
        await raised(fleet.connect(launched.address).observe()),
        await raised(fleet.connect(launched.address).apply([])),
        await raised(fleet.launch(instance("i-3"))),
    ]
    assert isinstance(capacity, CapacityError)
    assert isinstance(observed, RetryableError)
    assert isinstance(applied, RetryableError)
    assert fine is None
