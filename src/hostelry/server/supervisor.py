"""Keeps the platform's processes running; decisions are in `supervision`, this file acts on them.

Each service is a session of its own, which goes on when this process dies. What a supervisor that
was killed has left is adopted by the next one: `adoption` decides, by the run files. What has none
is found by the mark in its environment (`leftovers`).
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.proc import boot_id, process_stat, uptime_s
from hostelry.fleet.host.processes import WatchedProcess, signal_group
from hostelry.fleet.records import ProcessIdentity
from hostelry.server.home import Home
from hostelry.server.leftovers import STOPPING, Stopping
from hostelry.server.pulse import SERVICE_VARIABLE, Heartbeat, line_path
from hostelry.server.run_file import (
    RunFile,
    kind_of,
    load_run_file,
    remove_run_file,
    save_run_file,
    service_path,
)
from hostelry.server.supervision import (
    Exit,
    GiveUp,
    Life,
    Liveness,
    LivenessPolicy,
    after_check,
    after_death,
    death_message,
    hung_message,
    is_hung,
    liveness_of_adopted,
    pause_s,
)

TAIL_BYTES = 8192
NOTE_AGAIN_S = 1.0
UNKNOWN = Liveness()
# What services and the model servers below them write is for its owner alone.
PRIVATE_UMASK = 0o077


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One start of a service.

    `pass_fds` are descriptors of this process that it inherits under the same numbers.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    pass_fds: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A process to keep running. `command` is asked anew at each start, `after` called at each end.

    `digest` stands for what it is started by: one that runs and has the same one is adopted.

    How it is stopped is in `STOPPING`. With a
    `liveness` it is killed and started again when it hangs: when `is_alive`, given a time limit in
    seconds, says no often enough. Without an `is_alive` it must answer its pulse (`pulse`).
    """

    name: str
    command: Callable[[], Command]
    port: int
    digest: str = ""
    after: Callable[[], None] = lambda: None
    liveness: LivenessPolicy | None = None
    is_alive: Callable[[float], Awaitable[bool]] | None = None

    @property
    def stopping(self) -> Stopping:
        """How it is stopped."""
        return STOPPING[kind_of(self.name)]


@dataclass(slots=True)
class Running:
    """A service under supervision."""

    service: Service
    adopted: RunFile | None = None
    task: asyncio.Task[None] | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Living:
    """One life of a service: `started_at` on the supervisor's clock, `ended` its exit code.

    Nobody knows the exit code of a process that was adopted: None.
    """

    pid: int
    started_at: float
    ended: Callable[[], Awaitable[int | None]]
    liveness: Liveness = UNKNOWN


