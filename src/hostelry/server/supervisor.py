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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.server.home import Home
from hostelry.server.process_table import signal_group
from hostelry.server.run_file import remove_run_file, save_run_file
from hostelry.server.supervision import GiveUp, Life, after_death, death_message

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
TAIL_BYTES = 8192
# What services and the model servers below them write is for its owner alone.
PRIVATE_UMASK = 0o077


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One start of a service; `after` is called once that process has ended."""

    argv: Sequence[str]
    env: Mapping[str, str]
    after: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A process to keep running. `command` is asked anew at each start.

    It is stopped with `stop_signal`, and killed if it is still there `grace_s` later.
    """

    name: str
    command: Callable[[], Command]
    port: int
    stop_signal: signal.Signals
    grace_s: float


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
            try:
                returncode = await self._live(running)
            except (TerminalError, OSError) as error:
                self._fail(f"{service.name} cannot be started: {error}")
                return
            if running.stopping.is_set():
                return
            decision = after_death(life, platform_was_ready=self._was_ready, now=monotonic_s())
            tail = tail_text(self.log_path(service.name))
            message = death_message(service.name, returncode, decision, tail)
            if isinstance(decision, GiveUp):
                self._fail(message)
                return
            self._say(message)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(running.stopping.wait(), decision.delay_s)
            life = Life(started_at=monotonic_s(), quick_deaths=decision.quick_deaths)

    async def _live(self, running: Running) -> int:
        """One life of a service, from its start until nothing of its group is left."""
        command = running.service.command()
        process = await self._spawn(running.service, command)
        died = asyncio.create_task(process.wait())
        told = asyncio.create_task(running.stopping.wait())
        try:
            await asyncio.wait({died, told}, return_when=asyncio.FIRST_COMPLETED)
            if not died.done():
                await self._end(died, process.pid, running.service)
        finally:
            told.cancel()
            signal_group(process.pid, signal.SIGKILL)
            remove_run_file(self._home, running.service.name)
            command.after()
        return await died

    async def _spawn(self, service: Service, command: Command) -> asyncio.subprocess.Process:
        log = os.open(self.log_path(service.name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                *command.argv,
                env=dict(command.env),
                cwd=self._home.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                umask=PRIVATE_UMASK,
                preexec_fn=die_with(os.getpid()),
            )
        finally:
            os.close(log)
        save_run_file(self._home, service.name, process.pid, service.port)
        return process

    async def _end(self, died: asyncio.Task[int], group: int, service: Service) -> None:
        signal_group(group, service.stop_signal)
        hurried = asyncio.create_task(self._hurried.wait())
        await asyncio.wait(
            {died, hurried}, timeout=service.grace_s, return_when=asyncio.FIRST_COMPLETED
        )
        if not died.done() and not hurried.done():
            self._say(f"{service.name} did not stop within {service.grace_s:g} s; killing it")
        hurried.cancel()

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
