"""Agent of an instance: reconciles the desired copies with the ones it hosts.

It is level-triggered: it records the desired copies, then starts, adapts and stops copies.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from operator import attrgetter
from typing import Any

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.concurrency import run_guarded, run_periodically
from hostelry.base.errors import TerminalError
from hostelry.domain.copy import CopyPhase, CopySpec, CopyStatus
from hostelry.fleet.agent.copy_state import replace_members
from hostelry.fleet.agent.deps import CopyDeps
from hostelry.fleet.agent.hosted_copy import HostedCopy
from hostelry.fleet.agent.lifecycle import plan_copies
from hostelry.fleet.agent.metrics_pages import MetricsSource
from hostelry.fleet.agent.model_server import ModelServer
from hostelry.fleet.agent.models.copy_models import CopyModels
from hostelry.fleet.host.processes import find_members, process_table
from hostelry.fleet.host.usage import cpu_seconds, gpu_uses, memory_use, open_connections
from hostelry.fleet.launch.copy_log import CopyLog
from hostelry.fleet.protocol import Observation
from hostelry.fleet.records import InstanceFolder, plain_name

LOG = logging.getLogger(__name__)
Count = Callable[[Collection[int]], Mapping[int, int]]


class DrainCounts:
    """The latest counts of open connections by copy id. `count` takes ports and blocks briefly."""

    def __init__(self, count: Count = open_connections) -> None:
        self._count = count
        self._still_open: Mapping[str, int] = {}
        # Not the default pool: its threads may all hang with the object store.
        self._thread = ThreadPoolExecutor(1, "drains")

    def get(self, copy_id: str) -> int | None:
        """The open connections to a copy, or None if they were not counted."""
        return self._still_open.get(copy_id)

    async def refresh(self, copies: Mapping[str, int]) -> bool:
        """Count for `copies` (ports by id), forget all others, and return whether a count changed.

        Raises OSError if the kernel's tables cannot be read. The last counts then stay.
        """
        ports = set(copies.values())
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._thread, self._count, ports) if ports else {}
        now = {copy_id: found[port] for copy_id, port in copies.items()}
        changed, self._still_open = now != self._still_open, now
        return changed


MEASURE_EVERY_S = 5.0
COUNT_EVERY_S = 0.25
PACKAGES_EVERY_S = 600.0
MEMORY_STEP = 0.05
GATHER_S_PER_COPY, MAX_GATHER_S = 0.0005, 0.25
MEMORY_FLOOR_BYTES = 16 * 1024 * 1024
VERSIONED = attrgetter(*(it.name for it in fields(CopyStatus) if it.compare))


class InstanceAgent:
    """Runs the copies of one instance. Implements `fleet.protocol.Agent`."""

    def __init__(
        self,
        instance_id: str,
        folder: InstanceFolder,
        deps: CopyDeps,
        drains: DrainCounts | None = None,
    ) -> None:
        self._instance_id = instance_id
        self._folder = folder
        self._deps = deps
        # `None` until the first `apply`. Nothing is started or stopped before it.
        self._desired: tuple[CopySpec, ...] | None = None
        self._hosted: dict[str, HostedCopy] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopping: dict[str, asyncio.Task[None]] = {}
        self._cleared: set[str] = set()
        self._drains = drains or DrainCounts()
        self._changed = asyncio.Event()
        self._is_closing = False
        self._recording = asyncio.Lock()

    async def start(self) -> None:
        """Take over the desired copies and the running ones of the previous agent."""
        self._desired = self._folder.load_desired()
        self._reconcile()
        self._clear_left()

    async def await_adoption(self, timeout_s: float) -> None:
        """Wait until every adopted copy is proven again, for `timeout_s` at most.

        Then count the connections to draining copies, because control stops copies without a count.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not all(hosted.settled for hosted in self._hosted.values()):
                    await self._changed.wait()
        except TimeoutError:
            LOG.warning("copies are still being proven %g s after the start", timeout_s)
        await run_guarded("counting connections", self._count_connections)

    async def apply(self, copies: Sequence[CopySpec]) -> None:
        """Run exactly `copies`. Returns once they are recorded on disk.

        Raises TerminalError for invalid or repeated ids.
        """
        desired = tuple(copies)
        ids = [plain_name(spec.id) for spec in desired]
        if len(set(ids)) != len(ids):
            raise TerminalError(f"an id comes twice among the copies: {', '.join(sorted(ids))}")
        async with self._recording:
            if desired != self._desired:
                await asyncio.to_thread(self._folder.save_desired, desired)
                self._desired = desired
        self._reconcile()
        self._clear_left()

    async def observe(self, have: str | None = None, timeout_s: float = 0.0) -> Observation:
        """The current state. Waits up to `timeout_s` for a state whose version is not `have`."""
        observation = self._observation()
        try:
            async with asyncio.timeout(timeout_s):
                while observation.version == have and not self._is_closing:
                    await self._changed.wait()
                    await asyncio.sleep(gathering_s(len(observation.copies)))
                    observation = self._observation()
        except TimeoutError:
            pass
        return observation

    def close(self) -> None:
        """End all waits in `observe`. From now on it does not wait."""
        self._is_closing = True
        self._notify()

    async def log_tail(self, copy_id: str, max_lines: int = 100) -> str:
        """The last lines of the copy's log, empty without a log."""
        return self.hide_paths(CopyLog(self._folder.copy(copy_id).log).tail(max_lines))

    def hide_paths(self, text: str) -> str:
        """The text without paths of this machine."""
        return self._deps.hide_paths(text)

    def find_models(self, copy_id: str) -> tuple[CopyModels, str | None] | None:
        """The models of a multi-model copy and the copy's key, or None for any other copy."""
        hosted = self._hosted.get(copy_id)
        if hosted is None or hosted.models is None:
            return None
        return hosted.models, hosted.record.key

    def find_server(self, copy_id: str) -> ModelServer | None:
        """The model server of a copy, or None if the copy has no process."""
        hosted = self._hosted.get(copy_id)
        if hosted is None or hosted.status.address is None:
            return None
        return ModelServer(hosted.status.address, self._deps.http, hosted.record.key)

    def metrics_sources(self) -> list[MetricsSource]:
        """The ready copies, whose pages can be collected."""
        ready = [it for it in self._hosted.values() if it.status.phase is CopyPhase.READY]
        return [
            MetricsSource(copy.spec.id, server, copy.record.process, _is_built_in(copy))
            for copy in ready
            if (server := self.find_server(copy.spec.id)) is not None
        ]

    async def stop(self) -> None:
        """Stop every copy. Returns when all have stopped."""
        await self.apply(())
        while self._stopping:
            await asyncio.wait(list(self._stopping.values()))

    async def measure(self) -> None:
        """Measure memory, bound logs and count connections to draining copies, until cancelled.

        Also remove packages that no copy has used for long.
        """
        packages = self._deps.packages
        async with asyncio.TaskGroup() as tasks:
            if packages is not None:
                unused = packages.remove_unused
                removing = run_periodically("removing packages", unused, PACKAGES_EVERY_S)
                tasks.create_task(removing)
            memory = run_periodically("measuring memory", self._measure_memory, MEASURE_EVERY_S)
            drains = run_periodically("counting connections", self._follow_drains, COUNT_EVERY_S)
            tasks.create_task(memory)
            tasks.create_task(drains)

    async def _follow_drains(self) -> None:
        await self._count_connections()
        if not self._get_draining_ports():
            await self._changed.wait()

    async def _count_connections(self) -> None:
        if await self._drains.refresh(self._get_draining_ports()):
            self._notify()

    def _get_draining_ports(self) -> dict[str, int]:
        """The port of each draining copy with a process. A free port may soon be another's."""
        return {
            copy_id: it.record.port
            for copy_id, it in self._hosted.items()
            if it.spec.draining and it.record.process is not None
        }

    async def _measure_memory(self) -> None:
        hosted = list(self._hosted.values())
        uses = await asyncio.to_thread(_measure, hosted)
        machine = await asyncio.to_thread(gpu_uses) if self._deps.devices else {}
        for copy, (memory_bytes, cpu_s) in zip(hosted, uses, strict=True):
            copy.record_usage(cpu_s, monotonic_s(), machine)
            if is_worth_reporting(copy.status.memory_bytes, memory_bytes):
                copy.record_memory(memory_bytes)

    def _reconcile(self) -> None:
        """Start, adapt and stop copies so that the desired ones run."""
        if self._desired is None:
            return
        running = {
            copy_id: hosted.spec
            for copy_id, hosted in self._hosted.items()
            if copy_id not in self._stopping
        }
        plan = plan_copies(self._desired, running, self._stopping)
        for spec in plan.adapt:
            self._hosted[spec.id].adapt(spec)
        for copy_id in plan.stop:
            self._stop(copy_id, self._stop_copy(copy_id))
        for spec in plan.start:
            self._host(spec)
        self._deps.artifacts.retain({*self._hosted, *self._stopping})
        self._notify()

    def _clear_left(self) -> None:
        """End the remains of undesired copies, which a previous agent or a failed stop has left.

        Each copy is cleared once, so that a folder that cannot be removed does not cause a loop.
        """
        if self._desired is None:
            return
        for copy_id in set(self._folder.copy_ids()) - {*self._hosted, *self._stopping}:
            if copy_id not in self._cleared:
                self._cleared.add(copy_id)
                self._stop(copy_id, self._clear(copy_id))

    def _host(self, spec: CopySpec) -> None:
        folder = self._folder.copy(spec.id)
        hosted = HostedCopy(spec, folder, self._deps, self._notify, lambda: self._desired or ())
        self._hosted[spec.id] = hosted
        self._cleared.discard(spec.id)
        task = asyncio.create_task(hosted.run(), name=f"copy {spec.id}")
        task.add_done_callback(lambda done: _report_defect(done, hosted))
        self._running[spec.id] = task

    def _stop(self, copy_id: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"stop {copy_id}")
        self._stopping[copy_id] = task

        def finish(done: "asyncio.Task[None]") -> None:
            del self._stopping[copy_id]
            self._reconcile()
            if not done.cancelled() and (error := done.exception()) is not None:
                LOG.error("stopping copy %s failed", copy_id, exc_info=error)
                self._clear_left()

        task.add_done_callback(finish)

    async def _stop_copy(self, copy_id: str) -> None:
        running = self._running.pop(copy_id)
        running.cancel()
        await asyncio.wait([running])
        try:
            await self._hosted[copy_id].stop()
        finally:
            del self._hosted[copy_id]

    async def _clear(self, copy_id: str) -> None:
        """End the remains of an undesired copy."""
        folder = self._folder.copy(copy_id)
        hosted = folder.load()
        await self._deps.launcher.stop(
            folder.root, hosted.process if hosted else None, self._deps.policy.stop_grace_s
        )
        self._deps.artifacts.release(copy_id)
        await asyncio.to_thread(folder.remove)

    def _observation(self) -> Observation:
        statuses = {
            copy_id: replace_members(hosted.status, open_connections=self._drains.get(copy_id))
            for copy_id, hosted in self._hosted.items()
        }
        for copy_id in self._stopping:
            statuses.setdefault(copy_id, CopyStatus(id=copy_id, phase=CopyPhase.STOPPING))
        copies = tuple(statuses[copy_id] for copy_id in sorted(statuses))
        return Observation(
            instance_id=self._instance_id, version=compute_version(copies), copies=copies
        )

    def _notify(self) -> None:
        """Wake all callers that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()


def gathering_s(num_copies: int) -> float:
    """Seconds to wait for further changes after a change, so that one report has them all.

    A report holds every copy. A report per change would cost the square of the number of copies.
    """
    return min(num_copies * GATHER_S_PER_COPY, MAX_GATHER_S)


def compute_version(copies: Sequence[CopyStatus]) -> str:
    """A digest of `copies` without their use and models, which change all the time."""
    return hashlib.sha256(msgspec.json.encode([VERSIONED(it) for it in copies])).hexdigest()[:32]


def is_worth_reporting(known_bytes: int, measured_bytes: int) -> bool:
    """True if memory changed by more than 5 % and 16 MiB. Every report wakes control."""
    step_bytes = max(MEMORY_FLOOR_BYTES, known_bytes * MEMORY_STEP)
    return abs(measured_bytes - known_bytes) > step_bytes


def _is_built_in(hosted: HostedCopy) -> bool:
    rule = hosted.record.rule
    return rule is not None and rule.is_built_in


def _measure(hosted: Sequence[HostedCopy]) -> list[tuple[int, float]]:
    """Resident memory and CPU seconds of each copy, from one scan of the process table.

    Also bounds their logs.
    """
    table = process_table()
    for copy in hosted:
        CopyLog(copy.folder.log).bound()
    mine = [find_members(table, copy.folder.root, copy.record.process) for copy in hosted]
    return [(memory_use(processes).resident_bytes, cpu_seconds(processes)) for processes in mine]


def _report_defect(done: "asyncio.Task[None]", hosted: HostedCopy) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        LOG.error("copy %s: its task broke", hosted.spec.id, exc_info=error)
        hosted.report_defect(error)