class Supervisor:
    """Starts services, restarts what dies, stops them in a given order.

    `say` gets every sentence that the operator should read. `failed` is done, with a
    TerminalError, when a service cannot start.
    """

    def __init__(self, home: Home, say: Callable[[str], None]) -> None:
        self._home = home
        self._say = say
        self._running: dict[str, Running] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._was_ready = False
        self._hurried = asyncio.Event()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(
        self, service: Service, *, adopted: RunFile | None = None, replaced: RunFile | None = None
    ) -> None:
        """Begin to keep `service` running: as the process that it has, or after the end of one."""
        running = Running(service, adopted)
        self._running[service.name] = running
        running.task = asyncio.create_task(
            self._keep(running, replaced), name=f"keep {service.name}"
        )

    def retire(self, record: RunFile) -> None:
        """Stop a process that is not wanted any more, in good order and beside all else."""
        task = asyncio.create_task(self._retire(record), name=f"retire {record.name}")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def retired(self) -> None:
        """Return once all that was retired is gone."""
        if self._retiring:
            await asyncio.wait(self._retiring)

    def now_ready(self) -> None:
        """From here on, nothing that dies is given up."""
        self._was_ready = True

    def hurry(self) -> None:
        """Wait for nothing any more: what is told to stop, or will be, is killed."""
        self._hurried.set()

    async def stop(self, name: str) -> None:
        """Stop one service and return when its whole process group is gone."""
        running = self._running.pop(name, None)
        if running is not None and running.task is not None:
            running.stopping.set()
            await running.task

    async def _keep(self, running: Running, replaced: RunFile | None) -> None:
        service = running.service
        if replaced is not None:
            await self._retire(replaced)
            service.after()
        life = Life(started_at=monotonic_s())
        while not running.stopping.is_set():
            how = await self._lived(running)
            if how is None or running.stopping.is_set():
                return
            decision = after_death(life, platform_was_ready=self._was_ready, now=monotonic_s())
            tail = "" if isinstance(how, str) else tail_text(self.log_path(service.name))
            message = death_message(service.name, how, decision, tail)
            if isinstance(decision, GiveUp):
                self._fail(message)
                return
            self._tell(message)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(running.stopping.wait(), decision.delay_s)
            life = Life(started_at=monotonic_s(), quick_deaths=decision.quick_deaths)

    async def _retire(self, record: RunFile) -> None:
        """Stop a predecessor's process and return when its whole group is gone."""
        living, stopping = self._adopted(record), STOPPING[kind_of(record.name)]
        died = asyncio.ensure_future(living.ended())
        await self._end(died, living.pid, record.name, stopping)
        signal_group(living.pid, signal.SIGKILL)
        await died
        recorded = load_run_file(self._home, record.name)
        if recorded is not None and recorded.pid == record.pid:
            remove_run_file(self._home, record.name)

    async def _lived(self, running: Running) -> Exit | str | None:
        """How one life of a service ended: its exit, or why there was none.

        None when the platform cannot start for it. Later, what cannot be started, as on a full
        disk, is tried again like what died: all else goes on meanwhile.
        """
        try:
            return await self._live(running)
        except (TerminalError, OSError) as error:
            if self._was_ready:
                return f"could not be started: {error}"
            self._fail(f"{running.service.name} cannot be started: {error}")
            return None

    async def _live(self, running: Running) -> Exit:
        """One life of a service, from its start or adoption until nothing of its group is left."""
        service, record, running.adopted = running.service, running.adopted, None
        living = await self._spawn(service) if record is None else self._adopted(record)
        with Heartbeat(line_path(service_path(self._home, service.name))) as pulse:
            died = asyncio.ensure_future(living.ended())
            told = asyncio.create_task(running.stopping.wait())
            watching = asyncio.create_task(self._watch(service, pulse, living))
            noting = asyncio.create_task(self._note(service, living.pid))
            try:
                await asyncio.wait({died, told}, return_when=asyncio.FIRST_COMPLETED)
                watching.cancel()
                if not died.done():
                    await self._end(died, living.pid, service.name, service.stopping)
            finally:
                for task in (told, watching, noting):
                    task.cancel()
            # Not where this was cancelled: then the process goes on, for a successor.
            signal_group(living.pid, signal.SIGKILL)
            remove_run_file(self._home, service.name)
            service.after()
            return Exit(await died)

    def _adopted(self, record: RunFile) -> Living:
        identity = ProcessIdentity(
            pid=record.pid, start_ticks=record.start_ticks, boot_id=boot_id()
        )
        stat = process_stat(record.pid)
        age_s = 0.0 if stat is None else uptime_s(stat)
        return Living(
            pid=record.pid,
            started_at=monotonic_s() - age_s,
            ended=WatchedProcess(identity).wait,
            liveness=liveness_of_adopted(age_s),
        )

    async def _spawn(self, service: Service) -> Living:
        command = service.command()
        log = os.open(self.log_path(service.name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                *command.argv,
                env={
                    **command.env,
                    SERVICE_VARIABLE: str(service_path(self._home, service.name)),
                },
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
        return Living(pid=process.pid, started_at=monotonic_s(), ended=process.wait)

    async def _note(self, service: Service, pid: int) -> None:
        """Write the service's run file, as soon as the disk has room for it."""
        is_told = False
        while True:
            try:
                save_run_file(self._home, service.name, pid, service.port, service.digest)
            except OSError as error:
                if not is_told:
                    self._tell(f"{service.name} runs, but that cannot be written down: {error}")
                is_told = True
                await asyncio.sleep(NOTE_AGAIN_S)
            else:
                return

    async def _watch(self, service: Service, pulse: Heartbeat, living: Living) -> None:
        """Kill the service's process group once it hangs."""
        policy, liveness = service.liveness, living.liveness
        if policy is None:
            return
        is_alive = service.is_alive or pulse.answered
        ask_at = monotonic_s()
        while not is_hung(liveness, age_s=monotonic_s() - living.started_at, policy=policy):
            ask_at = max(monotonic_s(), ask_at + pause_s(liveness, policy))
            await asyncio.sleep(ask_at - monotonic_s())
            answered = await is_alive(policy.timeout_s)
            late_s = monotonic_s() - ask_at - policy.timeout_s
            liveness = after_check(liveness, answered=answered, late_s=late_s, policy=policy)
        self._tell(hung_message(service.name, liveness, policy))
        signal_group(living.pid, signal.SIGKILL)

    async def _end(
        self, died: "asyncio.Future[int | None]", group: int, name: str, stopping: Stopping
    ) -> None:
        signal_group(group, stopping.first)
        hurried = asyncio.create_task(self._hurried.wait())
        either: set[asyncio.Future[Any]] = {died, hurried}
        await asyncio.wait(either, timeout=stopping.grace_s, return_when=asyncio.FIRST_COMPLETED)
        if not died.done() and not hurried.done():
            self._tell(f"{name} did not stop within {stopping.grace_s:g} s; killing it")
        hurried.cancel()

    def _tell(self, message: str) -> None:
        """Say it, if there is room for it: a log on a full disk ends nobody."""
        with contextlib.suppress(OSError):
            self._say(message)

    def _fail(self, message: str) -> None:
        if not self.failed.done():
            self.failed.set_exception(TerminalError(message))

    def log_path(self, name: str) -> Path:
        """Where a service's output goes."""
        return self._home.logs / f"{name}.log"


def tail_text(path: Path, max_bytes: int = TAIL_BYTES) -> str:
    """The end of a text file; empty where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
