"""Launchers of containers, and of all copies.

A container outlives its agent. Its record is in the copy's folder before the container is created.
Its first process is watched like the process of any other copy. A container without a network is
reached through its proxy (container_proxy.py).
"""

import asyncio
import contextlib
import itertools
import logging
import math
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from hostelry.base.concurrency import run_guarded
from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.base.guards import COPY_KEY_VARIABLE as KEY_VARIABLE
from hostelry.base.json import decode
from hostelry.base.proc import ProcessIdentity, boot_id, oom_kills
from hostelry.fleet.host.processes import (
    MARKER_VARIABLE,
    WatchedProcess,
    identify,
    stop_all,
    stop_processes,
)
from hostelry.fleet.launch.container_arguments import (
    ContainerPlan,
    ContainerState,
    EngineFacts,
    ImageFacts,
    check_reference,
    container_name,
    describe_container_exit,
    describe_failed_run,
    environment_file,
    inherited_variables,
    run_arguments,
)
from hostelry.fleet.launch.container_engine import (
    CommandResult,
    call,
    call_detached,
    find_engine,
    find_image,
    find_state,
)
from hostelry.fleet.launch.container_order import ContainerOrder, adapters_folder
from hostelry.fleet.launch.copy_log import CopyLog
from hostelry.fleet.launch.launcher import CopyProcess, Launcher, LaunchOrder, describe_exit

LOG = logging.getLogger(__name__)
RUN_TIMEOUT_S = 120.0
STOP_MARGIN_S = 30.0
ENDED_WITHIN_S = 10.0
LOOK_EVERY_S = 0.1
KERNEL_LOOK_S = 1.0
RESTART_PAUSES_S = (0.0, 0.2, 1.0, 5.0)  # by the number of a follower's ends
RECORD = "container.json"
PROXY_MODULE = "hostelry.fleet.launch.container_proxy"
NO_PID = 2**22 + 1  # above the kernel's bound, so that no process has it
OPERATORS = ("HOME", "LANG", "PATH", "PYTHONPATH", "XDG_RUNTIME_DIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord:
    """container.json: the container of a copy, from just before its creation to its removal.

    `followers` are our processes for it: its proxy, and the process that copies its log. Its proxy
    requires `key`, which is `None` if an older agent created the container.
    """

    name: str
    engine: EngineFacts
    port: int
    inner_port: int
    network: str
    max_memory_bytes: int | None = None
    followers: tuple[ProcessIdentity | None, ...] = (None, None)
    key: str | None = field(default=None, repr=False)

    @classmethod
    def load(cls, folder: Path) -> "ContainerRecord | None":
        """The record of the copy in `folder`, or None if the copy is not a container."""
        try:
            return decode((folder / RECORD).read_bytes(), cls)
        except (OSError, msgspec.DecodeError):
            return None

    def save(self, folder: Path) -> None:
        """Write the record. Raises OSError."""
        write_whole(folder / RECORD, msgspec.json.encode(self), durable=False)


class WatchedContainer:
    """A container's first process. Keeps its followers running meanwhile."""

    def __init__(self, identity: ProcessIdentity, folder: Path, record: ContainerRecord) -> None:
        self.identity = identity
        self._folder = folder
        self._record = record
        self._kernel_kills = oom_kills()

    @property
    def kernel_kills(self) -> int:
        """Processes that the kernel killed because memory ran out, in about the last second."""
        return oom_kills() - self._kernel_kills

    @property
    def memory_limit(self) -> str:
        """How its memory limit is enforced: "container" for its own control group, or ""."""
        kept = self._record.max_memory_bytes is not None and self._record.engine.keeps_limits
        return "container" if kept else ""

    @property
    def start_kind(self) -> str:
        """How it was started. Containers never start warm."""
        return "cold"

    async def wait(self) -> int | None:
        """Wait for the end. Only the engine knows the exit code (`explain_exit`)."""
        following = [
            asyncio.create_task(self._follow(at, argv))
            for at, argv in enumerate(build_follower_commands(self._record, self.identity.pid))
        ]
        following.append(asyncio.create_task(self._watch_kills()))
        try:
            return await WatchedProcess(self.identity).wait()
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)

    async def _watch_kills(self) -> None:
        while True:
            await asyncio.sleep(KERNEL_LOOK_S)
            seen = oom_kills()
            # After a pause, because a kill that was just counted may have ended this container.
            await asyncio.sleep(LOOK_EVERY_S)
            self._kernel_kills = seen

    async def _follow(self, at: int, argv: list[str]) -> None:
        """Keep one follower running. Adopts the follower that a previous agent started."""
        known = self._record.followers[at]
        process = WatchedProcess.adopt(known) if known is not None else None
        key = self._record.key if PROXY_MODULE in argv else None
        environment = follower_environment(self._folder, key)

        async def run_follower() -> None:
            nonlocal process
            if process is None:
                process = WatchedProcess.start(
                    argv, environment, self._folder, self._folder / "log"
                )
                self._remember(at, process.identity)
            await process.wait()
            LOG.warning("%s: %s ended and is started again", self._record.name, argv[0])

        name, failing = f"keeping {argv[0]} of {self._record.name}", False
        for ends in itertools.count(1):
            failing = not await run_guarded(name, run_follower, quiet=failing)
            process = None
            await asyncio.sleep(RESTART_PAUSES_S[min(ends, len(RESTART_PAUSES_S) - 1)])

    def _remember(self, at: int, identity: ProcessIdentity) -> None:
        known = [*self._record.followers[:at], identity, *self._record.followers[at + 1 :]]
        self._record = replace(self._record, followers=tuple(known))
        with contextlib.suppress(OSError):
            self._record.save(self._folder)


