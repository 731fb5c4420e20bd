"""An instance on a Ray cluster: the resources it asks for, its zone, why it waits."""

from dataclasses import replace
from typing import Any

import pytest
from tests.integration.agent_rig import instance

from hostelry.fleet.ray.driver import MEMORY_SHARE, RayNode, demand_of, why_pending

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


@pytest.mark.parametrize(
    ("instance_type", "nodes", "asked"),
    [
        pytest.param(
            "ml.m5.large",
            [node("a", CPUS)],
            {"CPU": 2.0, "memory": float(int(8 * GIB * MEMORY_SHARE))},
            id="the shape of its type, where no node names types",
        ),
        pytest.param(
            "ml.m5.large",
            [node("a", CPUS), node("b", {"ml.g5.xlarge": 1.0})],
            {"ml.m5.large": 1.0},
            id="its type, once a node names any type",
        ),
        pytest.param(
            "ml.g5.xlarge",
            [node("a", {"ml.g5.xlarge": 1.0, "GPU": 1.0})],
            {"ml.g5.xlarge": 1.0, "GPU": 1.0},
            id="its type's GPUs too, where a node of it has them",
        ),
        pytest.param(
            "ml.g5.xlarge",
            [node("a", {"ml.g5.xlarge": 1.0}), node("b", {"GPU": 8.0})],
            {"ml.g5.xlarge": 1.0},
            id="no GPUs where nodes of its type have none",
        ),
        pytest.param(
            "ml.serverless.2048mb",
            [node("a", {"ml.m5.large": 1.0})],
            {"CPU": 16.0, "GPU": 1.0, "memory": float(int(64 * GIB * MEMORY_SHARE))},
            id="a shape for a serverless variant, whose type no node has",
        ),
    ],
)
def test_resources(instance_type: str, nodes: list[RayNode], asked: dict[str, float]) -> None:
    assert demand_of(instance("i-1", instance_type), nodes).resources == asked


A, B = "us-west-2a", "us-west-2b"


@pytest.mark.parametrize(
    ("zone", "nodes", "label"),
    [
        pytest.param("us-west-2b", [node("a", CPUS)], None, id="no zones, no preference"),
        pytest.param(
            "us-west-2b",
            [node("a", CPUS, zone=A), node("b", CPUS, zone=B)],
            ("hostelry.zone", "us-west-2b"),
            id="the zone of that name",
        ),
        pytest.param(
            "us-west-2b",
            [node("a", CPUS, zone=A), node("b", CPUS, {}, zone=B)],
            None,
            id="any zone while that one is full",
        ),
        pytest.param(
            "us-west-2c",
            [node("a", CPUS, zone="rack1"), node("b", CPUS, zone="rack2")],
            ("hostelry.zone", "rack1"),
            id="zones by their order, where none has the name",
        ),
        pytest.param("", [node("a", CPUS, zone=A)], None, id="an instance without a zone"),
    ],
)
def test_zones(zone: str, nodes: list[RayNode], label: tuple[str, str] | None) -> None:
    assert demand_of(replace(instance("i-1"), zone=zone), nodes).zone == label


@pytest.mark.parametrize(
    ("nodes", "parts"),
    [
        pytest.param([node("a", CPUS)], None, id="there is room"),
        pytest.param(
            [node("10.0.0.1", CPUS, {"CPU": 1.0, "memory": 32.0 * GIB})],
            ["ml.m5.large", "2 CPUs", "1 of its 1 nodes could hold it", "10.0.0.1: 1 CPU,"],
            id="the nodes are in use",
        ),
        pytest.param(
            [node("a", {"CPU": 1.0})], ["none of its 1 nodes could ever"], id="none is large enough"
        ),
        pytest.param([], ["it has no node"], id="an empty cluster"),
        pytest.param(
            [node(str(it), {"CPU": 1.0}) for it in range(9)], ["and 4 more"], id="many nodes"
        ),
    ],
)
def test_reasons(nodes: list[RayNode], parts: Any) -> None:
    asked = instance("i-1")
    why = why_pending(asked, demand_of(asked, nodes), nodes)
    assert (why is None) == (parts is None)
    assert all(part in (why or "") for part in parts or [])
