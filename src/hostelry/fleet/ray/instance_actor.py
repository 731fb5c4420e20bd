"""The Ray actor that manages one instance, on the instance's node.

It starts the agent, and a node proxy if other hosts must reach the agent. It starts them again if
they die or hang. A watchdog ends them once the actor's process has ended for any cause. Ray imports
this module on the node, whose version of Hostelry may be a neighbour of control's.
"""

import asyncio
import contextlib
import importlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hostelry import __version__
from hostelry.base.clock import monotonic_s
from hostelry.base.concurrency import run_guarded
from hostelry.base.errors import HostelryError, RetryableError
from hostelry.base.json import decode
from hostelry.base.peers import are_neighbours
from hostelry.fleet.host.processes import is_alive, own_identity
from hostelry.fleet.local.fleet import AgentStart, LocalFleet
from hostelry.fleet.protocol import RunningInstance
from hostelry.fleet.ray import watchdog
from hostelry.fleet.ray.end_instance import end_instance
from hostelry.fleet.ray.instance_proxy import InstanceProxy
from hostelry.fleet.ray.messages import Failure, NodeOrder, Started
from hostelry.fleet.ray.node_home import NodeHome, find_left_over, make_home, write_files
from hostelry.fleet.records import InstanceFolder
from hostelry.fleet.rules.devices import find_real_devices

LOOK_S = 0.5  # between looks at the agent's process
ASK_S = 5.0  # between calls to it
REACH_S = 5.0
# Variables of a worker's environment: Ray's settings, its token, and settings for its tasks.
RAYS_OWN = ("RAY_", "AWS_")
RAYS_NAMES = frozenset({"OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PYTHONDONTWRITEBYTECODE"})


class InstanceActor:
    """One instance on this node. Every answer is JSON, so that both ends validate it."""

    def __init__(self) -> None:
        self._order: NodeOrder | None = None
        self._home: NodeHome | None = None
        self._fleet: LocalFleet | None = None
        self._proxy: InstanceProxy | None = None
        self._caring: asyncio.Task[None] | None = None
        self._watching: int | None = None  # the pipe whose end ends the instance
        self._ended = asyncio.Event()
        self._lock = asyncio.Lock()

    async def start(self, version: str, order: bytes) -> bytes:
        """`Started`, with the address or the failure. A repeated call starts nothing again."""
        if not are_neighbours(version, __version__):
            text = (
                f"node {_node_address()} has Hostelry {__version__} and control {version}: install "
                f"hostelry=={version} on the node, or give it with --ray-runtime-env"
            )
            return _answer("", Failure("terminal", text))
        try:
            async with self._lock:
                address = await self._start_instance(decode(order, NodeOrder))
        except HostelryError as error:
            return _answer("", Failure.of(error))
        return _answer(address)

    async def running(self) -> bytes:
        """`Started`, with the agent's address if it answers now."""
        found = [] if self._fleet is None else await self._fleet.list()
        return _answer(self._address(found[0]) if found else "")

    async def until_ended(self) -> None:
        """Wait for `stop`. An actor that dies fails the call."""
        await self._ended.wait()

    async def stop(self) -> None:
        """End the agent and every copy, and remove their home."""
        async with self._lock:
            if self._caring is not None:
                self._caring.cancel()
            if self._fleet is not None and self._order is not None and self._home is not None:
                await self._fleet.terminate(self._order.instance.id)
                await asyncio.to_thread(end_instance, self._home)
            if self._proxy is not None:
                self._proxy.close()
            self._home = self._fleet = self._order = self._proxy = None
            self._ended.set()

    async def _start_instance(self, order: NodeOrder) -> str:
        """Start the proxy and the agent unless they run. Returns the agent's address."""
        if self._home is None or self._fleet is None:
            await _check_reachable(order)
            await asyncio.to_thread(_prepare, order)
            self._home = make_home(order, _node_id())
            self._watch(self._home)
            self._fleet = _local_fleet(self._home, order)
        self._order = order
        if self._proxy is None and order.tls_files:
            self._proxy = _instance_proxy(self._home, order)
        write_files(self._home, order, {} if self._proxy is None else self._proxy.link_ports)
        running = await self._fleet.launch(order.instance)
        if self._proxy is not None:
            await self._proxy.launch()
        if self._caring is None:
            self._caring = asyncio.create_task(self._care())
        return self._address(running)

    def _address(self, running: RunningInstance) -> str:
        return running.address if self._proxy is None else self._proxy.address(running.id)

    async def _care(self) -> None:
        """Start agent and proxy again if their process ended, or does not answer."""
        asked_at = monotonic_s()
        while True:
            await asyncio.sleep(LOOK_S)
            is_due = monotonic_s() >= asked_at + ASK_S
            if is_due or (self._proxy is not None and not self._proxy.is_running):
                await run_guarded("starting the node proxy again", self._launch_proxy_again)
            if is_due or not _agent_lives(self._home, self._order):
                await run_guarded("starting the agent again", self._launch_again)
                asked_at = monotonic_s()

    async def _launch_again(self) -> None:
        async with self._lock:
            if self._fleet is not None and self._order is not None:
                await self._fleet.launch(self._order.instance)

    async def _launch_proxy_again(self) -> None:
        async with self._lock:
            if self._proxy is not None:
                await self._proxy.launch()

    def _watch(self, home: NodeHome) -> None:
        """Start the watchdog, and start it again if it dies."""
        read_end, self._watching = os.pipe()
        death, alive = os.pipe()
        argv = [sys.executable, "-I", "-S", watchdog.__file__, str(home.root), sys.executable]
        subprocess.run(
            argv,
            stdin=read_end,
            stdout=alive,
            stderr=subprocess.DEVNULL,
            env=operator_environment(os.environ),
            start_new_session=True,
            check=True,
        )
        os.close(read_end)
        os.close(alive)
        loop, before = asyncio.get_running_loop(), self._watching

        def on_death() -> None:
            loop.remove_reader(death)
            os.close(death)
            if self._home is home:
                os.close(before)
                self._watch(home)

        loop.add_reader(death, on_death)