class ContainerLauncher:
    """Starts, adopts and ends containers. Implements `launcher.Launcher`."""

    def __init__(self) -> None:
        self._engines: dict[str | None, EngineFacts] = {}
        self._making: dict[Path, asyncio.Task[WatchedContainer]] = {}
        self._watched: dict[Path, WatchedContainer] = {}

    async def start(self, order: LaunchOrder) -> WatchedContainer:
        """Start the container.

        Raises TerminalError if no engine works, the image is not available or it does not start.
        """
        assert order.container is not None
        check_reference(order.container.image)
        engine = await self._engine(order.container.engine)
        image = await _provide_image(engine, order.container, CopyLog(order.log))
        # Shielded, because a container that starts after `stop` has looked for it would stay.
        making = asyncio.create_task(_make(engine, image, order, order.container))
        self._making[order.folder] = making
        making.add_done_callback(lambda done: self._on_made(order.folder, done))
        self._watched[order.folder] = await asyncio.shield(making)
        return self._watched[order.folder]

    def adopt(self, folder: Path, identity: ProcessIdentity) -> WatchedContainer | None:
        """The recorded container, or None if its first process has ended."""
        record = ContainerRecord.load(folder)
        if record is None or WatchedProcess.adopt(identity) is None:
            return None
        self._watched[folder] = WatchedContainer(identity, folder, record)
        return self._watched[folder]

    async def explain_exit(self, folder: Path, code: int | None) -> str:
        """Describe how the container ended, according to its engine."""
        record, watched = ContainerRecord.load(folder), self._watched.get(folder)
        kernel_kills = watched.kernel_kills if watched is not None else 0
        state = await _await_end(record) if record is not None else None
        if record is None or state is None:
            return describe_exit(code)
        return describe_container_exit(state, record.max_memory_bytes, kernel_kills)

    async def stop(self, folder: Path, leader: ProcessIdentity | None, grace_s: float) -> None:
        """End and remove the container: TERM to its first process, KILL after `grace_s`."""
        making = self._making.get(folder)
        if making is not None:
            await asyncio.wait([making])
        self._watched.pop(folder, None)
        if is_container(folder):
            await end_container(folder, leader, grace_s)

    def _on_made(self, folder: Path, done: "asyncio.Task[WatchedContainer]") -> None:
        if self._making.get(folder) is done:
            del self._making[folder]
        if not done.cancelled():
            done.exception()  # retrieved, because the caller has it, or was cancelled

    async def _engine(self, wanted: str | None) -> EngineFacts:
        """The engine, which is searched for only once."""
        if wanted not in self._engines:
            self._engines[wanted] = await find_engine(wanted)
        return self._engines[wanted]


def is_container(folder: Path) -> bool:
    """Whether the copy in `folder` has a container that is not removed yet."""
    return (folder / RECORD).exists()


