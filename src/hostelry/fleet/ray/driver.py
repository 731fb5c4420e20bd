"""Calls of control carried out on Ray: instances as detached named actors."""

import asyncio
import importlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hostelry import __version__
from hostelry.base.clock import monotonic_s
from hostelry.base.errors import (
    CapacityError,
    HostelryError,
    InstanceLostError,
    RetryableError,
    TerminalError,
)
from hostelry.base.json import decode
from hostelry.domain.copy import Instance, InstanceState
from hostelry.domain.serverless import TYPE_PREFIX
from hostelry.fleet.protocol import RunningInstance
from hostelry.fleet.ray.instance_actor import InstanceActor, host_identity
from hostelry.fleet.ray.messages import NodeOrder, Started

LOG = logging.getLogger(__name__)
# Resources that an instance asks Ray for, the zone it is put in, why it waits. Pure.
#
#     the cluster                                       an instance asks for
#    ------------------------------------------------  ---------------------------------------------
#     a node offers a resource named ``ml.*``           one of the resource named like its type; its
#                                                       GPUs too where a node has both
#     no node does, or the instance is of a serverless  CPUs, GPUs and memory of its type's shape
#     variant
#
# A node's zone is its label `hostelry.zone`, else that of KubeRay. An instance's zone is a
# preference: it goes to a node of that zone if one can hold it now, else to any.


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


# The Ray cluster as this project sees it: connected to, its nodes, the states of its actors.
#
# The only code that calls Ray's functions for them; Ray is imported here, and only once it is used.


MISSING = "`--fleet ray` needs Ray: pip install 'hostelry[ray]'"
ALIVE = "ALIVE"
DEAD = "DEAD"


def connected(address: str | None, namespace: str) -> Any:
    """The module `ray`, connected; `address` None: the cluster of this machine.

    Raises TerminalError without Ray, or with another version than the cluster's, RetryableError
    when the cluster cannot be reached.
    """
    if address is not None and "://" in address:
        raise TerminalError(
            f"--ray-address {address}: expected HOST:PORT of the cluster's head. Control's machine "
            "must be a node of the cluster; it may offer nothing (ray start --num-cpus=0)"
        )
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise TerminalError(f"{MISSING} ({error})") from None
    try:
        ray.init(
            address=address or "auto",
            namespace=namespace,
            log_to_driver=False,
            configure_logging=False,
        )
    # Ray names what is wrong only in its texts: another version, a token, no cluster, no node here.
    except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as error:
        text = f"no connection to the Ray cluster at {address or 'this machine'}: {error}"
        if "ersion mismatch" in str(error):
            raise TerminalError(text) from None
        raise RetryableError(text) from None
    return ray


