"""Calls of control carried out on Ray: instances as detached named actors.

This module alone calls Ray's functions for the cluster, its nodes and actors. Ray is imported on
first use.

    launch       finds the instance's actor by its name, or makes it, and starts the agent
      no room    the actor stays pending, so that Ray's autoscaler sees it. CapacityError meanwhile
      it died    makes another actor
    terminate    the actor ends agent and copies, then is killed. A pending actor is killed at once
    list         actors whose agent answers

The death of a launched instance is reported as soon as Ray knows it.
"""

import asyncio
import importlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from hostelry.base.printable import short_number
from hostelry.domain.copy import Instance, InstanceState
from hostelry.domain.serverless import TYPE_PREFIX
from hostelry.fleet.protocol import RunningInstance
from hostelry.fleet.ray.instance_actor import InstanceActor, host_identity
from hostelry.fleet.ray.messages import NodeOrder, Started

LOG = logging.getLogger(__name__)

CPU, GPU, MEMORY = "CPU", "GPU", "memory"
TYPED_PREFIX = "ml."
ZONE_LABELS = ("hostelry.zone", "ray.io/availability-zone")  # the first one counts
# Ray offers 70 % of a node's memory by default, and the kernel takes a part of a declared GiB. But
# a machine of a type must be able to hold an instance of that type.
MEMORY_SHARE = 0.6
GIB = 1024**3
NAMED_NODES = 5
MISSING = "`--fleet ray` needs Ray: pip install 'hostelry[ray]'"
ALIVE = "ALIVE"
DEAD = "DEAD"
LAUNCH_S = 50.0  # control gives a launch 60 s
LOOK_S = 1.0  # between looks at a pending actor
# An actor is pending, but holds its room already, while its process is being started. That takes
# long on a busy node. So an actor that had room when it was made gets more time.
NO_ROOM_S = 8.0
OWN_ROOM_S = 40.0
ANSWER_S = 8.0
STOP_S = 30.0
GONE_S = 10.0
POLL_S = 0.1
TRIES = 2


class RayNode(msgspec.Struct, frozen=True, kw_only=True):
    """A living node with its total and free resources. Memory is in bytes."""

    id: str
    address: str
    total: Mapping[str, float]
    free: Mapping[str, float]
    labels: Mapping[str, str]

    @property
    def zone_label(self) -> tuple[str, str] | None:
        """The label that names the node's zone."""
        return next(((key, self.labels[key]) for key in ZONE_LABELS if key in self.labels), None)


class RayDemand(msgspec.Struct, frozen=True, kw_only=True):
    """Resources by Ray's name. `zone` is the label that its node must have."""

    resources: Mapping[str, float]
    zone: tuple[str, str] | None = None

    def fits(self, room: Mapping[str, float]) -> bool:
        """Whether `room` has all of these resources."""
        return all(room.get(name, 0.0) >= amount for name, amount in self.resources.items())


def compute_demand(instance: Instance, nodes: Sequence[RayNode]) -> RayDemand:
    """The resources that the instance asks of a cluster with these nodes.

    a node offers a resource ``ml.*``            -> one of the resource named like its type, and its
                                                    GPUs if a node has both
    otherwise, or for a serverless variant       -> CPUs, GPUs and memory of its type's shape

    The instance's zone is a preference. Without a node of that zone that has room now, any node
    will do.
    """
    shape, own = instance.shape, instance.instance_type
    is_typed = any(name.startswith(TYPED_PREFIX) for node in nodes for name in node.total)
    if is_typed and not own.startswith(TYPE_PREFIX):
        gpus = float(shape.accelerators)
        has_both = any(own in it.total and it.total.get(GPU, 0.0) >= gpus for it in nodes)
        resources = {own: 1.0} | ({GPU: gpus} if gpus and has_both else {})
    else:
        asked = {
            CPU: _round_cpus(shape.cpus),
            GPU: float(shape.accelerators),
            MEMORY: float(int(shape.memory_bytes * MEMORY_SHARE)),
        }
        resources = {name: amount for name, amount in asked.items() if amount}
    demand = RayDemand(resources=resources)
    return RayDemand(resources=resources, zone=_zone(instance.zone, demand, nodes))


