"""The author's code of the base model and of the adapters, with a process for each.

a process died, or was ended for a call that hung   the next call starts another
an adapter's process has no calls for IDLE_S        it is ended, and the next call starts another
MAX_ADAPTER_PROCESSES run                           the process that is idle longest is ended, or
                                                    503 if all are busy

The packages of requirements.txt are installed if the operator allows it. Only names with versions
are accepted, not a URL, path or option of pip, so that only the operator's index is asked. Only
wheels are installed, so that no code of a package runs during the installation.
"""

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.base.pip_settings import is_plain, requirement_lines
from hostelry.containers.code.code_process import (
    SECRETS,
    CodeError,
    CodeLaunch,
    CodeProcess,
    code_environment,
    is_like,
    readable_places,
    start_code,
)
from hostelry.containers.code.confinement import ConfinementError, check_possible
from hostelry.containers.code.messages import CodeCall, Handle, LoadCode, Replied
from hostelry.containers.lmi.code.author_hooks import (
    FILE,
    HANDLE,
    INPUT_FORMATTER,
    OUTPUT_FORMATTER,
)
from hostelry.containers.lmi.refusal import Cause, Refusal

MAX_BYTES = 64 * 1024
MAX_LINES = 200
SHOWN_CHARACTERS = 1000
KEPT = ("PATH", "LANG", "LC_*", "HOME", "TMPDIR", "PIP_*", "*_PROXY", "*_proxy", "SSL_CERT_*",
        "REQUESTS_CA_BUNDLE", "PYTHONNOUSERSITE", "PYTHONPATH")  # fmt: skip
PROGRAM = "hostelry.containers.lmi.code.program"
MAX_ADAPTER_PROCESSES = 16
IDLE_S = 300.0
BUSY_RETRY_S = 1.0
LOAD_LIMIT_S = 60.0
FIRST_CALL_LIMIT_S = 60.0
REQUIREMENTS = "requirements.txt"

LOG = logging.getLogger(__name__)


class RequirementsError(HostelryError):
    """The packages cannot be installed. The message has the line or pip's reason."""


def parse_requirements(text: str) -> tuple[str, ...]:
    """The requirements. Raises RequirementsError for any other line of pip's files."""
    found = requirement_lines(text)
    if len(found) > MAX_LINES:
        raise RequirementsError(f"requirements.txt has {len(found)} lines; at most {MAX_LINES}")
    for line in found:
        if not is_plain(line):
            raise RequirementsError(
                f"requirements.txt has {line[:80]!r}; a line must be a package's name, perhaps "
                "with versions and a marker: no URL, path or option"
            )
    return found


def install_requirements(
    file: Path, target: Path, environment: Mapping[str, str], limit_s: float
) -> None:
    """Install the packages of `file` into `target`. Raises RequirementsError."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise RequirementsError(f"requirements.txt has more than {MAX_BYTES} bytes")
        names = parse_requirements(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RequirementsError(f"requirements.txt cannot be read: {error}") from error
    if not names:
        return
    kept = {
        name: it
        for name, it in environment.items()
        if is_like(name, KEPT) and (name.lower().endswith("_proxy") or not is_like(name, SECRETS))
    }
    command = [
        sys.executable, "-P", "-m", "pip", "install", "--only-binary", ":all:", "--no-input",
        "--disable-pip-version-check", "--no-warn-script-location", "--no-compile",
        "--target", str(target), "--", *names,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, env=kept, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=limit_s, cwd=os.sep, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise RequirementsError(
            f"requirements.txt was not installed within {limit_s:g} s (model_loading_timeout)"
        ) from None
    if done.returncode:
        reason = done.stdout.decode(errors="replace")[-SHOWN_CHARACTERS:].strip()
        raise RequirementsError(f"requirements.txt cannot be installed: {reason}")


class CodePolicy(Enum):
    """The operator's choice about an author's code."""

    OFF = "off"
    CONFINED = "confined"
    TRUSTED = "trusted"


class CodeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How code runs: the operator's policy, the model's folders, and the server's environment.

    `options` are the model's. `load_limit_s` is the time for installing its requirements.
    """

    policy: CodePolicy
    model_dir: Path
    tokenizer_folder: Path
    environment: Mapping[str, str]
    options: Mapping[str, str]
    load_limit_s: float = 1800.0
    is_rolling_batch: bool = False