def operator_environment(worker: Mapping[str, str]) -> dict[str, str]:
    """The environment of agents: a Ray worker's, without variables of Ray and AWS."""
    kept = {
        name: value
        for name, value in worker.items()
        if not name.startswith(RAYS_OWN) and name not in RAYS_NAMES
    }
    local = ",".join([it for it in (kept.get("NO_PROXY"),) if it] + ["127.0.0.1", "localhost"])
    return kept | {"NO_PROXY": local, "no_proxy": local, "PYTHONUNBUFFERED": "1"}


def host_identity() -> str:
    """The name of this kernel's network. Processes with the same name share a loopback."""
    return f"{own_identity().boot_id} {Path('/proc/self/ns/net').stat().st_ino}"


def _prepare(order: NodeOrder) -> None:
    """Remove homes of dead actors, and undo the high OOM score that Ray gives its workers."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("0")
    for old in list(find_left_over(order)):
        end_instance(old)


def _answer(address: str, failure: Failure | None = None) -> bytes:
    started = Started(
        host=host_identity(), node_address=_node_address(), address=address, failure=failure
    )
    return msgspec.json.encode(started)


def _local_fleet(home: NodeHome, order: NodeOrder) -> LocalFleet:
    """The instance as the local fleet runs it, on this node."""
    environment = operator_environment(os.environ)
    return LocalFleet(
        home.instances,
        [sys.executable, "-m", order.agent_module, "--home", str(home.root)],
        order.internal_key,
        # Ray has set CUDA_VISIBLE_DEVICES to this actor's devices.
        devices=find_real_devices(environment, os.listdir("/dev")),
        start=AgentStart(environment),
    )


def _instance_proxy(home: NodeHome, order: NodeOrder) -> InstanceProxy:
    """The proxy through which other hosts reach the instance, on the node's own address."""
    command = [sys.executable, "-m", order.proxy_module, "--home", str(home.root)]
    return InstanceProxy(
        home,
        [*command, "--instance-id", order.instance.id],
        _node_address(),
        operator_environment(os.environ),
        order.links,
    )


def _agent_lives(home: NodeHome | None, order: NodeOrder | None) -> bool:
    if home is None or order is None:
        return True
    record = InstanceFolder(home.instances / order.instance.id).load_agent()
    return record is not None and is_alive(record.process)


async def _check_reachable(order: NodeOrder) -> None:
    """Raise RetryableError if this node cannot connect to the object store, or its proxy."""
    host, port = order.reachable
    try:
        async with asyncio.timeout(REACH_S):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        raise RetryableError(
            f"node {_node_address()} does not reach {host}:{port}, by which it is to get models "
            f"({error or 'no answer'}): start hostelry with an address that the nodes reach, as "
            "--cluster-host, or in --s3-endpoint where the object store is your own"
        ) from None
    writer.close()


def _node_id() -> str:
    context = importlib.import_module("ray").get_runtime_context()
    return str(context.get_node_id())


def _node_address() -> str:
    return str(importlib.import_module("ray").util.get_node_ip_address())
