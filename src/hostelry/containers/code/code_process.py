"""The server's side of a process with an author's code: launch, calls, time limits, death.

                          base model's code               an adapter's code
variables if confined     SETTINGS, NEUTRAL               NEUTRAL
variables if trusted      all except SECRETS              NEUTRAL
reads                     the model folder                the adapter's folder, tokenizer files
writes                    a scratch folder                nothing

Both read Python, the system's libraries, and a few files of /etc, /proc and /sys.
"""

import asyncio
import logging
import os
import re
import signal
import site
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.base.operator_secrets import HUB_VARIABLES
from hostelry.containers.code.messages import (
    FROM_CODE,
    LENGTH,
    MAX_REPLY_BYTES,
    At,
    Broken,
    Cancel,
    CodeCall,
    FromCode,
    LoadCode,
    Loaded,
    Raised,
    Replied,
    ToCode,
    Where,
    framed_message,
)

MAX_LINE_CHARACTERS = 2000
LINES_PER_PERIOD = 500
PERIOD_S = 10.0
READ_BYTES = 64 * 1024
FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>[^"]*)')
LOG = logging.getLogger(__name__)
NEUTRAL = (
    "LANG", "LANGUAGE", "LC_*", "TZ", "PATH", "LD_LIBRARY_PATH", "PYTHONSAFEPATH",
    "PYTHONNOUSERSITE", "PYTHONPATH", "PYTHONUSERBASE", "OMP_NUM_THREADS",
    "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
)  # fmt: skip
SETTINGS = (
    "OPTION_*", "SERVING_*", "SAGEMAKER_*", "SM_*", "HF_MODEL_ID", "HF_REVISION", "HF_TASK",
    "AWS_REGION", "AWS_DEFAULT_REGION", "TENSOR_PARALLEL_DEGREE",
)  # fmt: skip
SECRETS = (
    "HOSTELRY_*", *sorted(HUB_VARIABLES), "*_PROXY", "*_proxy", "HF_ENDPOINT",
    "*HF_TOKEN", "*API_KEY", "*AUTHTOKEN", "*KEYSTORE_PASS",
)  # fmt: skip
SYSTEM_PLACES = (
    "/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/certs",
    "/etc/mime.types", "/dev/null", "/dev/zero", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo",
    "/sys/devices/system/cpu",
)  # fmt: skip
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
    "chat_template.json", "config.json",
)  # fmt: skip
PLACE_S = 1.0  # the time in which a process must report the line at which it hangs
EXIT_S = 5.0


class CodeOutput(asyncio.Protocol):
    """Reads the output of a process into the log, so that the process never blocks on its pipe.

    `author` names the code in the log. Lines above LINES_PER_PERIOD in PERIOD_S seconds are
    counted and left out. Frames of a stack dump go to `frames`, not to the log.
    """

    def __init__(self, author: str, now: float) -> None:
        self._author = author
        self._open_line = b""
        self._period_ends_at = now + PERIOD_S
        self._num_lines = 0
        self._loop = asyncio.get_running_loop()
        self.frames: list[tuple[str, int, str]] = []
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Log whole lines, cut to MAX_LINE_CHARACTERS."""
        *lines, rest = (self._open_line + data).split(b"\n")
        for line in lines:
            self._take(line)
        self._open_line = rest[: MAX_LINE_CHARACTERS + 1]

    def connection_lost(self, error: Exception | None) -> None:
        """Log the rest."""
        if self._open_line:
            self._take(self._open_line)
        self.ended.set()

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        if frame := FRAME.fullmatch(text):
            self.frames.append((frame["file"], int(frame["line"]), frame["function"]))
            del self.frames[:-100]
            return
        now = self._loop.time()
        if now > self._period_ends_at:
            if self._num_lines > LINES_PER_PERIOD:
                LOG.warning(
                    "%s: %d lines left out", self._author, self._num_lines - LINES_PER_PERIOD
                )
            self._period_ends_at, self._num_lines = now + PERIOD_S, 0
        self._num_lines += 1
        if self._num_lines <= LINES_PER_PERIOD and text.strip():
            shown = "".join(it if it.isprintable() else "?" for it in text[:MAX_LINE_CHARACTERS])
            LOG.info("%s: %s", self._author, shown)


def code_environment(
    server: Mapping[str, str], *, is_adapter: bool, is_confined: bool, scratch: Path | None
) -> dict[str, str]:
    """The variables of an author's process, selected from the server's."""
    passed = {name: it for name, it in server.items() if not is_like(name, SECRETS)}
    if is_adapter or is_confined:
        patterns = NEUTRAL if is_adapter else NEUTRAL + SETTINGS
        passed = {name: it for name, it in passed.items() if is_like(name, patterns)}
    places = {"HOME": str(scratch or "/"), "TMPDIR": str(scratch or "/")}
    own = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if site.ENABLE_USER_SITE:  # otherwise Python derives it from HOME
        own["PYTHONUSERBASE"] = site.getuserbase()
    return {**passed, **(places if is_confined else {}), **own}


def is_like(name: str, patterns: Sequence[str]) -> bool:
    """True if the name matches a pattern, in which a star stands for any characters."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def readable_places(
    folder: Path, tokenizer_folder: Path, packages: Path | None = None
) -> tuple[str, ...]:
    """Files and folders that the code of `folder` may read."""
    python = [it for it in sys.path if it and Path(it).is_absolute() and Path(it).exists()]
    files = [os.path.realpath(tokenizer_folder / name) for name in TOKENIZER_FILES]
    own = [sys.prefix, sys.base_prefix, *python, str(folder), os.path.realpath(folder)]
    return (*own, *files, *([str(packages)] if packages else []), *SYSTEM_PLACES)