async def end_container(folder: Path, leader: ProcessIdentity | None, grace_s: float) -> None:
    """End and remove the container of the copy in `folder`, with all its processes.

    If the engine does not answer, the stopped container stays, but none of its processes.
    """
    record = ContainerRecord.load(folder)
    if record is not None:
        stop = ["stop", "-t", str(math.ceil(grace_s)), record.name]
        await _call_quietly(record, stop, grace_s + STOP_MARGIN_S)
    await stop_processes(folder, leader, grace_s=0.0)
    if record is not None:
        await _call_quietly(record, ["rm", "--force", "--volumes", record.name], STOP_MARGIN_S)
        await asyncio.to_thread((folder / RECORD).unlink, missing_ok=True)


def build_follower_commands(record: ContainerRecord, pid: int) -> list[list[str]]:
    """The commands of the followers of the container whose first process is `pid`."""
    commands: list[list[str]] = []
    if record.network == "none":
        proxy = [sys.executable, "-m", PROXY_MODULE, f"--pid={pid}"]
        ports = [f"--port={record.port}", f"--inner-port={record.inner_port}"]
        commands.append([*proxy, *ports])
    if record.engine.kind == "docker":
        commands.append([*record.engine.argv, "logs", "--follow", record.name])
    return commands


async def _provide_image(engine: EngineFacts, order: ContainerOrder, notes: CopyLog) -> ImageFacts:
    """The image, pulled if necessary and allowed. Raises TerminalError."""
    found = await find_image(engine, order.image)
    if isinstance(found, ImageFacts):
        return found
    cause = found
    if order.pull:
        notes.note(f"the image {order.image} is not on this machine; {engine.kind} fetches it")
        pull = [*engine.argv, "pull", "--quiet", order.image]
        pulled = await call(pull, timeout_s=order.pull_timeout_s)
        if pulled.code == 0:
            found = await find_image(engine, order.image)
            if isinstance(found, ImageFacts):
                return found
        late = f"it was not there within {order.pull_timeout_s:g} s"
        cause = late if pulled.code is None else pulled.message
    tried = "cannot be pulled" if order.pull else "images.toml allows no pull"
    raise TerminalError(
        f'The image "{order.image}" is not on this machine and {tried}: {cause}. Build or import '
        f"it here ({engine.kind} build -t NAME FOLDER, {engine.kind} load -i FILE), or map it to a "
        "program of this machine with an [[image]] in images.toml."
    )


async def _make(
    engine: EngineFacts, image: ImageFacts, order: LaunchOrder, container: ContainerOrder
) -> WatchedContainer:
    """Create and start the container. Raises TerminalError, and OSError on a full disk."""
    plan = ContainerPlan(
        order=replace(container, model_folder=container.model_folder.resolve()),
        folder=order.folder,
        arguments=order.argv,
        environment=order.environment,
    )
    command = run_arguments(engine, image, plan)
    if not engine.keeps_limits:
        CopyLog(order.log).note(
            f"{engine.kind} without root keeps no limits of memory and CPUs on this machine's "
            "control groups (version 1)"
        )
    record = ContainerRecord(
        name=container_name(order.folder),
        engine=engine,
        port=container.port,
        inner_port=container.inner_port,
        network=container.network,
        max_memory_bytes=container.max_memory_bytes,
        key=container.key,
    )
    record.save(order.folder)
    adapters_folder(order.folder).mkdir(exist_ok=True)
    write_whole(plan.environment_file, environment_file(plan.environment).encode(), durable=False)
    started = await _run_engine(command, order)
    if started.code != 0 and "already in use" in started.message:
        # Left by a copy whose folder was removed by hand. The name includes the folder's path.
        await _call_quietly(record, ["rm", "--force", record.name], STOP_MARGIN_S)
        started = await _run_engine(command, order)
    with contextlib.suppress(OSError):
        plan.environment_file.unlink()
    if started.code != 0:
        raise TerminalError(describe_failed_run(container.image, started.message))
    return WatchedContainer(await _first_process(record), order.folder, record)


async def _run_engine(command: list[str], order: LaunchOrder) -> CommandResult:
    return await call_detached(
        command,
        timeout_s=RUN_TIMEOUT_S,
        environment={
            **client_environment(order.folder),
            **inherited_variables(order.environment),  # override the operator's of that name
        },
        log=order.log,
    )