class CodeHost:
    """The code of one folder: starts its process when it is needed."""

    def __init__(self, launch: CodeLaunch, make_room: Callable[[], None], idle_s: float | None):
        self._launch = launch
        self._make_room = make_room
        self._idle_s = idle_s
        self._process: CodeProcess | None = None
        self._starting = asyncio.Lock()
        self._idling: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.hooks: frozenset[str] = frozenset()
        self.num_calls = 0
        self.used_at = 0.0

    @property
    def pid(self) -> int | None:
        """The running process. None between two processes."""
        return self._process.pid if self.is_running and self._process else None

    @property
    def is_running(self) -> bool:
        """True if a process runs."""
        return self._process is not None and self._process.is_alive

    async def start(self) -> None:
        """Load the code and note its hooks. Raises CodeError."""
        async with self.running() as process:
            self.hooks = process.hooks

    @asynccontextmanager
    async def running(self) -> AsyncIterator[CodeProcess]:
        """The process, which is not idle meanwhile. Raises CodeError, Refusal."""
        self.num_calls += 1
        if self._idling is not None:
            self._idling.cancel()
        try:
            yield await self._ensure_started()
        finally:
            self.num_calls -= 1
            loop = asyncio.get_running_loop()
            self.used_at = loop.time()
            if not self.num_calls and self._idle_s is not None and not self._is_closed:
                self._idling = loop.call_later(self._idle_s, self.end)

    async def _ensure_started(self) -> CodeProcess:
        async with self._starting:
            if self._is_closed:
                raise CodeError(f"{self._launch.author} is no longer registered")
            if self._process is None or not self._process.is_alive:
                await self._end_now()
                self._make_room()
                self._process = await start_code(self._launch)
                await self._first_call(self._process)
            return self._process

    async def _first_call(self, process: CodeProcess) -> None:
        """Call `handle` without a request, as LMI does for code that prepares itself then."""
        if HANDLE not in process.hooks:
            return
        options = self._launch.load.options
        try:
            await process.call(lambda it: Handle(it, options, ()), HANDLE, FIRST_CALL_LIMIT_S)
        except CodeError as error:
            LOG.warning("the first call, without a request, failed: %s", error)

    def end(self) -> None:
        """End the process. The next call starts another process."""
        task = asyncio.get_running_loop().create_task(self._end_now())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End the process for good."""
        self._is_closed = True
        if self._idling is not None:
            self._idling.cancel()
        await self._end_now()

    async def _end_now(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.close()


class AuthorCode:
    """The code of a server: the base model's, if any, and the adapters' by name."""

    def __init__(self, terms: CodeTerms) -> None:
        self._terms = terms
        self._scratch: Path | None = None
        self._packages_folder: Path | None = None
        self._base: CodeHost | None = None
        self._adapters: dict[str, CodeHost] = {}
        self._hosts: set[CodeHost] = set()  # of adapters, those that are being registered, too

    async def load_base(self) -> None:
        """Load model.py of the model folder, if there is one. Raises Refusal."""
        folder = self._terms.model_dir
        if not has_code(folder):
            return
        self._check_allowed(FILE)
        self._scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="hostelry-code-"))
        launch = self._launch(FILE, folder, self._scratch, await self._packages(folder))
        self._base = await self._ensure_started(CodeHost(launch, lambda: None, None))
        if not self._base.hooks:
            LOG.warning("%s has no handle and no formatter; it changes no answer", FILE)

    async def _packages(self, folder: Path) -> Path | None:
        """The folder of installed requirements. None without requirements. Raises Refusal."""
        file = folder / REQUIREMENTS
        if not has_file(folder, REQUIREMENTS):
            return None
        self._packages_folder = Path(await asyncio.to_thread(tempfile.mkdtemp))
        terms = self._terms
        try:
            await asyncio.to_thread(
                install_requirements,
                file,
                self._packages_folder,
                terms.environment,
                terms.load_limit_s,
            )
        except RequirementsError as error:
            raise build_refusal(str(error)) from error
        return self._packages_folder

    async def load_adapter(self, name: str, src: str) -> CodeHost | None:
        """Start the code in an adapter's folder. None if the folder has no code. Raises Refusal."""
        if "://" in src or not await asyncio.to_thread(has_code, Path(src)):
            return None
        author = f"{FILE} of adapter {name}"
        self._check_allowed(author)
        folder = absolute(src)
        if has_file(folder, REQUIREMENTS):
            raise build_refusal(
                f"adapter {name} holds {REQUIREMENTS}, which is never installed for one"
            )
        launch = self._launch(author, folder, None)
        host = CodeHost(launch, lambda: self._make_room(host), IDLE_S)
        self._hosts.add(host)
        await self._ensure_started(host)
        if HANDLE in host.hooks:
            await self.discard(host)
            raise build_refusal(
                f"{author} has {HANDLE}; an adapter's code may have formatters only"
            )
        return host

    def adopt(self, name: str, host: CodeHost | None) -> CodeHost | None:
        """Use `host` for the adapter from now on. Returns the former host, to be closed."""
        former = self._adapters.pop(name, None)
        if host is not None:
            self._adapters[name] = host
        return former

    async def discard(self, host: CodeHost | None) -> None:
        """End the code of an adapter for good."""
        if host is not None:
            self._hosts.discard(host)
            await host.close()

    def find_host(self, adapter: str | None, hook: str) -> CodeHost | None:
        """The code whose `hook` a request of `adapter` runs: the adapter's, else the base's."""
        own = self._adapters.get(adapter) if adapter else None
        for host in (own, self._base):
            if host is not None and hook in host.hooks:
                return host
        return None

    @property
    def is_empty(self) -> bool:
        """True if neither the model nor an adapter has code."""
        return self._base is None and not self._adapters

    async def close(self) -> None:
        """End every process."""
        hosts = [*self._hosts, *([self._base] if self._base else [])]
        await asyncio.gather(*(host.close() for host in hosts))
        for folder in (self._scratch, self._packages_folder):
            if folder is not None:
                await asyncio.to_thread(shutil.rmtree, folder, True)

    async def _ensure_started(self, host: CodeHost) -> CodeHost:
        try:
            await host.start()
        except (CodeError, Refusal) as error:
            await self.discard(host)
            raise build_refusal(str(error)) from error
        if self._terms.is_rolling_batch and host.hooks & {INPUT_FORMATTER, OUTPUT_FORMATTER}:
            await self.discard(host)
            raise build_refusal(
                "formatters of a named rolling batch get other arguments, which are not given "
                "here; remove option.rolling_batch, and write them for the asynchronous handler"
            )
        return host

    def _check_allowed(self, author: str) -> None:
        if self._terms.policy is CodePolicy.OFF:
            raise build_refusal(
                f"there is {author}, but custom code is off. The operator allows it with "
                "HOSTELRY_CUSTOM_CODE=confined; without that, remove the file"
            )
        if self._terms.policy is CodePolicy.CONFINED:
            try:
                check_possible()
            except ConfinementError as error:
                raise build_refusal(
                    f"{author} cannot run confined: {error}. HOSTELRY_CUSTOM_CODE=trusted lets "
                    "it run without, as this server's own user"
                ) from error

    def _launch(
        self, author: str, folder: Path, scratch: Path | None, packages: Path | None = None
    ) -> CodeLaunch:
        terms = self._terms
        is_confined = terms.policy is CodePolicy.CONFINED
        is_adapter = author != FILE
        load = LoadCode(
            folder=str(folder),
            model_dir=str(folder),
            tokenizer_folder=str(terms.tokenizer_folder),
            options={} if is_adapter else {**terms.options, "model_dir": str(folder)},
            readable=readable_places(folder, terms.tokenizer_folder, packages)
            if is_confined
            else (),
            packages=None if packages is None else str(packages),
            writable=() if scratch is None else (str(scratch),),
        )
        environment = code_environment(
            terms.environment, is_adapter=is_adapter, is_confined=is_confined, scratch=scratch
        )
        return CodeLaunch(
            author=author,
            load=load,
            environment=environment,
            load_limit_s=LOAD_LIMIT_S,
            program=PROGRAM,
        )

    def _make_room(self, host: CodeHost) -> None:
        """If `host` does not fit, end the adapter's process that has been idle longest."""
        others = [it for it in self._hosts - {host} if it.is_running or it.num_calls]
        if len(others) < MAX_ADAPTER_PROCESSES:
            return
        idle = [it for it in others if not it.num_calls]
        if not idle:
            raise Refusal(
                Cause.QUEUE_FULL,
                f"{MAX_ADAPTER_PROCESSES} adapters run code of their own at this moment; try again",
                retry_after_s=BUSY_RETRY_S,
            )
        min(idle, key=lambda it: it.used_at).end()


def has_code(folder: Path) -> bool:
    """True if the folder holds an author's code."""
    return has_file(folder, FILE)


def has_file(folder: Path, name: str) -> bool:
    """True if the folder holds the file, or a link of that name (which may be broken)."""
    return os.path.lexists(folder / name)


def absolute(src: str) -> Path:
    """A folder's path from the root."""
    return Path(os.path.abspath(src))


def build_refusal(message: str) -> Refusal:
    """The refusal of code that cannot be loaded."""
    return Refusal(Cause.DEPENDENCY, message)


async def run_hook(
    host: CodeHost, make: Callable[[int], CodeCall], hook: str, limit_s: float
) -> Replied:
    """One call of a host's hook. Raises CodeError, Refusal."""
    async with host.running() as process:
        return await process.call(make, hook, limit_s)
