"""The local fleet: every ML instance is an agent process on this machine.

An agent runs in its own session and outlives the process that started it. Processes are found again
by the records in the instances' folders, never by a bare pid.
"""

import asyncio
import fcntl
import logging
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import Fenced, RetryableError, TerminalError
from hostelry.base.files import write_whole
from hostelry.base.peers import LeaderEpoch
from hostelry.base.proc import ProcessIdentity
from hostelry.domain.copy import Instance
from hostelry.fleet.host.processes import WatchedProcess, is_alive, send
from hostelry.fleet.launch.container_launcher import end_copies, end_copy
from hostelry.fleet.launch.copy_log import CopyLog
from hostelry.fleet.launch.limited_process import release
from hostelry.fleet.local.client import HttpAgent
from hostelry.fleet.protocol import RunningInstance
from hostelry.fleet.records import (
    AgentRecord,
    InstanceFolder,
    instance_folders,
    plain_name,
)
from hostelry.fleet.rules.devices import assign_devices

LOG = logging.getLogger(__name__)
GRACE_S = 10.0
START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 8.0
KILL_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 14.0
POLL_S = 0.05
LOG_TAIL_LINES = 20
KILL_COUNTS_S = 3600.0  # after this time a kill does not count any more
MAX_DOUBLINGS = 4


def patience_s(first_s: float, kills: Sequence[float], now: float) -> float:
    """Seconds that an agent has to answer, before it is killed and started again.

    The time begins with `first_s` and doubles with each of the `kills`, because an agent that had
    too little time on a busy machine needs more time, not another start.
    """
    return first_s * 2.0 ** min(sum(now - at < KILL_COUNTS_S for at in kills), MAX_DOUBLINGS)


