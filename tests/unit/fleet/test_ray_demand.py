"""An instance on a Ray cluster: the resources it asks for, its zone, why it waits."""

from dataclasses import replace
from typing import Any

from tests.cases import case, cases
from tests.integration.agent_rig import instance

from hostelry.fleet.ray.driver import MEMORY_SHARE, RayNode, compute_demand, why_pending

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