def why_pending(instance: Instance, demand: RayDemand, nodes: Sequence[RayNode]) -> str | None:
    """Describe the request, the cluster's room, and a remedy. None if a node has room."""
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
        return f"{short_number(value / GIB)} GiB of memory"
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

    If no node's zone has that name, the zones of the cluster stand for the zones of the region, in
    the order of their names. "us-east-1b" is then the second zone.
    """
    labels = sorted({label for it in nodes if (label := it.zone_label) is not None})
    if not labels or not zone:
        return None
    by_name = next((label for label in labels if label[1] == zone), None)
    label = by_name or labels[(ord(zone[-1]) - ord("a")) % len(labels)]
    has_room = any(it.zone_label == label and demand.fits(it.free) for it in nodes)
    return label if has_room else None


def _round_cpus(cpus: float) -> float:
    """Round up from one CPU on, because Ray takes fractions only below one CPU."""
    return cpus if cpus < 1 else float(math.ceil(cpus))


def connect(address: str | None, namespace: str) -> Any:
    """Connect to the cluster at `address`, by default this machine's. Returns the module `ray`.

    Raises TerminalError without Ray, or with another version than the cluster's, RetryableError if
    the cluster cannot be reached.
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
    # Only Ray's texts name the fault, such as another version, a wrong token, or no cluster.
    except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as error:
        text = f"no connection to the Ray cluster at {address or 'this machine'}: {error}"
        if "ersion mismatch" in str(error):
            raise TerminalError(text) from None
        raise RetryableError(text) from None
    return ray


def list_nodes(ray: Any) -> list[RayNode]:
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


def get_actor_state(ray: Any, actor: Any) -> str:
    """Ray's own state of the actor, `ALIVE` once it was placed and runs."""
    return str(ray._private.state.actors(actor._actor_id.hex()).get("State", DEAD))


class Start(msgspec.Struct, frozen=True):
    """An actor that was asked to start its instance, and its future answer.

    `had_room` says whether a node had room for it when it was made.
    """

    actor: Any
    answer: "asyncio.Future[bytes]"
    had_room: bool