def follower_environment(folder: Path, key: str | None = None) -> dict[str, str]:
    """The variables of a follower, without secrets except a proxy's `key`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in OPERATORS or name.startswith("DOCKER_")
    }
    shown = {} if key is None else {KEY_VARIABLE: key}
    return {**kept, **shown, MARKER_VARIABLE: str(folder)}


def client_environment(folder: Path) -> Mapping[str, str]:
    """The operator's variables for the engine's command, which the marker makes the copy's own."""
    return {**os.environ, MARKER_VARIABLE: str(folder)}


async def _first_process(record: ContainerRecord) -> ProcessIdentity:
    """The container's first process, or NO_PID if it has ended already."""
    state = await find_state(record.engine, record.name)
    if state is not None and state.pid is not None:
        found = identify(state.pid)
        return found or ProcessIdentity(pid=state.pid, start_ticks=-1, boot_id=boot_id())
    if state is not None and not state.running:
        return ProcessIdentity(pid=NO_PID, start_ticks=-1, boot_id=boot_id())
    raise TerminalError(
        f"{record.engine.kind} started the container {record.name} and does not report its process"
    )


async def _await_end(record: ContainerRecord) -> ContainerState | None:
    """The container's state once the engine has noticed its end, or None if it is late."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ENDED_WITHIN_S):
            while True:
                state = await find_state(record.engine, record.name)
                if state is None or not state.running:
                    return state
                await asyncio.sleep(LOOK_EVERY_S)
    return None


async def _call_quietly(record: ContainerRecord, arguments: list[str], timeout_s: float) -> None:
    """Call the engine, and only log a failure, because the container is mostly gone already."""
    try:
        done = await call([*record.engine.argv, *arguments], timeout_s=timeout_s)
    except OSError as error:
        LOG.warning("%s: %s", record.name, error)
        return
    if done.code != 0 and "no such container" not in done.message.lower():
        LOG.warning("%s %s: %s", record.engine.kind, " ".join(arguments), done.message)


Group = tuple[Path, ProcessIdentity | None]


class CopyLauncher:
    """Starts a program or a container, as ordered. Implements `launcher.Launcher`."""

    def __init__(self, programs: Launcher, containers: Launcher | None = None) -> None:
        self._programs = programs
        self._containers = containers or ContainerLauncher()

    async def start(self, order: LaunchOrder) -> CopyProcess:
        """Start the copy. Raises TerminalError if it cannot be started."""
        chosen = self._programs if order.container is None else self._containers
        return await chosen.start(order)

    def adopt(self, folder: Path, identity: ProcessIdentity) -> CopyProcess | None:
        """The recorded process of the copy in `folder`, or None if it has ended."""
        return self._choose_launcher(folder).adopt(folder, identity)

    async def explain_exit(self, folder: Path, code: int | None) -> str:
        """Describe how the copy ended."""
        return await self._choose_launcher(folder).explain_exit(folder, code)

    async def stop(self, folder: Path, leader: ProcessIdentity | None, grace_s: float) -> None:
        """End the copy: its container if it has one, then all remaining processes."""
        await self._containers.stop(folder, leader, grace_s)
        await self._programs.stop(folder, leader, grace_s)

    def _choose_launcher(self, folder: Path) -> Launcher:
        return self._containers if is_container(folder) else self._programs


async def end_copy(folder: Path, leader: ProcessIdentity | None, grace_s: float) -> None:
    """End the copy in `folder` without the launcher that started it."""
    if is_container(folder):
        await end_container(folder, leader, grace_s)
    await stop_processes(folder, leader, grace_s)


def end_copies(copies: Sequence[Group], grace_s: float) -> None:
    """As `end_copy` for all copies at once. Blocks, so not for a thread with an event loop."""
    containers = [group for group in copies if is_container(group[0])]
    programs = [group for group in copies if not is_container(group[0])]

    async def end_containers() -> None:
        await asyncio.gather(*(end_container(*group, grace_s) for group in containers))

    with ThreadPoolExecutor(max_workers=1) as thread:
        ended = thread.submit(lambda: asyncio.run(end_containers())) if containers else None
        stop_all(programs, grace_s)
        if ended is not None:
            ended.result()
