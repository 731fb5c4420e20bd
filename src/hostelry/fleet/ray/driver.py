"""Calls of control carried out on Ray: instances as detached named actors, one name an instance.

    launch      the actor is found by its name, or made; it is asked to start the agent
    ... no room it stays pending, which is what Ray's autoscaler looks at; CapacityError meanwhile
    ... dead    another one is made
    terminate   the actor ends agent and copies, then is killed; a pending one is killed at once
    list        actors whose agent answers

The death of a launched instance is reported as soon as Ray knows it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
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
from hostelry.fleet.protocol import RunningInstance
from hostelry.fleet.ray.cluster import ALIVE, nodes_of, state_of
from hostelry.fleet.ray.demand import CPU, GPU, MEMORY, demand_of, why_pending
from hostelry.fleet.ray.instance_actor import InstanceActor, host_identity
from hostelry.fleet.ray.messages import NodeOrder, Started

log = logging.getLogger(__name__)

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
                    log.info("instance %s, try %d: %s", instance.id, attempt + 1, error)
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
                log.warning("instance %s is lost: %s", instance_id, error)
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
