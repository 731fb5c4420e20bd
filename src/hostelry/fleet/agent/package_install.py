"""Installations for copies: packages of a requirements.txt, and a framework's runtime."""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from uv import find_uv_bin

from hostelry.base.clock import Clock, monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.operator_secrets import without_logins
from hostelry.base.pip_settings import UV_ARGUMENTS, uv_variables
from hostelry.base.runtimes import VARIABLE, find_installed, runtimes_folder
from hostelry.fleet.agent.package_store import SITE, PackageStore, remove_tree, tree_bytes
from hostelry.fleet.rules.code_packages import (
    FILE,
    DiskFullError,
    build_install_error,
    parse_added_packages,
)
from hostelry.fleet.rules.interpreter import PYTHON

READ_BYTES = 1 << 16
MAX_LINE_BYTES = 1000
Take = Callable[[str], None]


async def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    take: Take,
    look: Callable[[], Awaitable[None]],
    look_every_s: float,
    folder: Path | None = None,
) -> int:
    """Run the command. Returns its exit status. `take` gets the first MAX_LINE_BYTES of each line.

    `look` is awaited every `look_every_s` meanwhile. The command's processes end with the call,
    also if it is cancelled or `look` raises. Raises OSError if the command cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
        umask=0o022,  # copies of other users read the written files
    )
    reading = asyncio.create_task(_read_lines(process, take))
    try:
        while not reading.done():
            await asyncio.wait({reading}, timeout=look_every_s)
            await look()
        reading.result()
        return await process.wait()
    finally:
        reading.cancel()
        if process.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _read_lines(process: asyncio.subprocess.Process, take: Take) -> None:
    """Pass on each line that is not empty, without spaces around it."""
    assert process.stdout is not None

    def pass_on(lines: Sequence[bytes]) -> None:
        for line in lines:
            text = line[:MAX_LINE_BYTES].decode("utf-8", "replace").strip()
            if text:
                take(text)

    begun = b""
    while data := await process.stdout.read(READ_BYTES):
        *lines, begun = (begun + data).split(b"\n")
        begun = begun[:MAX_LINE_BYTES]
        pass_on(lines)
    pass_on([begun])


UV = (find_uv_bin(), "--no-config", "--no-progress")
WHEELS = ("--only-binary", ":all:", "--link-mode", "hardlink")
DROPPED = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")
SHOWN_STEPS = ("Downloading ", "Resolved ", "Prepared ", "Installed ")
SHOWN_LINES = 20
MAX_OUTPUT_LINES = 5000
LOOK_EVERY_S = 1.0
Say = Callable[[str], None]


class WantedPackages(msgspec.Struct, frozen=True, kw_only=True):
    """The requirements of a set. `python` is the runtime's interpreter, `settings` are pip's."""

    key: str
    python: Path
    requirements: Sequence[str]
    settings: Mapping[str, str]


class PackageInstall:
    """An installation of a set into the store, by uv, from wheels only.

        a trial on the runtime         -> the packages that it lacks, or has in another version
        their versions and hashes      -> the lock, which later agents get, too
        the lock, no dependencies      -> the set, published by a rename

    No code of a package runs. An interrupted installation leaves a folder that the agent removes.
    `environment` are the operator's variables. `say` takes the steps.
    """

    def __init__(
        self,
        wanted: WantedPackages,
        store: PackageStore,
        environment: Mapping[str, str],
        clock: Clock,
        say: Say,
    ) -> None:
        self._wanted = wanted
        self._store = store
        kept = {name: it for name, it in environment.items() if name not in DROPPED}
        self._environment = {**kept, **uv_variables(wanted.settings)}
        self._clock = clock
        self._say = say

    async def run(self) -> Path | None:
        """Install. Returns the folder of the packages, or None if the runtime has them all.

        Raises NotSharedError, or TerminalError with uv's last lines.
        """
        found, is_there = await asyncio.to_thread(self._find_set)
        if is_there:
            return found
        try:
            async with asyncio.timeout(self._store.limits.install_s):
                return await self._install_with_retry()
        except TimeoutError:
            limit_s = self._store.limits.install_s
            raise TerminalError(f"{FILE} was not installed within {limit_s:g} s") from None
        except OSError as error:
            raise TerminalError(
                f"{self._store.folder} cannot be written: {error}; make room there"
            ) from error

    def _find_set(self) -> tuple[Path | None, bool]:
        """The set, and whether it needs no installation."""
        lock = self._store.lock(self._wanted.key)
        if lock.is_file() and not lock.stat().st_size:
            return None, True
        site = self._store.find(self._wanted.key, self._clock.now())
        return site, site is not None

    async def _install_with_retry(self) -> Path | None:
        """Install. If the disk is full, remove unused sets and install again."""
        await asyncio.to_thread(self._store.remove_unused, self._clock.now())
        try:
            return await self._make_set()
        except DiskFullError:
            if not await asyncio.to_thread(self._store.make_room):
                raise
            self._say("the disk is full: packages that no copy uses were removed; again")
            return await self._make_set()

    async def _make_set(self) -> Path | None:
        made = await asyncio.to_thread(self._store.begin)
        try:
            locked = await self._get_lock_text(made)
            if not locked:
                return None
            await self._install_packages(made)
            await asyncio.to_thread(remove_tree, made / "cache")
            return await asyncio.to_thread(self._store.publish, self._wanted.key, made)
        finally:
            await asyncio.shield(asyncio.to_thread(remove_tree, made))

    async def _get_lock_text(self, made: Path) -> str:
        """The text of the lock, which is written if it does not exist."""
        lock = self._store.lock(self._wanted.key)
        if not lock.is_file():
            text = await self._resolve_versions(made)
            await asyncio.to_thread(self._store.keep_lock, self._wanted.key, text)
        return lock.read_text()

    async def _resolve_versions(self, made: Path) -> str:
        """The versions and hashes of the packages that the runtime lacks, or an empty text."""
        asked, pins, lock = made / FILE, made / "pins.txt", made / "lock.txt"
        asked.write_text("".join(f"{it}\n" for it in self._wanted.requirements))
        trial = await self._uv(made, "install", "--dry-run", "-r", str(asked))
        added = parse_added_packages(trial)
        if not added:
            self._say("the runtime has all packages already")
            return ""
        self._say(f"packages: {', '.join(added)}"[:500])
        pins.write_text("".join(f"{it}\n" for it in added))
        hashes = ("--generate-hashes", "--no-header", "--no-annotate", "--quiet")
        await self._uv(made, "compile", "--no-deps", *hashes, "-o", str(lock), str(pins))
        return lock.read_text()

    async def _install_packages(self, made: Path) -> None:
        lock = self._store.lock(self._wanted.key)
        chosen = ("--no-deps", "--require-hashes", "--compile-bytecode")
        await self._uv(made, "install", "--target", str(made / SITE), *chosen, "-r", str(lock))

    async def _uv(self, made: Path, action: str, *arguments: str) -> list[str]:
        """The lines of `uv pip ACTION`. Raises NotSharedError or TerminalError."""
        lines: list[str] = []
        last: deque[str] = deque(maxlen=SHOWN_LINES)
        room_bytes = await asyncio.to_thread(self._store.room_bytes)

        def take(line: str) -> None:
            line = without_logins(line)
            last.append(line)
            if len(lines) < MAX_OUTPUT_LINES:
                lines.append(line)
            if line.startswith(SHOWN_STEPS):
                self._say(line[:100])

        async def look() -> None:
            await asyncio.to_thread(self._check_disk, made, room_bytes)

        command = [
            *UV, "pip", action, "--python", str(self._wanted.python), *WHEELS,
            "--cache-dir", str(made / "cache"), *UV_ARGUMENTS, *arguments,
        ]  # fmt: skip
        code = await run_command(command, self._environment, take, look, LOOK_EVERY_S, made)
        if code:
            folder, free_bytes = str(self._store.folder), self._store.free_bytes()
            raise build_install_error(last, folder, free_bytes)
        return lines

    def _check_disk(self, made: Path, room_bytes: int) -> None:
        free_bytes, least_bytes = self._store.free_bytes(), self._store.limits.free_bytes
        if free_bytes < least_bytes:
            raise DiskFullError(
                f"{FILE} cannot be installed: the disk of {self._store.folder} is full: "
                f"{free_bytes} bytes are free, at least {least_bytes} must be; make room there"
            )
        taken_bytes = tree_bytes(made)
        if taken_bytes > room_bytes:
            raise TerminalError(
                f"{FILE} cannot be installed: its packages take {taken_bytes} bytes so far, and "
                f"packages of this instance's copies may take {room_bytes} more"
            )


POLICY = "HOSTELRY_MISSING_RUNTIMES"
INSTALL, REFUSE = "install", "refuse"
COMMAND = (*PYTHON, "-m", "hostelry.cli.main", "runtimes", "install", "--wait")
REPORT_EVERY_S = 5.0
Report = Callable[[str], None]


async def ensure_runtime(
    runtime: str, operator: Mapping[str, str], note: Report, report_wait: Report
) -> None:
    """Install the framework's runtime with that folder name, unless this machine has it.

    `hostelry runtimes install --wait` does it in a separate process, which waits for one that is
    under way. So copies that need the same runtime share one installation. If interrupted, it
    leaves nothing. `note` takes each line, `report_wait` the text for the copy's status. Raises
    TerminalError if the operator refuses runtimes, or with the last lines of the installation.
    """
    folder = runtimes_folder(operator)
    if find_installed(folder, runtime) is not None:
        return
    name = runtime.replace("-", ":", 1)
    policy = operator.get(POLICY) or INSTALL
    if policy == REFUSE:
        raise TerminalError(
            f"The runtime {name} is not installed, and the operator has {POLICY}={REFUSE}. "
            f"Install it with: hostelry runtimes install {name}"
        )
    if policy != INSTALL:
        raise TerminalError(
            f"{POLICY} of `hostelry up` is {policy[:80]!r}; it must be {INSTALL} or {REFUSE}"
        )
    await _install(name, {**operator, VARIABLE: str(folder)}, note, report_wait)


async def _install(
    name: str, environment: Mapping[str, str], note: Report, report_wait: Report
) -> None:
    began_s = monotonic_s()
    last: deque[str] = deque(["starting"], maxlen=SHOWN_LINES)

    def report() -> None:
        age_s = monotonic_s() - began_s
        report_wait(f"installing the runtime {name} for {age_s:.0f} s: {last[-1]}")

    def take(line: str) -> None:
        last.append(line)
        note(line)

    async def look() -> None:
        report()

    note(f"the runtime {name} is not on this machine: installing it")
    report()
    code = await run_command((*COMMAND, name), environment, take, look, REPORT_EVERY_S)
    if code:
        raise TerminalError(f"The runtime {name} cannot be installed: " + "\n".join(last))
