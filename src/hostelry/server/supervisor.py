"""Keeps the platform's processes running; decisions are in `supervision`, this file acts on them.

Each service is a process group of its own that the kernel kills when this process dies, whatever
kills it: nothing unsupervised is left behind, and nothing acknowledged is lost by it.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.server.home import Home
from hostelry.server.process_table import signal_group
from hostelry.server.pulse import PULSE_VARIABLE, Pulse
from hostelry.server.run_file import remove_run_file, save_run_file
from hostelry.server.supervision import (
    GiveUp,
    Life,
    Liveness,
    LivenessPolicy,
    after_check,
    after_death,
    death_message,
    hung_message,
    is_hung,
    pause_s,
)

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
TAIL_BYTES = 8192
NOTE_AGAIN_S = 1.0
# What services and the model servers below them write is for its owner alone.
PRIVATE_UMASK = 0o077


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One start of a service; `after` is called once that process has ended.

    `pass_fds` are descriptors of this process that it inherits under the same numbers.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    after: Callable[[], None] = lambda: None
    pass_fds: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A process to keep running. `command` is asked anew at each start.

    It is stopped with `stop_signal`, and killed if it is still there `grace_s` later. With a
    `liveness` it is killed and started again when it hangs: when `is_alive`, given a time limit in
    seconds, says no often enough. Without an `is_alive` it must answer its pulse (`pulse`).
    """

    name: str
    command: Callable[[], Command]
    port: int
    stop_signal: signal.Signals
    grace_s: float
    liveness: LivenessPolicy | None = None
    is_alive: Callable[[float], Awaitable[bool]] | None = None


@dataclass(slots=True)
class Running:
    """A service under supervision."""

    service: Service
    task: asyncio.Task[None] | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """Starts services, restarts what dies, stops them in a given order.

    `say` gets every sentence that the operator should read. `failed` is done, with a
    TerminalError, when a service cannot start.
    """

    def __init__(self, home: Home, say: Callable[[str], None]) -> None:
        self._home = home
        self._say = say
        self._running: dict[str, Running] = {}
        self._was_ready = False
        self._hurried = asyncio.Event()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, service: Service) -> None:
        """Begin to keep `service` running."""
        running = Running(service)
        self._running[service.name] = running
        running.task = asyncio.create_task(self._keep(running), name=f"keep {service.name}")

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

    async def _keep(self, running: Running) -> None:
        service, life = running.service, Life(started_at=monotonic_s())
        while not running.stopping.is_set():
            how = await self._lived(running)
            if how is None or running.stopping.is_set():
                return
            decision = after_death(life, platform_was_ready=self._was_ready, now=monotonic_s())
            tail = tail_text(self.log_path(service.name)) if isinstance(how, int) else ""
            message = death_message(service.name, how, decision, tail)
            if isinstance(decision, GiveUp):
                self._fail(message)
                return
            self._tell(message)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(running.stopping.wait(), decision.delay_s)
            life = Life(started_at=monotonic_s(), quick_deaths=decision.quick_deaths)

    async def _lived(self, running: Running) -> int | str | None:
        """How one life of a service ended: its exit code, or why there was none.

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

    async def _live(self, running: Running) -> int:
        """One life of a service, from its start until nothing of its group is left."""
        command = running.service.command()
        with Pulse() as pulse:
            process = await self._spawn(running.service, command, pulse)
            died = asyncio.create_task(process.wait())
            told = asyncio.create_task(running.stopping.wait())
            watching = asyncio.create_task(self._watch(running.service, pulse, process.pid))
            noting = asyncio.create_task(self._note(running.service, process.pid))
            try:
                await asyncio.wait({died, told}, return_when=asyncio.FIRST_COMPLETED)
                watching.cancel()
                if not died.done():
                    await self._end(died, process.pid, running.service)
            finally:
                for task in (told, watching, noting):
                    task.cancel()
                signal_group(process.pid, signal.SIGKILL)
                remove_run_file(self._home, running.service.name)
                command.after()
            return await died

    async def _spawn(
        self, service: Service, command: Command, pulse: Pulse
    ) -> asyncio.subprocess.Process:
        log = os.open(self.log_path(service.name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                *command.argv,
                env={**command.env, PULSE_VARIABLE: str(pulse.inherited_fd)},
                cwd=self._home.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                umask=PRIVATE_UMASK,
                preexec_fn=die_with(os.getpid()),
                pass_fds=(pulse.inherited_fd, *command.pass_fds),
            )
        finally:
            os.close(log)
        pulse.handed_over()
        return process

    async def _note(self, service: Service, pid: int) -> None:
        """Write the service's run file, as soon as the disk has room for it."""
        is_told = False
        while True:
            try:
                save_run_file(self._home, service.name, pid, service.port)
            except OSError as error:
                if not is_told:
                    self._tell(f"{service.name} runs, but that cannot be written down: {error}")
                is_told = True
                await asyncio.sleep(NOTE_AGAIN_S)
            else:
                return

    async def _watch(self, service: Service, pulse: Pulse, group: int) -> None:
        """Kill the service's process group once it hangs."""
        policy, liveness = service.liveness, Liveness()
        if policy is None:
            return
        is_alive = service.is_alive or pulse.answered
        started_at = ask_at = monotonic_s()
        while not is_hung(liveness, age_s=monotonic_s() - started_at, policy=policy):
            ask_at = max(monotonic_s(), ask_at + pause_s(liveness, policy))
            await asyncio.sleep(ask_at - monotonic_s())
            answered = await is_alive(policy.timeout_s)
            late_s = monotonic_s() - ask_at - policy.timeout_s
            liveness = after_check(liveness, answered=answered, late_s=late_s, policy=policy)
        self._tell(hung_message(service.name, liveness, policy))
        signal_group(group, signal.SIGKILL)

    async def _end(self, died: asyncio.Task[int], group: int, service: Service) -> None:
        signal_group(group, service.stop_signal)
        hurried = asyncio.create_task(self._hurried.wait())
        await asyncio.wait(
            {died, hurried}, timeout=service.grace_s, return_when=asyncio.FIRST_COMPLETED
        )
        if not died.done() and not hurried.done():
            self._tell(f"{service.name} did not stop within {service.grace_s:g} s; killing it")
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


def die_with(parent: int) -> Callable[[], None]:
    """What a child runs before its program: the kernel kills it once `parent` is dead."""

    def before_exec() -> None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return before_exec


def tail_text(path: Path, max_bytes: int = TAIL_BYTES) -> str:
    """The end of a text file; empty where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