def nodes_of(ray: Any) -> list[RayNode]:
    """The living nodes, by address."""
    free = ray._private.state.available_resources_per_node()
    nodes = [
        RayNode(
            id=node["NodeID"],
            address=node["NodeManagerAddress"],
            total=node["Resources"],
            free=free.get(node["NodeID"], {}),
            labels=node.get("Labels", {}),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    return sorted(nodes, key=lambda it: (it.address, it.id))


def state_of(ray: Any, actor: Any) -> str:
    """Ray's own state of the actor, `ALIVE` once it was placed and runs."""
    return str(ray._private.state.actors(actor._actor_id.hex()).get("State", DEAD))


# Calls of control carried out on Ray: instances as detached named actors, one name an instance.
#
#     launch      the actor is found by its name, or made; it is asked to start the agent
#     ... no room it stays pending, which is what Ray's autoscaler looks at; CapacityError meanwhile
#     ... dead    another one is made
#     terminate   the actor ends agent and copies, then is killed; a pending one is killed at once
#     list        actors whose agent answers
#
# The death of a launched instance is reported as soon as Ray knows it.


LAUNCH_S = 50.0  # control gives a launch 60 s
LOOK_S = 1.0  # between looks at a pending actor
# An actor whose process is being started holds its room already, and is pending still. On a busy
# node that takes long, so room that was free when it was asked for counts as its own for longer.
NO_ROOM_S = 8.0
OWN_ROOM_S = 40.0
ANSWER_S = 8.0
STOP_S = 30.0
GONE_S = 10.0
POLL_S = 0.1
TRIES = 2


@dataclass(frozen=True, slots=True)
class Start:
    """An actor that was asked to start its instance, and the answer to come.

    `had_room`: a node had room for it when it was made.
    """

    actor: Any
    answer: "asyncio.Future[bytes]"
    had_room: bool


class RayDriver:
    """The instances of one platform on a cluster.

    Args:
        ray: the module, connected, with the namespace of the platform's actors.
        order_of: what the actor of an instance is sent.
        runtime_env: Ray's runtime environment of actors; None: what their nodes have installed.
        lost: called with the id of an instance whose actor died.
    """

    def __init__(
        self,
        ray: Any,
        order_of: Callable[[Instance], NodeOrder],
        runtime_env: Mapping[str, Any] | None,
        lost: Callable[[str], None],
    ) -> None:
        self._ray = ray
        self._order_of = order_of
        self._runtime_env = runtime_env
        self._lost = lost
        self._starts: dict[str, Start] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def launch(self, instance: Instance) -> RunningInstance:
        """The instance, running: found, or started; raises as `Fleet.launch` does."""
        async with self._locks.setdefault(instance.id, asyncio.Lock()):
            for attempt in range(TRIES):
                try:
                    return await self._launched(instance)
                except self._ray.exceptions.ActorDiedError as error:
                    self._starts.pop(instance.id, None)
                    problem = _problem_of_creation(error)
                    if problem is not None:
                        raise problem from None
                    LOG.info("instance %s, try %d: %s", instance.id, attempt + 1, error)
                except self._ray.exceptions.RayError as error:
                    self._starts.pop(instance.id, None)
                    raise _ray_failure(instance.id, error) from None
        raise RetryableError(f"the actor of instance {instance.id} died while it started")

    async def terminate(self, instance_id: str) -> None:
        """End the instance with all on it; no error if it is gone."""
        self._starts.pop(instance_id, None)
        if (watch := self._watches.pop(instance_id, None)) is not None:
            watch.cancel()
        actor = await asyncio.to_thread(self._found, instance_id)
        if actor is None:
            return
        if await asyncio.to_thread(state_of, self._ray, actor) == ALIVE:
            await asyncio.wait({self._future(actor.stop.remote())}, timeout=STOP_S)
        await asyncio.to_thread(self._ray.kill, actor, no_restart=True)
        deadline = monotonic_s() + GONE_S
        while await asyncio.to_thread(self._found, instance_id) is not None:
            if monotonic_s() > deadline:
                raise RetryableError(f"the actor of instance {instance_id} does not end")
            await asyncio.sleep(POLL_S)

    async def list(self) -> Sequence[RunningInstance]:
        """Every instance whose agent answers now."""
        names = await asyncio.to_thread(self._ray.util.list_named_actors)
        found = await asyncio.gather(*(self._running(name) for name in sorted(names)))
        return [it for it in found if it is not None]

    async def end_all(self) -> None:
        """Terminate every instance of the platform."""
        names = await asyncio.to_thread(self._ray.util.list_named_actors)
        await asyncio.gather(*(self.terminate(name) for name in names))

    async def _launched(self, instance: Instance) -> RunningInstance:
        start = self._starts.get(instance.id)
        if start is None:
            order = msgspec.json.encode(self._order_of(instance))
            actor, had_room = await asyncio.to_thread(self._found_or_made, instance)
            answer = self._future(actor.start.remote(__version__, order))
            start = Start(actor, answer, had_room)
            self._starts[instance.id] = start
        await self._answered(instance, start)
        self._starts.pop(instance.id, None)
        started = decode(start.answer.result(), Started)
        if started.failure is not None:
            raise started.failure.error()
        self._watch(instance.id, start.actor)
        return RunningInstance(id=instance.id, address=_reached(instance.id, started))

    async def _answered(self, instance: Instance, start: Start) -> None:
        """Wait for the actor's answer, while it has room or may get it.

        Raises CapacityError where no node has room; the actor stays, and its place in the queue.
        """
        began = monotonic_s()
        patience_s = OWN_ROOM_S if start.had_room else NO_ROOM_S
        while not start.answer.done():
            await asyncio.wait({start.answer}, timeout=LOOK_S)
            if start.answer.done():
                return
            why = await asyncio.to_thread(self._why_pending, instance, start.actor)
            if why is not None and monotonic_s() > began + patience_s:
                ran = instance.state is InstanceState.RUNNING
                raise (InstanceLostError if ran else CapacityError)(why)
            if monotonic_s() > began + LAUNCH_S:
                state = await asyncio.to_thread(state_of, self._ray, start.actor)
                raise RetryableError(
                    f"the actor of instance {instance.id} did not start within {LAUNCH_S:g} s: "
                    f"Ray's state of it is {state}"
                )

    def _why_pending(self, instance: Instance, actor: Any) -> str | None:
        if state_of(self._ray, actor) == ALIVE:
            return None
        nodes = nodes_of(self._ray)
        return why_pending(instance, demand_of(instance, nodes), nodes)

    def _found(self, instance_id: str) -> Any | None:
        """The living or pending actor of the instance."""
        try:
            return self._ray.get_actor(instance_id)
        except ValueError:
            return None

    def _found_or_made(self, instance: Instance) -> tuple[Any, bool]:
        """The instance's actor, and whether it was made while a node had room for it."""
        actor = self._found(instance.id)
        if actor is not None:
            return actor, False
        nodes = nodes_of(self._ray)
        demand = demand_of(instance, nodes)
        asked = dict(demand.resources)
        options: dict[str, Any] = {
            "name": instance.id,
            "lifetime": "detached",
            "get_if_exists": True,
            "max_restarts": 0,  # control launches it again: its copies are placed by then
            "max_concurrency": 100,
            "num_cpus": asked.pop(CPU, 0),
            "num_gpus": asked.pop(GPU, 0),
            "memory": asked.pop(MEMORY, None),
            "resources": asked,
            "scheduling_strategy": "SPREAD",
            "runtime_env": self._runtime_env,
        }
        if demand.zone is not None:
            options["label_selector"] = dict([demand.zone])
        made = self._ray.remote(InstanceActor).options(**options).remote()
        return made, why_pending(instance, demand, nodes) is None

    async def _running(self, instance_id: str) -> RunningInstance | None:
        actor = await asyncio.to_thread(self._found, instance_id)
        if actor is None or await asyncio.to_thread(state_of, self._ray, actor) != ALIVE:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                started = decode(await self._future(actor.running.remote()), Started)
        except (TimeoutError, self._ray.exceptions.RayError):
            return None
        return RunningInstance(id=instance_id, address=started.address) if started.address else None

    def _watch(self, instance_id: str, actor: Any) -> None:
        """Report the actor's death when it comes."""
        if instance_id not in self._watches:
            self._watches[instance_id] = asyncio.create_task(self._until_lost(instance_id, actor))

    async def _until_lost(self, instance_id: str, actor: Any) -> None:
        while True:
            try:
                await self._future(actor.until_ended.remote())
            except self._ray.exceptions.ActorUnavailableError:
                await asyncio.sleep(POLL_S)  # Ray does not know yet whether it is dead
                continue
            except self._ray.exceptions.RayError as error:
                LOG.warning("instance %s is lost: %s", instance_id, error)
                self._lost(instance_id)
            self._watches.pop(instance_id, None)
            return

    def _future(self, ref: Any) -> "asyncio.Future[bytes]":
        return asyncio.wrap_future(ref.future())


def _reached(instance_id: str, started: Started) -> str:
    """The agent's address for this process; raises TerminalError where there is none."""
    if started.address.startswith("http://") and started.host != host_identity():
        raise TerminalError(
            f"instance {instance_id} is on node {started.node_address}, another machine than "
            "control's, whose agents it cannot reach: they listen on loopback. Start hostelry "
            "with --cluster-host and the address at which the nodes reach this machine"
        )
    return started.address


def _problem_of_creation(error: Exception) -> HostelryError | None:
    """The problem of an actor that cannot be made on its node; None where it died."""
    text = str(error)
    if "No module named" in text or "ModuleNotFoundError" in text or "ImportError" in text:
        return TerminalError(
            "a Ray node cannot load Hostelry: install the same version on every node, or give it "
            f"with --ray-runtime-env. {text[-300:]}"
        )
    return None


def _ray_failure(instance_id: str, error: Exception) -> HostelryError:
    """Ray's error on a launch as one of ours; an environment that cannot be made stays so."""
    kind = type(error).__name__
    text = f"instance {instance_id}: {kind}: {str(error)[:500]}"
    return TerminalError(text) if "RuntimeEnv" in kind else RetryableError(text)
