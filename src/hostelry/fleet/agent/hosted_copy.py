"""One copy on this instance, from its artifacts to a proven model server.

One task goes through PENDING, DOWNLOADING, STARTING, PROVING, READY and starts over when the
process ends. lifecycle.py decides the next step, and this module carries it out.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.proc import ProcessIdentity, cpu_wait_s
from hostelry.domain.copy import CopyPhase, CopySpec, CopyStatus, GpuUse
from hostelry.domain.log_source import parse_source
from hostelry.fleet.agent.adapters import CopyAdapters, find_adapter_mount
from hostelry.fleet.agent.code_packages import CodePlace
from hostelry.fleet.agent.copy_state import CopyState, hide_status_paths, replace_members
from hostelry.fleet.agent.deps import CopyDeps
from hostelry.fleet.agent.isolation import look_at_isolation
from hostelry.fleet.agent.lifecycle import (
    GONE_MEANWHILE,
    Attempts,
    Ending,
    EndKind,
    FailCopy,
    PingHealth,
    PingVerdict,
    RestartCopy,
    add_note,
    decide_after_end,
    describe_late_start,
    describe_probe_failure,
    describe_proof,
    describe_restart,
    describe_start_failure,
    ping_limit_s,
    ping_verdict,
    ready_pause_s,
    start_limit,
    starting_pause_s,
    update_health,
)
from hostelry.fleet.agent.model_files import ModelFiles, read_model_ahead
from hostelry.fleet.agent.model_server import ModelServer, find_ping_fault, serve_with_call_keys
from hostelry.fleet.agent.models.copy_models import add_models_address, build_copy_models
from hostelry.fleet.agent.orders import (
    build_launch_order,
    build_place,
    describe_order,
    find_hub_downloads,
    find_left_out_names,
    resolve_rule,
)
from hostelry.fleet.agent.package_install import ensure_runtime
from hostelry.fleet.artifacts.protocol import RoleArtifacts
from hostelry.fleet.host.processes import SCANS, find_members, process_table
from hostelry.fleet.host.usage import memory_use, select_gpu_uses
from hostelry.fleet.launch.launcher import CopyProcess
from hostelry.fleet.records import CopyFolder, CopyRecord
from hostelry.fleet.rules.devices import select_copy_devices
from hostelry.fleet.rules.given_variables import given_variables
from hostelry.fleet.rules.images import ImageRule
from hostelry.fleet.rules.isolation import describe_missing
from hostelry.fleet.rules.limits import num_sharing


class HostedCopy:
    """A copy and the task that keeps it running."""

    def __init__(
        self,
        spec: CopySpec,
        folder: CopyFolder,
        deps: CopyDeps,
        on_change: Callable[[], None],
        get_desired: Callable[[], Sequence[CopySpec]],
    ) -> None:
        self.spec = spec
        self._get_desired = get_desired  # returns the desired copies of the instance
        self._folder = folder
        self._deps = deps
        self._on_change = on_change
        self._state = CopyState(spec, folder, deps, on_change)
        self._log = self._state.log
        self._attempts = Attempts()
        # Held so that it is not garbage collected. Nothing awaits it.
        self._reading_ahead: asyncio.Task[int] | None = None
        self._started_at: float | None = None  # None: started by a previous agent
        self._ready_at: float | None = None
        self._process: CopyProcess | None = None
        self._end_turn: Callable[[], None] = lambda: None
        artifacts = RoleArtifacts(deps.artifacts, spec.container.role)
        self._files = ModelFiles(
            spec=spec,
            model=folder.model,
            artifacts=artifacts,
            policy=deps.policy,
            note=self._log.note,
            report_wait=self._state.report_wait,
        )
        self._adapters = CopyAdapters(
            spec.id,
            artifacts,
            spec.download_timeout_s,
            self._log.note,
            self._on_adapters_change,
        )
        self._adapters.set_desired(spec.adapters)
        self._started_by: ImageRule | None = None
        sharing = num_sharing(get_desired())
        self.models = build_copy_models(
            spec, deps, folder.root, self._log.note, self._resident_bytes, sharing
        )

    @property
    def status(self) -> CopyStatus:
        """The current status."""
        status = replace_members(self._state.status, adapters=self._adapters.statuses)
        status = hide_status_paths(status, self._deps.hide_paths)
        return add_models_address(status, self.models, self._deps.address)

    @property
    def folder(self) -> CopyFolder:
        """The folder of the copy's record, log and model."""
        return self._folder

    @property
    def record(self) -> CopyRecord:
        """The record as the next agent would read it."""
        return self._state.record

    @property
    def settled(self) -> bool:
        """Whether adoption is over: the copy is proven, has failed, or is being started."""
        if self._state.phase is CopyPhase.READY:
            return self._adapters.settled
        return self._state.phase not in (CopyPhase.PENDING, CopyPhase.PROVING)

    def adapt(self, spec: CopySpec) -> None:
        """Follow a spec that differs only in adapters and draining."""
        self.spec = spec
        self._adapters.set_desired(spec.adapters)
        self._on_change()

    def record_memory(self, memory_bytes: int) -> None:
        """Report the memory of the copy's processes."""
        peak_bytes = max(memory_bytes, self._state.status.peak_memory_bytes)
        self._state.amend(memory_bytes=memory_bytes, peak_memory_bytes=peak_bytes)
        self._on_change()

    def record_usage(self, cpu_s: float, at_s: float, machine: Mapping[str, GpuUse]) -> None:
        """Record the copy's use without waking callers. The next report has it.

        `machine` is the use of all accelerators of the machine.
        """
        needs = self.spec.requirements
        accelerators = None if needs is None else needs.accelerators
        devices = select_copy_devices(self.spec.device_ids, accelerators, self._deps.devices)
        gpus = select_gpu_uses(devices, machine)
        self._state.amend(cpu_s=cpu_s, cpu_at=at_s, gpus=gpus)

    async def run(self) -> None:
        """Keep the copy running until cancelled. Returns once it has failed for good."""
        try:
            await self._run_processes()
        except (TerminalError, OSError) as error:
            self._state.fail(add_note(str(error), self._started_by))

    async def stop(self) -> None:
        """End every process of the copy, forget its artifacts and remove its folder."""
        self._state.report(CopyPhase.STOPPING)
        if self.models is not None:
            await self.models.close()
        await self._end(self._state.record.process, self._deps.policy.stop_grace_s)
        self._deps.artifacts.release(self.spec.id)
        await asyncio.to_thread(self._folder.remove)

    def report_defect(self, error: BaseException) -> None:
        """Fail the copy because the agent's task for it raised, which is a defect of the agent."""
        self._state.fail(f"The agent failed on this copy: {type(error).__name__}: {error}")

    async def _run_processes(self) -> None:
        self._folder.root.mkdir(parents=True, exist_ok=True)
        if self._deps.instance is not None:
            self._folder.save_source(parse_source(self._deps.instance, self.spec))
        process = await self._adopt()
        if self._state.record.failure is not None:
            raise TerminalError(self._state.record.failure)
        while True:
            ending = await self._run_process(process)
            process = None
            self._log.note(ending.detail)
            await self._end(self._state.record.process, grace_s=0.0)
            self._attempts, step = decide_after_end(self._attempts, ending, self._deps.policy)
            if isinstance(step, FailCopy):
                raise TerminalError(describe_start_failure(self.spec, ending))
            await self._await_restart(step, ending)

    async def _run_process(self, process: CopyProcess | None) -> Ending:
        """Run one process, started or adopted, to its end.

        Raises TerminalError or OSError if a copy that was never ready cannot be started.
        """
        try:
            process = process or await self._start()
        except (TerminalError, OSError) as error:
            self._end_turn()
            if not self._attempts.ever_ready:
                raise
            return Ending(kind=EndKind.NOT_STARTED, detail=f"It cannot be started again: {error}")
        rule = self._state.record.rule
        assert rule is not None
        return await self._watch_process(process, rule.again if self._attempts.ever_ready else rule)

    def _resolve_rule(self) -> ImageRule:
        """The image's rule in the operator's current file."""
        deps = self._deps
        return resolve_rule(
            self.spec.container,
            deps.images_file,
            deps.operator_environment,
            no_own_user=deps.no_own_users,
        )

    async def _adopt(self) -> CopyProcess | None:
        """Adopt the process of a previous agent if it runs the desired spec, else end it."""
        found = self._folder.load()
        if found is None or found.spec_digest != self._state.record.spec_digest:
            await self._end(found.process if found else None, grace_s=1.0)
            self._deps.artifacts.release(self.spec.id)
            return None
        self._state.record = found
        self._attempts = Attempts(ever_ready=found.ever_ready)
        process = None
        if found.process is not None:
            process = self._deps.launcher.adopt(self._folder.root, found.process)
        if process is None or found.rule is None:
            if found.process is not None and process is None:
                self._state.record_end(GONE_MEANWHILE)
            await self._end(found.process, grace_s=1.0)
            return None
        self._adapters.on_process_start(
            found.adapters, find_adapter_mount(found.rule, self._folder.root)
        )
        self._log.note(f"adopted process {process.identity.pid}")
        self._state.amend(left_out=find_left_out_names(self.spec, found.rule))
        self._state.report(
            CopyPhase.PROVING,
            pid=process.identity.pid,
            address=self._state.address,
            key=found.key,
            restarts=found.restarts,
            memory_limit=process.memory_limit,
        )
        return process

    async def _end(self, leader: ProcessIdentity | None, grace_s: float) -> None:
        await self._deps.launcher.stop(self._folder.root, leader, grace_s)

    async def _start(self) -> CopyProcess:
        rule, operator = self._resolve_rule(), self._deps.operator_environment
        self._started_by = rule
        if rule.note:
            self._log.note(rule.note)
        if not self._attempts.ever_ready:
            self._state.report(CopyPhase.DOWNLOADING, self._state.restart_reason)
        if rule.runtime is not None:
            await ensure_runtime(rule.runtime, operator, self._log.note, self._state.report_wait)
        given = given_variables(
            self.spec.container.environment, rule.environment, self._deps.machine_cpus
        )
        for warm in self._deps.warm:  # imports modules while files are downloaded
            warm.prepare(rule.argv, given)
        substitutes = await self._files.fetch(
            find_hub_downloads(rule, self.spec.container, operator)
        )
        packages = await self._provide_packages(rule, given, substitutes)
        reading = asyncio.to_thread(read_model_ahead, self._folder.model)
        self._reading_ahead = asyncio.create_task(reading, name="read ahead")
        await self._take_turn()
        place = build_place(self.spec, self._folder, self._deps, self._get_desired())
        self._state.report_left_out(find_left_out_names(self.spec, rule))
        order = build_launch_order(self.spec, rule, place, substitutes, operator)
        order = dataclasses.replace(order, environment={**order.environment, **packages})
        self._log.note(f"starting {describe_order(order)} on port {place.port}")
        self._started_at = monotonic_s()
        process = await self._deps.launcher.start(order)
        self._adapters.on_process_start((), find_adapter_mount(rule, self._folder.root))
        self._state.remember(
            process=process.identity, port=place.port, key=order.key, adapters=(), rule=rule
        )
        self._state.report(
            CopyPhase.STARTING,
            self._state.restart_reason,
            pid=process.identity.pid,
            address=self._state.address,
            key=order.key,
            memory_limit=process.memory_limit,
            peak_memory_bytes=0,
            start_kind=process.start_kind,
            start_s=None,
        )
        return process

    async def _take_turn(self) -> None:
        """Wait until few enough other copies of the instance are starting."""
        turns = self._deps.start_turns
        if not turns.is_free:
            self._state.report_wait(
                "Other copies of its instance are starting: it waits for its turn."
            )
        self._end_turn = await turns.take(self._starved_s)

    def _starved_s(self) -> float:
        """Seconds for which the copy's process has waited for a CPU."""
        process = self._state.record.process
        return 0.0 if process is None else cpu_wait_s(process.pid)

    async def _provide_packages(
        self, rule: ImageRule, given: Mapping[str, str], substitutes: Mapping[str, str]
    ) -> Mapping[str, str]:
        """The variable with the packages of the model's code, if copies share packages."""
        if self._deps.packages is None or rule.runtime is None:
            return {}
        code = CodePlace(self._folder, {**given, **substitutes}, tuple(substitutes.values()))
        return await self._deps.packages.provide(
            rule.runtime, code, self._log.note, self._state.report_wait
        )

    async def _watch_process(self, process: CopyProcess, rule: ImageRule) -> Ending:
        """Watch one process until it exits, fails to start, or hangs."""
        self._ready_at, self._process = None, process
        exited = asyncio.create_task(process.wait())
        key, deps, role = self._state.record.key, self._deps, self.spec.container.role
        server = ModelServer(self._state.address, deps.http, key, deps.ask_status)
        keys = partial(deps.call_keys, role) if rule.invokes and deps.call_keys else None
        serves = serve_with_call_keys(self._serve(rule, server), server, keys, self._deps.clock)
        serving = asyncio.create_task(serves)
        try:
            await asyncio.wait([exited, serving], return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                detail = await self._deps.launcher.explain_exit(self._folder.root, exited.result())
                return self._build_ending(EndKind.EXITED, detail)
            return serving.result()
        finally:
            self._end_turn()
            await _cancel(exited, serving)

    async def _serve(self, rule: ImageRule, server: ModelServer) -> Ending:
        deadline = monotonic_s() + start_limit(self.spec).seconds
        ending = await self._wait_until_ready(server, rule, deadline)
        if ending is not None:
            return ending
        own = find_members(await SCANS.fresh(), self._folder.root, self._state.record.process)
        self.record_memory((await asyncio.to_thread(memory_use, own)).resident_bytes)
        timeout_s = self._deps.policy.probe_timeout_s
        adapters = asyncio.create_task(self._adapters.serve(server, rule.probe, timeout_s))
        pings = asyncio.create_task(self._watch_pings(server, rule))
        try:
            await asyncio.wait([adapters, pings], return_when=asyncio.FIRST_COMPLETED)
            if adapters.done():
                adapters.result()  # never returns: raises what ended it
            return pings.result()
        finally:
            await _cancel(adapters, pings)

    async def _wait_until_ready(
        self, server: ModelServer, rule: ImageRule, deadline: float
    ) -> Ending | None:
        """Wait for /ping, then send the probe. Returns None once READY."""
        policy, began_at, refusals = self._deps.policy, monotonic_s(), 0
        port, folder = self._state.record.port, self._folder.root
        while cause := await find_ping_fault(server, policy.ping_timeout_s, port, folder):
            if monotonic_s() >= deadline:
                return self._build_late_ending(cause)
            await asyncio.sleep(starting_pause_s(monotonic_s() - began_at, policy))
        self._end_turn()
        held = await look_at_isolation(self.spec, self._state.record, folder)
        self._state.report(CopyPhase.PROVING, self._state.restart_reason, isolation=held)
        if held.missing:
            return self._build_ending(EndKind.NOT_ISOLATED, describe_missing(held))
        if self.models is not None:
            mount, adopted = find_adapter_mount(rule, self._folder.root), self._started_at is None
            await self.models.use_server(server, mount, adopted=adopted)
        fault = None
        while True:
            left_s = deadline - monotonic_s()
            if fault is not None and left_s < policy.ping_every_s:  # too short to prove anything
                return self._build_late_ending(describe_probe_failure(rule, fault))
            limit_s = min(policy.probe_timeout_s, max(policy.ping_every_s, left_s))
            answer = await server.prove(rule.probe, limit_s)
            fault = answer.fault
            if fault is None:
                self._log.note(describe_proof(rule, answer.status))
                self._report_ready()
                return None
            self._log.note(f"probe: {fault}")
            why = self._state.restart_reason or describe_probe_failure(rule, fault)
            if why != self._state.status.reason:
                self._state.report(CopyPhase.PROVING, why)
            refusals = refusals + 1 if answer.refused else 0
            if refusals >= policy.max_probe_refusals:
                return self._build_ending(
                    EndKind.PROBE_REFUSED, describe_probe_failure(rule, fault)
                )
            await asyncio.sleep(policy.ping_every_s)

    async def _watch_pings(self, server: ModelServer, rule: ImageRule) -> Ending:
        """Ping a ready copy until it hangs. A copy that recovers is proven again."""
        policy, health = self._deps.policy, PingHealth()
        ping_at = ended_at = monotonic_s()
        starved_s, took_s, is_suspect = self._starved_s(), 0.0, False
        while True:
            pause_s = ready_pause_s(took_s, is_suspect, len(self._get_desired()), policy)
            ping_at = max(monotonic_s(), ping_at + pause_s)
            await asyncio.sleep(ping_at - monotonic_s())
            answered = await server.ping(ping_limit_s(health, policy))
            waited_s, ended_at = monotonic_s() - ended_at, monotonic_s()
            before_s, starved_s = starved_s, self._starved_s()
            took_s = ended_at - ping_at
            is_suspect = not answered and starved_s - before_s < took_s / 2
            health = update_health(health, answered, waited_s, starved_s - before_s, policy)
            match ping_verdict(health, policy):
                case PingVerdict.HUNG:
                    return self._build_ending(
                        EndKind.HUNG,
                        f"The model server did not answer /ping for {policy.hung_after_s:g} s "
                        "and was killed.",
                    )
                case PingVerdict.UNHEALTHY if self._state.phase is CopyPhase.READY:
                    self._state.report(
                        CopyPhase.UNHEALTHY,
                        f"/ping failed {health.misses} times in a row, for "
                        f"{health.silent_s:.0f} s.",
                    )
                case PingVerdict.HEALTHY if self._state.phase is CopyPhase.UNHEALTHY:
                    answer = await server.prove(rule.again.probe, policy.probe_timeout_s)
                    if answer.fault is None:
                        self._report_ready()

    def _resident_bytes(self) -> int:
        mine = find_members(process_table(), self._folder.root, self._state.record.process)
        return memory_use(mine).resident_bytes

    def _report_ready(self) -> None:
        if self._ready_at is None:
            self._ready_at = monotonic_s()
            if self._started_at is not None and self._process is not None:
                start_s, kind = self._ready_at - self._started_at, self._process.start_kind
                self._state.amend(start_s=round(start_s, 3), start_kind=kind)
        self._attempts = replace(self._attempts, ever_ready=True)
        self._state.restart_reason = None
        self._state.remember(ever_ready=True)
        self._state.report(CopyPhase.READY)

    async def _await_restart(self, step: RestartCopy, ending: Ending) -> None:
        self._state.record_end(ending.detail)
        self._state.remember(process=None, restarts=self._state.record.restarts + 1)
        self._state.restart_reason = f"{ending.detail} {describe_restart(step)}"
        self._state.report(
            CopyPhase.UNHEALTHY if self._attempts.ever_ready else CopyPhase.STARTING,
            self._state.restart_reason,
            restarts=self._state.record.restarts,
            pid=None,
            memory_bytes=0,
        )
        await asyncio.sleep(step.delay_s)

    def _build_late_ending(self, cause: str) -> Ending:
        return self._build_ending(EndKind.STARTUP_TIMEOUT, describe_late_start(self.spec, cause))

    def _build_ending(self, kind: EndKind, detail: str) -> Ending:
        ready_for_s = None if self._ready_at is None else monotonic_s() - self._ready_at
        return Ending(kind=kind, detail=detail, ready_for_s=ready_for_s)

    def _on_adapters_change(self) -> None:
        if self._state.record.adapters != self._adapters.registered:
            self._state.remember(adapters=self._adapters.registered)
        self._on_change()


async def _cancel(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
