"""Packages of models' requirements.txt for the copies of one instance. Each set is installed once.

Copies that need a set at the same time wait for one installation and share its failure. A copy
that starts later tries again.
"""

import asyncio
import os
import stat
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from hostelry.base.clock import Clock, SystemClock, monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.pip_settings import read_settings, uv_variables
from hostelry.base.runtimes import find_installed, runtime_python, runtimes_folder
from hostelry.containers.predictive.config import find_code_folder
from hostelry.containers.predictive.requirements import POLICY, REFUSE, SHARED
from hostelry.fleet.agent.package_install import PackageInstall, WantedPackages
from hostelry.fleet.agent.package_store import PackageStore
from hostelry.fleet.records import CopyFolder, InstanceFolder
from hostelry.fleet.rules.code_packages import (
    FILE,
    MAX_FILE_BYTES,
    NotSharedError,
    PackageLimits,
    package_key,
    shared_requirements,
)

AT_ONCE = 2
REPORT_EVERY_S = 5.0
MAX_STEPS = 100  # that a copy gets which begins to wait later
Report = Callable[[str], None]


class CodePlace(msgspec.Struct, frozen=True):
    """The folder of a copy's code, the variables that name it, and the artifacts' folders."""

    copy: CopyFolder
    environment: Mapping[str, str]
    artifacts: Sequence[str] = ()


class Listener(msgspec.Struct, frozen=True, eq=False):
    """A copy that waits. `note` takes each step, `report_wait` the text for its status."""

    note: Report
    report_wait: Report


class Flight(msgspec.Struct):
    """An installation that is under way, and the copies that wait for it."""

    began_s: float
    listeners: list[Listener] = msgspec.field(default_factory=list)
    steps: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=MAX_STEPS))
    task: "asyncio.Task[Path | None] | None" = None

    def add(self, listener: Listener) -> None:
        """Have a copy wait, too, and report the steps so far to it."""
        self.listeners.append(listener)
        for step in self.steps:
            listener.note(f"{FILE}: {step}")

    def say(self, line: str) -> None:
        """Report a step to all copies."""
        self.steps.append(line)
        for listener in self.listeners:
            listener.note(f"{FILE}: {line}")

    def report(self, listener: Listener) -> None:
        """Report the progress to one copy."""
        taken_s = monotonic_s() - self.began_s
        step = self.steps[-1] if self.steps else "starting"
        listener.report_wait(f"installing the packages of {FILE} for {taken_s:.0f} s: {step}")


class CodePackages:
    """The shared packages of an instance's copies. `operator` are the operator's variables."""

    def __init__(
        self,
        instance: InstanceFolder,
        operator: Mapping[str, str],
        limits: PackageLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._store = PackageStore(instance, limits or PackageLimits())
        self._operator = operator
        self._clock = clock or SystemClock()
        self._flights: dict[str, Flight] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def provide(
        self, runtime: str, code: CodePlace, note: Report, report_wait: Report
    ) -> dict[str, str]:
        """The variable with the folder of the code's packages. Empty if they are not shared.

        Raises TerminalError if they cannot be installed.
        """
        self._store.use(code.copy, None)
        content = await asyncio.to_thread(read_requirements, code)
        if content is None or self._operator.get(POLICY) == REFUSE:
            return {}  # its server refuses them, with the reason
        try:
            wanted = await asyncio.to_thread(self._resolve_wanted, runtime, content)
            self._store.use(code.copy, wanted.key)
            site = await self._install_shared(wanted, Listener(note, report_wait))
        except NotSharedError as error:
            self._store.use(code.copy, None)
            note(f"{FILE} is installed by this copy itself: {error}")
            return {}
        note(f"{FILE}: {f'its packages are those in {site}' if site else 'nothing to install'}")
        return {SHARED: "" if site is None else str(site)}

    async def remove_unused(self) -> None:
        """Remove packages that no copy has used for long, or that exceed the limits."""
        await asyncio.to_thread(self._store.remove_unused, self._clock.now())

    def _resolve_wanted(self, runtime: str, content: bytes) -> WantedPackages:
        """The packages that the file asks for. Raises NotSharedError."""
        requirements = shared_requirements(content)
        folder, settings = runtimes_folder(self._operator), read_settings()
        record = find_installed(folder, runtime)
        if record is None:
            raise NotSharedError(f"the runtime {runtime} is gone")
        places = [f"{name}={it}" for name, it in sorted(uv_variables(settings).items())]
        return WantedPackages(
            key=package_key(record, requirements, places),
            python=runtime_python(folder, runtime),
            requirements=requirements,
            settings=settings,
        )

    async def _install_shared(self, wanted: WantedPackages, listener: Listener) -> Path | None:
        """The folder of the packages. All copies that need them now share one installation."""
        flight = self._flights.get(wanted.key)
        if flight is None:
            flight = self._flights[wanted.key] = Flight(monotonic_s())
            flight.task = asyncio.create_task(self._install(wanted, flight), name=wanted.key)
            flight.task.add_done_callback(retrieve_exception)
        assert flight.task is not None
        flight.add(listener)
        try:
            while not flight.task.done():
                await asyncio.wait({flight.task}, timeout=REPORT_EVERY_S)
                if not flight.task.done():
                    flight.report(listener)
            return flight.task.result()
        finally:
            flight.listeners.remove(listener)
            if not flight.listeners and not flight.task.done():
                flight.task.cancel()  # no copy waits for it any more
            if self._flights.get(wanted.key) is flight and (
                flight.task.done() or not flight.listeners
            ):
                del self._flights[wanted.key]

    async def _install(self, wanted: WantedPackages, flight: Flight) -> Path | None:
        async with self._turns:
            install = PackageInstall(wanted, self._store, self._operator, self._clock, flight.say)
            return await install.run()


def retrieve_exception(task: "asyncio.Task[Path | None]") -> None:
    """Retrieve an exception for which no copy waits any more, so that asyncio logs nothing."""
    if not task.cancelled():
        task.exception()


def read_requirements(code: CodePlace) -> bytes | None:
    """The requirements.txt of the model's code. None if absent, or if its server would refuse it.

    Only files of the model and of artifacts are read, because the author names the folder, and the
    agent may read more files than the copy may.
    """
    try:
        path = (find_code_folder(code.environment, code.copy.model) / FILE).resolve(strict=True)
        roots = (code.copy.model, *map(Path, code.artifacts))
        within = [root.resolve(strict=True) for root in roots]
        if not any(path.is_relative_to(it) for it in within):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError, TerminalError):
        return None
    return content if len(content) <= MAX_FILE_BYTES else None