class RayDriver:
    """The instances of one platform on a cluster.

    Args:
        ray: the connected module, with the namespace of the platform's actors.
        build_order: builds the order for the actor of an instance.
        runtime_env: Ray's runtime environment of actors. By default their nodes' installation.
        on_loss: called with the id of an instance whose actor died.
    """

    def __init__(
        self,
        ray: Any,
        build_order: Callable[[Instance], NodeOrder],
        runtime_env: Mapping[str, Any] | None,
        on_loss: Callable[[str], None],
    ) -> None:
        self._ray = ray
        self._build_order = build_order
        self._runtime_env = runtime_env
        self._on_loss = on_loss
        self._starts: dict[str, Start] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def launch(self, instance: Instance) -> RunningInstance:
        """Start the instance, or find it running. Raises as `Fleet.launch` does."""
        async with self._locks.setdefault(instance.id, asyncio.Lock()):
            for attempt in range(TRIES):
                try:
                    return await self._launch(instance)
                except self._ray.exceptions.ActorDiedError as error:
                    self._starts.pop(instance.id, None)
                    problem = _find_creation_error(error)
                    if problem is not None:
                        raise problem from None
                    LOG.info("instance %s, try %d: %s", instance.id, attempt + 1, error)
                except self._ray.exceptions.RayError as error:
                    self._starts.pop(instance.id, None)
                    raise _convert_ray_error(instance.id, error) from None
        raise RetryableError(f"the actor of instance {instance.id} died while it started")

    async def terminate(self, instance_id: str) -> None:
        """End the instance with its copies. Succeeds if it is gone."""
        self._starts.pop(instance_id, None)
        if (watch := self._watches.pop(instance_id, None)) is not None:
            watch.cancel()
        actor = await asyncio.to_thread(self._find_actor, instance_id)
        if actor is None:
            return
        if await asyncio.to_thread(get_actor_state, self._ray, actor) == ALIVE:
            await asyncio.wait({self._future(actor.stop.remote())}, timeout=STOP_S)
        await asyncio.to_thread(self._ray.kill, actor, no_restart=True)
        deadline = monotonic_s() + GONE_S
        while await asyncio.to_thread(self._find_actor, instance_id) is not None:
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

    async def _launch(self, instance: Instance) -> RunningInstance:
        start = self._starts.get(instance.id)
        if start is None:
            order = msgspec.json.encode(self._build_order(instance))
            actor, had_room = await asyncio.to_thread(self._find_or_make_actor, instance)
            answer = self._future(actor.start.remote(__version__, order))
            start = Start(actor, answer, had_room)
            self._starts[instance.id] = start
        await self._await_answer(instance, start)
        self._starts.pop(instance.id, None)
        started = decode(start.answer.result(), Started)
        if started.failure is not None:
            raise started.failure.error()
        self._watch(instance.id, start.actor)
        return RunningInstance(id=instance.id, address=_check_reachable(instance.id, started))

    async def _await_answer(self, instance: Instance, start: Start) -> None:
        """Wait for the actor's answer, while it has room or may get room.

        Raises CapacityError if no node has room. The actor keeps its place in the queue.
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
                state = await asyncio.to_thread(get_actor_state, self._ray, start.actor)
                raise RetryableError(
                    f"the actor of instance {instance.id} did not start within {LAUNCH_S:g} s: "
                    f"Ray's state of it is {state}"
                )

    def _why_pending(self, instance: Instance, actor: Any) -> str | None:
        if get_actor_state(self._ray, actor) == ALIVE:
            return None
        nodes = list_nodes(self._ray)
        return why_pending(instance, compute_demand(instance, nodes), nodes)

    def _find_actor(self, instance_id: str) -> Any | None:
        """The living or pending actor of the instance."""
        try:
            return self._ray.get_actor(instance_id)
        except ValueError:
            return None

    def _find_or_make_actor(self, instance: Instance) -> tuple[Any, bool]:
        """Find or make the instance's actor. True if it was made while a node had room for it."""
        actor = self._find_actor(instance.id)
        if actor is not None:
            return actor, False
        nodes = list_nodes(self._ray)
        demand = compute_demand(instance, nodes)
        asked = dict(demand.resources)
        options: dict[str, Any] = {
            "name": instance.id,
            "lifetime": "detached",
            "get_if_exists": True,
            "max_restarts": 0,  # control launches it again, as its copies may have moved
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
        actor = await asyncio.to_thread(self._find_actor, instance_id)
        if actor is None or await asyncio.to_thread(get_actor_state, self._ray, actor) != ALIVE:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                started = decode(await self._future(actor.running.remote()), Started)
        except (TimeoutError, self._ray.exceptions.RayError):
            return None
        return RunningInstance(id=instance_id, address=started.address) if started.address else None

    def _watch(self, instance_id: str, actor: Any) -> None:
        """Report the actor's death once it dies."""
        if instance_id not in self._watches:
            self._watches[instance_id] = asyncio.create_task(
                self._watch_until_lost(instance_id, actor)
            )

    async def _watch_until_lost(self, instance_id: str, actor: Any) -> None:
        while True:
            try:
                await self._future(actor.until_ended.remote())
            except self._ray.exceptions.ActorUnavailableError:
                await asyncio.sleep(POLL_S)  # Ray does not know yet whether it is dead
                continue
            except self._ray.exceptions.RayError as error:
                LOG.warning("instance %s is lost: %s", instance_id, error)
                self._on_loss(instance_id)
            self._watches.pop(instance_id, None)
            return

    def _future(self, ref: Any) -> "asyncio.Future[bytes]":
        return asyncio.wrap_future(ref.future())


def _check_reachable(instance_id: str, started: Started) -> str:
    """The agent's address for this process. Raises TerminalError if it cannot be reached."""
    if started.address.startswith("http://") and started.host != host_identity():
        raise TerminalError(
            f"instance {instance_id} is on node {started.node_address}, another machine than "
            "control's, whose agents it cannot reach: they listen on loopback. Start hostelry "
            "with --cluster-host and the address at which the nodes reach this machine"
        )
    return started.address


def _find_creation_error(error: Exception) -> HostelryError | None:
    """The error of an actor that cannot be made on its node, or None if it died."""
    text = str(error)
    if "No module named" in text or "ModuleNotFoundError" in text or "ImportError" in text:
        return TerminalError(
            "a Ray node cannot load Hostelry: install the same version on every node, or give it "
            f"with --ray-runtime-env. {text[-300:]}"
        )
    return None


def _convert_ray_error(instance_id: str, error: Exception) -> HostelryError:
    """Convert Ray's error on a launch. A failed runtime environment is terminal."""
    kind = type(error).__name__
    text = f"instance {instance_id}: {kind}: {str(error)[:500]}"
    return TerminalError(text) if "RuntimeEnv" in kind else RetryableError(text)
