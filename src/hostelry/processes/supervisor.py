"""Supervisor of the platform's processes, which carries out the decisions of `supervision`.

Each service is a separate session, which outlives this process. The next supervisor adopts the
processes of a killed supervisor. `adoption` decides this by the run files. A process without a run
file is found by the mark in its environment (`leftovers`).
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.files import PRIVATE_UMASK
from hostelry.base.proc import ProcessIdentity, boot_id, process_stat, uptime_s
from hostelry.fleet.host.processes import WatchedProcess, signal_group
from hostelry.home.heartbeat import Heartbeat, is_listening, line_path
from hostelry.home.home import SERVICE_VARIABLE, Home
from hostelry.home.run_file import (
    RunFile,
    get_service_kind,
    load_run_file,
    remove_run_file,
    save_run_file,
    service_path,
)
from hostelry.processes.leftovers import STOPPING, Stopping
from hostelry.processes.supervision import (
    Exit,
    Life,
    Liveness,
    LivenessPolicy,
    StartupFailure,
    after_check,
    after_death,
    assume_liveness,
    death_message,
    hung_message,
    is_hung,
    may_be_killed,
    next_check_at,
)

TAIL_BYTES = 512 * 1024  # a Go program prints its error before the stacks of all its threads
WALL = SystemClock()
RECORD_RETRY_S = 1.0
BESIDE_POLL_S = 0.05
UNKNOWN = Liveness()


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a service.

    The process inherits the descriptors `pass_fds` of this process under the same numbers. With
    `may_fork` it may have agents forked by the interpreter that has forked it.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    pass_fds: Sequence[int] = ()
    may_fork: bool = False


class ServiceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A process to keep running. `command` is called at each start, `after` at each end.

    `digest` is the digest of its program and configuration. A running process with the same digest
    is adopted. With a `liveness` policy, the process is killed and started again when it hangs,
    that is when `is_alive`, called with a time limit in seconds, is False often enough. Without
    `is_alive`, the process must answer heartbeats (`heartbeat`).
    """

    name: str
    command: Callable[[], Command]
    port: int
    module: str | None = None  # of a process of our own
    digest: str = ""
    after: Callable[[], None] = lambda: None
    liveness: LivenessPolicy | None = None
    is_alive: Callable[[float], Awaitable[bool]] | None = None
    starts_beside: bool = False  # starts before its predecessor ends, whose socket it has

    @property
    def stopping(self) -> Stopping:
        """How the service is stopped."""
        return STOPPING[get_service_kind(self.name)]


class Forks(Protocol):
    """Starts services without a new interpreter."""

    async def fork(
        self, module: str, command: Command, service: str, log: Path
    ) -> WatchedProcess | None:
        """Fork the service with the files `service`. None if it must be started as a program."""
        ...


class SupervisedService(msgspec.Struct):
    """A service under supervision. Its predecessor `beside` serves until the service listens.

    `hang_kills` are the times at which it was killed because it hung.
    """

    service: ServiceSpec
    adopted: RunFile | None = None
    beside: RunFile | None = None
    pid: int | None = None
    task: asyncio.Task[None] | None = None
    stopping: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    hang_kills: list[float] = msgspec.field(default_factory=list)


class ServiceProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a service, started or adopted.

    `started_at` is on the supervisor's clock. `ended` waits for the exit code, or `None` for an
    adopted process, because only the parent of a process gets the code.
    """

    pid: int
    started_at: float
    ended: Callable[[], Awaitable[int | None]]
    liveness: Liveness = UNKNOWN


class Supervisor:
    """Supervisor that starts services, restarts those that die, and stops them by name.

    `say` receives each message to the operator. `forks` is tried before a program is started.
    `failed` gets a TerminalError when a service cannot start.
    """

    def __init__(self, home: Home, say: Callable[[str], None], forks: Forks | None = None) -> None:
        self._home = home
        self._say = say
        self._forks = forks
        self._running: dict[str, SupervisedService] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._was_ready = False
        self._hurried = asyncio.Event()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(
        self,
        service: ServiceSpec,
        *,
        adopted: RunFile | None = None,
        replaced: RunFile | None = None,
        beside: RunFile | None = None,
    ) -> None:
        """Keep `service` running: as the `adopted` process, or after the end of `replaced`.

        `beside` serves until the service listens, and is stopped then.
        """
        running = SupervisedService(service, adopted, beside)
        self._running[service.name] = running
        running.task = asyncio.create_task(
            self._keep(running, replaced), name=f"keep {service.name}"
        )
        if beside is not None:
            self._in_background(self._retire_when_up(running, beside), f"succeed {service.name}")

    def why_not_ready(self) -> str | None:
        """The services that do not listen yet in place of their predecessors, or None."""
        absent = [it.service.name for it in self._running.values() if it.beside is not None]
        return f"{', '.join(absent)} did not start" if absent else None

    def retire(self, record: RunFile) -> None:
        """Stop an unneeded process in the background, with its grace period."""
        self._in_background(self._retire(record), f"retire {record.name}")

    def _in_background(self, retiring: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(retiring, name=name)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _retire_when_up(self, running: SupervisedService, record: RunFile) -> None:
        """Stop an earlier process once its successor listens or is stopped."""
        path = line_path(service_path(self._home, record.name))
        while not running.stopping.is_set():
            if running.pid is not None and is_listening(path, running.pid):
                break
            await asyncio.sleep(BESIDE_POLL_S)
        running.beside = None
        await self._retire(record)

    async def wait_retired(self) -> None:
        """Wait until every retired process is gone."""
        if self._retiring:
            await asyncio.wait(self._retiring)

    def now_ready(self) -> None:
        """From now on, restart every service that dies, for ever."""
        self._was_ready = True

    def hurry(self) -> None:
        """Kill services without a grace period, now and whenever they are stopped."""
        self._hurried.set()

    async def pause(self, wait_s: float) -> None:
        """Wait for `wait_s`, or until `hurry` is called."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), wait_s)

    async def stop(self, name: str) -> None:
        """Stop one service. Returns when its whole process group is gone."""
        running = self._running.pop(name, None)
        if running is not None and running.task is not None:
            running.stopping.set()
            await running.task

    async def _keep(self, running: SupervisedService, replaced: RunFile | None) -> None:
        service = running.service
        if replaced is not None:
            await self._retire(replaced)
            service.after()
        life = Life(started_at=monotonic_s())
        while not running.stopping.is_set():
            how = await self._try_run(running)
            if how is None or running.stopping.is_set():
                return
            decision = after_death(life, platform_was_ready=self._was_ready, now=monotonic_s())
            tail = "" if isinstance(how, str) else tail_text(self.log_path(service.name))
            message = death_message(service.name, how, decision, tail)
            if isinstance(decision, StartupFailure):
                self._fail(message)
                return
            self._report(message)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(running.stopping.wait(), decision.delay_s)
            life = Life(started_at=monotonic_s(), quick_deaths=decision.quick_deaths)

    async def _retire(self, record: RunFile) -> None:
        """Stop an earlier supervisor's process. Returns when its whole group is gone."""
        living, stopping = self._adopt(record), STOPPING[get_service_kind(record.name)]
        died = asyncio.ensure_future(living.ended())
        await self._end(died, living.pid, record.name, stopping)
        signal_group(living.pid, signal.SIGKILL)
        await died
        recorded = load_run_file(self._home, record.name)
        if recorded is not None and recorded.pid == record.pid:
            remove_run_file(self._home, record.name)

    async def _try_run(self, running: SupervisedService) -> Exit | str | None:
        """Run one process of a service. Returns its exit, or why it could not be started.

        Returns None if the platform cannot start because of it. Once the platform was ready, a
        failed start, as on a full disk, is tried again like a death.
        """
        try:
            return await self._live(running)
        except (TerminalError, OSError) as error:
            if self._was_ready:
                return f"could not be started: {error}"
            self._fail(f"{running.service.name} cannot be started: {error}")
            return None

    async def _live(self, running: SupervisedService) -> Exit:
        """Run one process of a service, from start or adoption until its whole group is gone."""
        service, record, running.adopted = running.service, running.adopted, None
        living = await self._spawn(service) if record is None else self._adopt(record)
        running.pid = living.pid
        with Heartbeat(line_path(service_path(self._home, service.name)), living.pid) as heartbeat:
            died = asyncio.ensure_future(living.ended())
            asked = asyncio.create_task(running.stopping.wait())
            watching = asyncio.create_task(self._watch(running, heartbeat, living))
            recording = asyncio.create_task(self._record(service, living.pid))
            try:
                await asyncio.wait({died, asked}, return_when=asyncio.FIRST_COMPLETED)
                watching.cancel()
                if not died.done():
                    await self._end(died, living.pid, service.name, service.stopping)
            finally:
                for task in (asked, watching, recording):
                    task.cancel()
            # Not reached if this task is cancelled. Then the process runs on for a successor.
            signal_group(living.pid, signal.SIGKILL)
            remove_run_file(self._home, service.name)
            service.after()
            return Exit(await died)

    def _adopt(self, record: RunFile) -> ServiceProcess:
        identity = ProcessIdentity(
            pid=record.pid, start_ticks=record.start_ticks, boot_id=boot_id()
        )
        stat = process_stat(record.pid)
        age_s = 0.0 if stat is None else uptime_s(stat)
        return ServiceProcess(
            pid=record.pid,
            started_at=monotonic_s() - age_s,
            ended=WatchedProcess(identity).wait,
            liveness=assume_liveness(age_s),
        )

    async def _spawn(self, service: ServiceSpec) -> ServiceProcess:
        command, mark = service.command(), str(service_path(self._home, service.name))
        if self._forks is not None and service.module is not None:
            log_path = self.log_path(service.name)
            forked = await self._forks.fork(service.module, command, mark, log_path)
            if forked is not None:
                return ServiceProcess(
                    pid=forked.identity.pid, started_at=monotonic_s(), ended=forked.wait
                )
        log = os.open(self.log_path(service.name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                *command.argv,
                env={**command.env, SERVICE_VARIABLE: mark},
                cwd=self._home.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=PRIVATE_UMASK,
                pass_fds=command.pass_fds,
            )
        finally:
            os.close(log)
        return ServiceProcess(pid=process.pid, started_at=monotonic_s(), ended=process.wait)

    async def _record(self, service: ServiceSpec, pid: int) -> None:
        """Write the service's run file as soon as the disk has room for it."""
        is_reported = False
        while True:
            try:
                save_run_file(self._home, service.name, pid, service.port, service.digest)
            except OSError as error:
                if not is_reported:
                    self._report(f"{service.name} runs without a run file: {error}")
                is_reported = True
                await asyncio.sleep(RECORD_RETRY_S)
            else:
                return

    async def _watch(
        self, running: SupervisedService, heartbeat: Heartbeat, living: ServiceProcess
    ) -> None:
        """Kill the service's process group once it hangs, unless kills did not help before."""
        service, policy, liveness = running.service, running.service.liveness, living.liveness
        if policy is None:
            return
        is_alive, is_left = service.is_alive or heartbeat.ping, False
        check_at = monotonic_s()
        while True:
            check_at = next_check_at(liveness, check_at, monotonic_s(), WALL.now(), policy)
            await asyncio.sleep(check_at - monotonic_s())
            answered = await is_alive(policy.timeout_s)
            late_s = monotonic_s() - check_at - policy.timeout_s
            liveness = after_check(liveness, answered=answered, late_s=late_s, policy=policy)
            now = monotonic_s()
            hung = is_hung(liveness, age_s=now - living.started_at, policy=policy)
            if hung and may_be_killed(running.hang_kills, now):
                break
            if hung and not is_left:
                self._report(hung_message(service.name, liveness, policy, living.pid))
            elif answered and is_left:
                self._report(f"{service.name} answers again")
            is_left = hung or (is_left and not answered)
        running.hang_kills.append(now)
        self._report(hung_message(service.name, liveness, policy, None))
        signal_group(living.pid, signal.SIGKILL)

    async def _end(
        self, died: "asyncio.Future[int | None]", group: int, name: str, stopping: Stopping
    ) -> None:
        signal_group(group, stopping.first)
        hurried = asyncio.create_task(self._hurried.wait())
        either: set[asyncio.Future[Any]] = {died, hurried}
        await asyncio.wait(either, timeout=stopping.grace_s, return_when=asyncio.FIRST_COMPLETED)
        # Without a grace period the first signal was SIGKILL, so the end is only not seen yet.
        if stopping.grace_s > 0 and not died.done() and not hurried.done():
            self._report(f"{name} did not stop within {stopping.grace_s:g} s; killing it")
        hurried.cancel()

    def _report(self, message: str) -> None:
        """Report to the operator. A full disk may refuse the log line."""
        with contextlib.suppress(OSError):
            self._say(message)

    def _fail(self, message: str) -> None:
        if not self.failed.done():
            self.failed.set_exception(TerminalError(message))

    def log_path(self, name: str) -> Path:
        """The log of a service's output."""
        return self._home.logs / f"{name}.log"


def tail_text(path: Path, max_bytes: int = TAIL_BYTES) -> str:
    """The end of a text file, empty if the file does not exist."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
