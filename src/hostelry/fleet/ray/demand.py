"""Resources that an instance asks Ray for, the zone it is put in, why it waits. Pure.

    the cluster                                       an instance asks for
    ------------------------------------------------  ---------------------------------------------
    a node offers a resource named ``ml.*``           one of the resource named like its type; its
                                                      GPUs too where a node has both
    no node does, or the instance is of a serverless  CPUs, GPUs and memory of its type's shape
    variant

A node's zone is its label `hostelry.zone`, else that of KubeRay. An instance's zone is a
preference: it goes to a node of that zone if one can hold it now, else to any.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hostelry.domain.copy import Instance
from hostelry.domain.serverless import TYPE_PREFIX

CPU, GPU, MEMORY = "CPU", "GPU", "memory"
TYPED_PREFIX = "ml."
ZONE_LABELS = ("hostelry.zone", "ray.io/availability-zone")
# Ray offers 70 % of a node's memory by default, and of a declared GiB the kernel has its part too:
# a machine of a type must be able to hold an instance of that type.
MEMORY_SHARE = 0.6
GIB = 1024**3
NAMED_NODES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """A living node: its resources, all and those that are free; memory in bytes."""

    id: str
    address: str
    total: Mapping[str, float]
    free: Mapping[str, float]
    labels: Mapping[str, str]

    @property
    def zone_label(self) -> tuple[str, str] | None:
        """The label that names the node's zone."""
        return next(((key, self.labels[key]) for key in ZONE_LABELS if key in self.labels), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayDemand:
    """Resources by Ray's name; `zone` is the label that its node must have."""

    resources: Mapping[str, float]
    zone: tuple[str, str] | None = None

    def fits(self, room: Mapping[str, float]) -> bool:
        """Whether `room` has all of it."""
        return all(room.get(name, 0.0) >= amount for name, amount in self.resources.items())


def demand_of(instance: Instance, nodes: Sequence[RayNode]) -> RayDemand:
    """The resources that the instance needs of a cluster with these nodes; see the table above."""
    shape, own = instance.shape, instance.instance_type
    is_typed = any(name.startswith(TYPED_PREFIX) for node in nodes for name in node.total)
    if is_typed and not own.startswith(TYPE_PREFIX):
        gpus = float(shape.accelerators)
        has_both = any(own in it.total and it.total.get(GPU, 0.0) >= gpus for it in nodes)
        resources = {own: 1.0} | ({GPU: gpus} if gpus and has_both else {})
    else:
        asked = {
            CPU: _whole(shape.cpus),
            GPU: float(shape.accelerators),
            MEMORY: float(int(shape.memory_bytes * MEMORY_SHARE)),
        }
        resources = {name: amount for name, amount in asked.items() if amount}
    demand = RayDemand(resources=resources)
    return RayDemand(resources=resources, zone=_zone(instance.zone, demand, nodes))


def why_pending(instance: Instance, demand: RayDemand, nodes: Sequence[RayNode]) -> str | None:
    """What was asked for, what the cluster has, and what would help; None where a node has room."""
    if any(demand.fits(it.free) for it in nodes):
        return None
    asked = amounts(demand.resources)
    could = [it for it in nodes if demand.fits(it.total)]
    state = (
        f"{len(could)} of its {len(nodes)} nodes could hold it, and are in use"
        if could
        else f"none of its {len(nodes)} nodes could ever hold it"
    )
    return (
        f"the Ray cluster has no room for {instance.instance_type} ({asked}): {state} "
        f"({_offers(nodes, demand.resources)}). It waits as a pending actor, which is how Ray's "
        f"autoscaler sees it; a node with {asked} free, or fewer instances, would help"
    )


def amounts(resources: Mapping[str, float]) -> str:
    """Resources as text: "4 CPUs, 1 GPU, 9.6 GiB of memory"."""
    return ", ".join(_amount(name, value) for name, value in resources.items()) or "nothing"


def _amount(name: str, value: float) -> str:
    if name == MEMORY:
        return f"{value / GIB:.3g} GiB of memory"
    if name in (CPU, GPU):
        return f"{value:g} {name}{'' if value == 1 else 's'}"
    return f"{value:g} of {name}"


def _offers(nodes: Sequence[RayNode], names: Iterable[str]) -> str:
    """The free amounts of these resources, node by node."""
    asked = tuple(names)
    texts = [
        f"{node.address}: {amounts({name: node.free.get(name, 0.0) for name in asked})} free"
        for node in nodes[:NAMED_NODES]
    ]
    more = len(nodes) - len(texts)
    return "; ".join(texts + ([f"and {more} more"] if more else [])) or "it has no node"


def _zone(zone: str, demand: RayDemand, nodes: Sequence[RayNode]) -> tuple[str, str] | None:
    """The label of the nodes of `zone`, if one of them has room now.

    Where no node's zone has that name, the zones of the cluster stand for those of the region, in
    the order of their names: "us-east-1b" is the second one.
    """
    labels = sorted({label for it in nodes if (label := it.zone_label) is not None})
    if not labels or not zone:
        return None
    by_name = next((label for label in labels if label[1] == zone), None)
    label = by_name or labels[(ord(zone[-1]) - ord("a")) % len(labels)]
    has_room = any(it.zone_label == label and demand.fits(it.free) for it in nodes)
    return label if has_room else None


def _whole(cpus: float) -> float:
    """Ray takes fractions of one CPU only."""
    return cpus if cpus < 1 else float(math.ceil(cpus))
