import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.integration.agent_rig import instance
from tests.unit.reconcile.test_instances import INSTANCE

from hostelry.base.errors import CapacityError
from hostelry.fleet.ray import driver
from hostelry.fleet.ray.driver import MEMORY_SHARE, RayNode, compute_demand, why_pending
from hostelry.fleet.ray.instance_actor import host_identity
from hostelry.fleet.ray.messages import NodeOrder, Started

GIB = 1024**3
CPUS = {"CPU": 8.0, "memory": 32.0 * GIB}


def node(
    address: str, total: dict[str, float], free: dict[str, float] | None = None, zone: str = ""
) -> RayNode:
    return RayNode(
        id=address,
        address=address,
        total=total,
        free=total if free is None else free,
        labels={"hostelry.zone": zone} if zone else {},
    )


@cases(
    "instance_type, nodes, asked",
    case(
        "the shape of its type, where no node names types",
        "ml.m5.large",
        [node("a", CPUS)],
        {"CPU": 2.0, "memory": float(int(8 * GIB * MEMORY_SHARE))},
    ),
    case(
        "its type, once a node names any type",
        "ml.m5.large",
        [node("a", CPUS), node("b", {"ml.g5.xlarge": 1.0})],
        {"ml.m5.large": 1.0},
    ),
    case(
        "its type's GPUs too, where a node of it has them",
        "ml.g5.xlarge",
        [node("a", {"ml.g5.xlarge": 1.0, "GPU": 1.0})],
        {"ml.g5.xlarge": 1.0, "GPU": 1.0},
    ),
    case(
        "no GPUs where nodes of its type have none",
        "ml.g5.xlarge",
        [node("a", {"ml.g5.xlarge": 1.0}), node("b", {"GPU": 8.0})],
        {"ml.g5.xlarge": 1.0},
    ),
    case(
        "a shape for a serverless variant, whose type no node has",
        "ml.serverless.2048mb",
        [node("a", {"ml.m5.large": 1.0})],
        {"CPU": 16.0, "GPU": 1.0, "memory": float(int(64 * GIB * MEMORY_SHARE))},
    ),
)
def test_resources(instance_type: str, nodes: list[RayNode], asked: dict[str, float]) -> None:
    assert compute_demand(instance("i-1", instance_type), nodes).resources == asked


A, B = "us-west-2a", "us-west-2b"


@cases(
    "zone, nodes, label",
    case("no zones, no preference", "us-west-2b", [node("a", CPUS)], None),
    case(
        "the zone of that name",
        "us-west-2b",
        [node("a", CPUS, zone=A), node("b", CPUS, zone=B)],
        ("hostelry.zone", "us-west-2b"),
    ),
    case(
        "any zone while that one is full",
        "us-west-2b",
        [node("a", CPUS, zone=A), node("b", CPUS, {}, zone=B)],
        None,
    ),
    case(
        "zones by their order, where none has the name",
        "us-west-2c",
        [node("a", CPUS, zone="rack1"), node("b", CPUS, zone="rack2")],
        ("hostelry.zone", "rack1"),
    ),
    case("an instance without a zone", "", [node("a", CPUS, zone=A)], None),
)
def test_zones(zone: str, nodes: list[RayNode], label: tuple[str, str] | None) -> None:
    assert compute_demand(replace(instance("i-1"), zone=zone), nodes).zone == label


@cases(
    "nodes, parts",
    case("there is room", [node("a", CPUS)], None),
    case(
        "the nodes are in use",
        [node("10.0.0.1", CPUS, {"CPU": 1.0, "memory": 32.0 * GIB})],
        ["ml.m5.large", "2 CPUs", "1 of its 1 nodes could hold it", "10.0.0.1: 1 CPU,"],
    ),
    case("none is large enough", [node("a", {"CPU": 1.0})], ["none of its 1 nodes could ever"]),
    case("an empty cluster", [], ["it has no node"]),
    case("many nodes", [node(str(it), {"CPU": 1.0}) for it in range(9)], ["and 4 more"]),
)
def test_reasons(nodes: list[RayNode], parts: Any) -> None:
    asked = instance("i-1")
    why = why_pending(asked, compute_demand(asked, nodes), nodes)
    assert (why is None) == (parts is None)
    assert all(part in (why or "") for part in parts or [])


TYPE = INSTANCE.instance_type


class SlowRay:
    """A cluster of one node, where an actor's process does not start before `answer` is set."""

    exceptions = SimpleNamespace(ActorDiedError=KeyError, RayError=KeyError)

    def __init__(self, free: float) -> None:
        self.free = free
        self.answer: Future[bytes] = Future()
        ref = SimpleNamespace(future=lambda: self.answer)
        start = SimpleNamespace(remote=lambda *_: ref)
        self._actor_id = SimpleNamespace(hex=lambda: "a")
        self._actor = SimpleNamespace(start=start, until_ended=start, _actor_id=self._actor_id)
        free_by_node = lambda: {"n": {TYPE: self.free}}  # noqa: E731
        state = SimpleNamespace(
            available_resources_per_node=free_by_node,
            actors=lambda _: {"State": "PENDING_CREATION"},
        )
        self._private = SimpleNamespace(state=state)

    def get_actor(self, name: str) -> Any:
        raise ValueError(name)

    def nodes(self) -> list[dict[str, Any]]:
        node = {"NodeID": "n", "NodeManagerAddress": "h", "Resources": {TYPE: 1.0}, "Alive": True}
        return [node]

    def remote(self, _: type) -> Any:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._placed))

    def _placed(self) -> Any:
        self.free = 0.0  # by this actor, or by another before
        return self._actor


ORDER = NodeOrder(INSTANCE, "cluster", "agent", "key", {}, {}, None, ("h", 1))
STARTED = Started(host=host_identity(), node_address="h", address="http://h:1")


@cases(
    "free, is_launched",
    case("room that was free is its own while its process starts", 1.0, True),
    case("there was none before", 0.0, False),
)
def test_lack_of_room(free: float, is_launched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LOOK_S", 0.01)
    monkeypatch.setattr(driver, "NO_ROOM_S", 0.0)
    ray = SlowRay(free)

    async def launching() -> str:
        launched = asyncio.ensure_future(
            driver.RayDriver(ray, lambda _: ORDER, None, lambda _: None).launch(INSTANCE)
        )
        await asyncio.wait({launched}, timeout=0.1)
        ray.answer.set_result(msgspec.json.encode(STARTED))
        return (await launched).address

    if is_launched:
        assert asyncio.run(launching()) == "http://h:1"
        return
    with pytest.raises(CapacityError, match="are in use"):
        asyncio.run(launching())