class CodeError(HostelryError):
    """The author's code failed. The message names the hook, the cause and the line."""


class CodeLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """The launch of a process: the module `program`, the code to load, and its environment.

    `author` names the code in messages.
    """

    author: str
    load: LoadCode
    environment: Mapping[str, str]
    load_limit_s: float
    program: str


class CodeProcess:
    """A running process, made by `start_code`."""

    def __init__(
        self, launch: CodeLaunch, process: subprocess.Popen[bytes], output: CodeOutput
    ) -> None:
        self._launch = launch
        self._process = process
        self._output = output
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[FromCode]] = {}
        self._running: dict[int, str] = {}
        self._places: dict[int, asyncio.Future[str | None]] = {}
        self._last_id = 0
        self._fault: str | None = None
        self._is_closing = False
        self.hooks: frozenset[str] = frozenset()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """True if it takes calls."""
        return self._fault is None

    async def connect(self, ours: socket.socket) -> None:
        """Send the first message and wait for the hooks. Raises CodeError."""
        ours.setblocking(False)
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        loaded = self._expect(0)
        self._reading = asyncio.create_task(self._read(reader))
        self._send(self._launch.load)
        answer = await self._wait_for_answer(0, loaded, "its load", self._launch.load_limit_s)
        if isinstance(answer, Broken):
            await self.close()
            raise CodeError(f"{self._launch.author} cannot be loaded: {answer.error}")
        if isinstance(answer, Loaded):
            self.hooks = frozenset(answer.hooks)

    async def call(self, make: Callable[[int], CodeCall], hook: str, limit_s: float) -> Replied:
        """Send the call that `make` builds with a number. Returns the reply. Raises CodeError.

        A call that takes longer than `limit_s` ends the process, and with it the other calls.
        """
        self._last_id += 1
        call = self._last_id
        answered = self._expect(call)
        try:
            self._send(make(call))
            answer = await self._wait_for_answer(call, answered, hook, limit_s)
        except asyncio.CancelledError:
            self.cancel(call)
            raise
        finally:
            self._waiting.pop(call, None)
        if isinstance(answer, Raised):
            raise CodeError(f"{hook} of {self._launch.author}: {answer.error}")
        if not isinstance(answer, Replied):
            raise CodeError(f"{hook} of {self._launch.author}: no reply but {answer}")
        return answer

    def cancel(self, call: int) -> None:
        """End a call or its stream, if no client waits for the result any more."""
        if self.is_alive:
            self._send(Cancel(call))

    async def close(self) -> None:
        """End the process."""
        self._is_closing = True
        self._process.kill()
        if self._reading is not None:
            with suppress(asyncio.CancelledError):
                await self._reading
        if self._writer is not None:
            self._writer.close()
        await asyncio.to_thread(self._process.wait, EXIT_S)

    def _expect(self, call: int) -> asyncio.Future[FromCode]:
        if self._fault is not None:
            raise CodeError(self._fault)
        self._waiting[call] = asyncio.get_running_loop().create_future()
        return self._waiting[call]

    async def _wait_for_answer(
        self, call: int, answered: asyncio.Future[FromCode], hook: str, limit_s: float
    ) -> FromCode:
        self._running[call] = hook
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.shield(answered)
        except TimeoutError:
            place = await self._find_place(call)
            at = f"; it was at {place}" if place else ""
            error = f"{hook} of {self._launch.author} did not end within {limit_s:g} s{at}"
            self._end(f"{error}, so its process was ended")
            raise CodeError(error) from None
        finally:
            self._running.pop(call, None)

    async def _find_place(self, call: int) -> str | None:
        """The line of a call, as the process reports it, or from its stack dump if it hangs."""
        asked: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._places[call] = asked
        try:
            self._send(Where(call))
            async with asyncio.timeout(PLACE_S):
                return await asked
        except (TimeoutError, CodeError):
            return await self._find_place_by_signal()
        finally:
            del self._places[call]

    async def _find_place_by_signal(self) -> str | None:
        self._output.frames.clear()
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
        for _ in range(20):
            await asyncio.sleep(PLACE_S / 20)
            for file, line, function in self._output.frames:
                folder = Path(self._launch.load.folder)
                if Path(file).is_relative_to(folder):
                    return f"{Path(file).relative_to(folder)} line {line} in {function}"
        return None

    def _send(self, message: ToCode) -> None:
        if self._fault is not None or self._writer is None:
            raise CodeError(self._fault or "the process has not started")
        self._writer.write(framed_message(message))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                if size > MAX_REPLY_BYTES:
                    self._end(f"{self._launch.author} sent a message of {size} bytes")
                    break
                self._take(FROM_CODE.decode(await reader.readexactly(size)))
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._note_death()
        except msgspec.MsgspecError as error:
            self._end(f"{self._launch.author} sent a message that is none: {error}")
        finally:
            for answered in self._waiting.values():
                if not answered.done():
                    answered.set_exception(CodeError(self._fault or "the process ended"))
                    answered.exception()  # marks it as retrieved, if no call waits

    def _take(self, message: FromCode) -> None:
        if isinstance(message, At):
            asked = self._places.get(message.id)
            if asked is not None and not asked.done():
                asked.set_result(message.place)
            return
        answered = self._waiting.get(0 if isinstance(message, Loaded | Broken) else message.id)
        if answered is not None and not answered.done():
            answered.set_result(message)

    async def _note_death(self) -> None:
        code = await asyncio.to_thread(reap_process, self._process)
        during = ", ".join(sorted(set(self._running.values()))) or "no call"
        cause = f"by signal {-code}" if code < 0 else f"with status {code}"
        self._fault = self._fault or f"{self._launch.author} ended {cause} during {during}"
        if not self._is_closing:
            LOG.warning("%s", self._fault)

    def _end(self, fault: str) -> None:
        if self._fault is None:
            self._fault = fault
            LOG.warning("%s", fault)
        self._process.kill()


def reap_process(process: subprocess.Popen[bytes]) -> int:
    """The exit status of a process whose connection ended. Kills it if it is alive."""
    try:
        return process.wait(PLACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(EXIT_S)


async def start_code(launch: CodeLaunch) -> CodeProcess:
    """Start a process and load its code. Raises CodeError with the reason if it cannot run."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    # Not asyncio's: the kernel's parent-death signal is tied to the thread that starts it.
    process = subprocess.Popen(  # noqa: ASYNC220 - see above
        [sys.executable, "-P", "-m", launch.program,
         "--socket-fd", str(theirs.fileno()), "--parent", str(os.getpid())],
        pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=writing, stderr=writing,
        env=dict(launch.environment),
    )  # fmt: skip
    theirs.close()
    os.close(writing)
    pipe = os.fdopen(reading, "rb", buffering=0)
    _, output = await loop.connect_read_pipe(lambda: CodeOutput(launch.author, loop.time()), pipe)
    started = CodeProcess(launch, process, output)
    try:
        await started.connect(ours)
    except (CodeError, asyncio.CancelledError):
        await started.close()
        raise
    return started