class WarmAgents(Protocol):
    """Starts agents without a new interpreter."""

    async def fork(
        self, argv: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> WatchedProcess | None:
        """Fork a process that waits for `begin`. None if it must be started as a program."""
        ...


class AgentStart:
    """Starts agents with the variables `environment`, by default this process's own."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, forks: WarmAgents | None = None
    ) -> None:
        self._environment = environment
        self._forks = forks

    async def start(self, argv: Sequence[str], log: Path) -> WatchedProcess:
        """Start a process, which may wait for `begin`. Raises TerminalError without the program."""
        # A full disk, which has no room for the log, raises OSError instead.
        os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        environment = os.environ if self._environment is None else self._environment
        if self._forks is not None:
            forked = await self._forks.fork(argv, environment, log)
            if forked is not None:
                return forked
        try:
            return WatchedProcess.start(argv, environment, Path(), log)
        except OSError as error:
            why = error.strerror or str(error)
            raise TerminalError(f"cannot start {Path(argv[0]).name}: {why}") from error


def stop_everything(root: Path, grace_s: float = GRACE_S) -> None:
    """End every agent and copy recorded under `root`, the folder of instances. Blocks. Idempotent.

    Copies get `grace_s` after the TERM. Agents are killed at once, because their state is on disk.
    Works if agents are dead or hung.
    """
    if not root.is_dir():
        return
    folders = [InstanceFolder(path) for path in root.resolve().iterdir() if path.is_dir()]
    # Agents first, because a living agent would restart its copies.
    agents = [agent for folder in folders for agent in folder.load_agents() if is_alive(agent)]
    send(agents, signal.SIGKILL)
    if not any(folder.copy_ids() for folder in folders):
        return
    copies = [group for folder in folders for group in _load_copies(folder)]
    end_copies(copies, grace_s)
    for folder, _ in copies:
        release(folder)


def _load_copies(folder: InstanceFolder) -> list[tuple[Path, ProcessIdentity | None]]:
    copies = [folder.copy(copy_id) for copy_id in folder.copy_ids()]
    records = [(copy.root, copy.load()) for copy in copies]
    return [(path, record.process if record else None) for path, record in records]


class LocalFleet:
    """Instances as folders under `root`, agents as processes. Implements `fleet.protocol.Fleet`.

    Args:
        root: the folder that holds one folder per instance.
        command: the command line of an agent. ``--instance-id ID`` is appended.
        internal_key: the key of every internal call.
        answer_timeout_s: after this time without an answer an agent is replaced. The time doubles
            with each replacement.
        devices: the machine's accelerators, for instances that declare accelerators.
        epoch: the leader's epoch for calls to agents. None for a single control.
        start: starts agents. By default as programs, with this process's environment.
    """

    def __init__(
        self,
        root: Path,
        command: Sequence[str],
        internal_key: str,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        devices: Sequence[str] = (),
        epoch: LeaderEpoch | None = None,
        start: AgentStart | None = None,
    ) -> None:
        self._root = root.resolve()
        self._command = tuple(command)
        self._key = internal_key
        self._answer_timeout_s = answer_timeout_s
        self._devices = tuple(devices)
        self._epoch = epoch
        self._agents = start or AgentStart()
        self._locks: dict[str, asyncio.Lock] = {}
        self._kills: dict[str, list[float]] = {}

    async def launch(self, instance: Instance) -> RunningInstance:
        """Start the instance's agent, or return the running agent.

        Raises TerminalError if the agent cannot start, RetryableError if it does not answer.
        """
        async with self._lock(instance.id):
            folder = self._folder(instance.id)
            folder.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(folder.instance, msgspec.json.encode(instance))
            self._give_devices(folder, instance.shape.accelerators)
            running = await self._await_answer(folder)
            if running is not None:
                return running
            await self._end_hung_agent(folder)
            # An agent that finds the lock taken exits, as an agent that cannot start does.
            if not await _wait_for(lambda: _is_free(folder.lock), self._answer_timeout_s):
                raise RetryableError(
                    f"the last agent of instance {instance.id} still holds {folder.lock.name} "
                    f"after {self._answer_timeout_s:g} s"
                )
            return await self._start(instance.id, folder)

    async def terminate(self, instance_id: str) -> None:
        """Stop the agent and its copies, and remove its folder. Succeeds if it is gone."""
        async with self._lock(instance_id):
            folder = self._folder(instance_id)
            if not folder.root.exists():
                return
            await self._ask_to_stop(folder)
            await self._end_hung_agent(folder)
            await asyncio.gather(*(_end_copy(folder, it) for it in folder.copy_ids()))
            for copy_id in folder.copy_ids():
                folder.copy(copy_id).keep_log()
            await asyncio.to_thread(shutil.rmtree, folder.root, ignore_errors=True)
            self._kills.pop(instance_id, None)

    async def list(self) -> Sequence[RunningInstance]:
        """Every instance whose agent answers now."""
        folders = instance_folders(self._root)
        found = await asyncio.gather(*(self._find_running(folder) for folder in folders))
        return [running for running in found if running is not None]

    def _folder(self, instance_id: str) -> InstanceFolder:
        return InstanceFolder(self._root / plain_name(instance_id))

    def _lock(self, instance_id: str) -> asyncio.Lock:
        return self._locks.setdefault(instance_id, asyncio.Lock())

    def _give_devices(self, folder: InstanceFolder, declared: int) -> None:
        """Choose the instance's real accelerators, once for its life."""
        if folder.load_devices() is None:
            others = [it.load_devices() or () for it in instance_folders(self._root)]
            chosen = assign_devices(declared, self._devices, others)
            write_whole(folder.devices, msgspec.json.encode(chosen), durable=False)

    async def _await_answer(self, folder: InstanceFolder) -> RunningInstance | None:
        """The instance, if its agent lives and answers in the agent's present time limit."""
        kills = self._kills.get(folder.root.name, ())
        deadline = monotonic_s() + patience_s(self._answer_timeout_s, kills, monotonic_s())
        running = await self._find_running(folder)
        while running is None and kills and _has_living_agent(folder) and monotonic_s() < deadline:
            await asyncio.sleep(POLL_S)
            running = await self._find_running(folder)
        return running

    async def _find_running(self, folder: InstanceFolder) -> RunningInstance | None:
        """The instance, if its agent lives and answers."""
        record = folder.load_agent()
        if record is None or record.port == 0 or not is_alive(record.process):
            return None
        try:
            observation = await self._agent(record).observe()
        except Fenced:
            raise
        except RetryableError:
            return None
        if observation.instance_id != folder.root.name:
            return None
        return RunningInstance(id=folder.root.name, address=record.address)

    def _agent(self, record: AgentRecord) -> HttpAgent:
        return HttpAgent(record.address, self._key, self._answer_timeout_s, self._epoch)

    async def _end_hung_agent(self, folder: InstanceFolder) -> None:
        """Kill an agent that lives but does not answer. Its copies keep running."""
        for agent in folder.load_agents():
            if is_alive(agent):
                name = folder.root.name
                LOG.warning("agent of %s (pid %d) does not answer: it is killed", name, agent.pid)
                send([agent], signal.SIGKILL)
                self._kills.setdefault(name, []).append(monotonic_s())
                await _await_end(agent, KILL_TIMEOUT_S)

    async def _start(self, instance_id: str, folder: InstanceFolder) -> RunningInstance:
        child = await self._spawn(instance_id, folder)
        ended = asyncio.create_task(child.wait(), name=f"end of the agent of {instance_id}")
        timeout_s = patience_s(START_TIMEOUT_S, self._kills.get(instance_id, ()), monotonic_s())
        deadline = monotonic_s() + timeout_s
        try:
            while monotonic_s() < deadline:
                running = await self._find_running(folder)
                if running is not None:
                    return running
                if ended.done():
                    raise _build_start_error(instance_id, ended.result(), folder)
                await asyncio.wait({ended}, timeout=POLL_S)
        finally:
            ended.cancel()
        raise RetryableError(
            f"The agent of instance {instance_id} does not answer after {timeout_s:g} s"
        )

    async def _spawn(self, instance_id: str, folder: InstanceFolder) -> WatchedProcess:
        CopyLog(folder.agent_log).bound()
        argv = [*self._command, "--instance-id", instance_id]
        child = await self._agents.start(argv, folder.agent_log)
        write_whole(folder.starting, msgspec.json.encode(child.identity), durable=False)
        child.begin()
        return child

    async def _ask_to_stop(self, folder: InstanceFolder) -> None:
        """Ask the agent to shut down, and wait, so that its copies have time to end in order."""
        record = folder.load_agent()
        if record is None or record.port == 0 or not is_alive(record.process):
            return
        try:
            await self._agent(record).shutdown()
        except Fenced:
            raise
        except (RetryableError, TerminalError) as error:
            LOG.warning("instance %s: %s", folder.root.name, error)
            return
        await _await_end(record.process, STOP_TIMEOUT_S)


def _build_start_error(
    instance_id: str, code: int | None, folder: InstanceFolder
) -> TerminalError | RetryableError:
    """Build the error for an agent that ended before it answered.

    If a signal or an unknown cause ended it, it may start the next time.
    """
    tail = CopyLog(folder.agent_log).tail(LOG_TAIL_LINES) or "it printed nothing"
    agent = f"The agent of instance {instance_id}"
    if code is None:
        return RetryableError(f"{agent} ended at its start, for an unknown cause: {tail}")
    if code < 0:
        return RetryableError(f"{agent} was ended by signal {-code} at its start: {tail}")
    return TerminalError(f"{agent} exited with code {code}: {tail}")


def _has_living_agent(folder: InstanceFolder) -> bool:
    """Whether an agent of the instance still has a process."""
    return any(is_alive(it) for it in folder.load_agents())


async def _await_end(process: ProcessIdentity, timeout_s: float) -> bool:
    """Wait until the process is gone. False if it still lives after `timeout_s`."""
    return await _wait_for(lambda: not is_alive(process), timeout_s)


async def _wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until the condition is true. False if it is not true after `timeout_s`."""
    deadline = monotonic_s() + timeout_s
    while not condition():
        if monotonic_s() >= deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True


def _is_free(lock: Path) -> bool:
    """Whether no agent holds the lock.

    A killed process releases it with its last thread, which may still wait for the disk when the
    process already counts as dead.
    """
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


async def _end_copy(folder: InstanceFolder, copy_id: str) -> None:
    copy = folder.copy(copy_id)
    record = copy.load()
    await end_copy(copy.root, record.process if record else None, grace_s=1.0)
    await asyncio.to_thread(release, copy.root)
