"""The process with the imported framework, as the front sees it, and messages to its workers.

worker/serving.py has the format of messages.
"""

import asyncio
import logging
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.base.json import decode

LENGTHS = struct.Struct(">II")
MAX_HEAD_BYTES = 1 << 20
MAX_BODY_BYTES = 1 << 31
PROGRAM = Path(__file__).parent / "worker" / "__main__.py"
LENT_FD = "HOSTELRY_ZYGOTE_FD"  # the variable with the descriptor of a lent zygote's socket
IMPORT_S = 300.0  # a large framework, read from a slow disk for the first time
FORK_S = 10.0
EXIT_CODE_S = 3.0
DROPPED = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV")
THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)  # fmt: skip
LOG = logging.getLogger(__name__)
T = TypeVar("T")


class WorkerMessageError(HostelryError):
    """The message is invalid, so the connection cannot be used any more."""


class FromZygote(msgspec.Struct, frozen=True):
    """A message from the zygote (see worker/zygote.py)."""

    ready: bool = False
    failed: str | None = None
    number: int | None = None
    forked: int | None = None
    ended: int | None = None
    code: int = 0
    versions: dict[str, str] = {}
    python: str = ""
    pid: int = 0


class ReplyHead(msgspec.Struct, frozen=True):
    """The head of the answer to one request. Its body has `length` bytes."""

    status: int
    content_type: str
    headers: dict[str, str]
    length: int


class FromWorker(msgspec.Struct, frozen=True):
    """A message from a worker (see worker/serving.py)."""

    loaded: bool = False
    failed: str | None = None
    replies: tuple[ReplyHead, ...] = ()
    parameters: dict[str, Any] | None = None


def pack_message(head: dict[str, Any], *bodies: bytes) -> list[bytes]:
    """A message as pieces to write one after the other."""
    text = msgspec.json.encode(head)
    return [LENGTHS.pack(len(text), sum(map(len, bodies))) + text, *bodies]


async def receive_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of the next message.

    Raises IncompleteReadError at the end, WorkerMessageError if a length exceeds its limit.
    """
    head, body = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
    if head > MAX_HEAD_BYTES or body > MAX_BODY_BYTES:
        raise WorkerMessageError(f"a head of {head} and a body of {body} bytes")
    text = await reader.readexactly(head)
    return text, await reader.readexactly(body) if body else b""


def decode_worker_message(head: bytes) -> FromWorker:
    """Decode the head of a worker's message. Raises WorkerMessageError."""
    try:
        return decode(head, FromWorker)
    except msgspec.DecodeError as error:
        raise WorkerMessageError(str(error)) from error


class CopyOrder(TypedDict):
    """The copy that a zygote is forked for (see worker/copy_process.py).

    The variable `marker` with the value `copy_folder` marks the copy's processes. Without `uid` and
    `gid` the zygote keeps its user.
    """

    folder: str
    copy_folder: str
    marker: str
    log: str
    uid: int | None
    gid: int | None


class ZygoteError(HostelryError):
    """The framework cannot be imported, or its process ended. The message has the cause."""


class ZygoteProcess:
    """The process with the imported framework. Call `start`, then `fork`.

    `ended` is set once the process is gone.
    """

    def __init__(
        self,
        python: Path,
        modules: Sequence[str],
        environment: Mapping[str, str],
        also: Sequence[str] = (),
        later: Sequence[str] = (),
        idle_s: float | None = None,
    ) -> None:
        """`modules` are imported first, `also` if they exist, `later` while the process is idle.

        With `idle_s` the process is an agent's, for many copies. It ends after that time with at
        most one copy.
        """
        self._python = python
        self._options = [part for name in also for part in ("--also", name)]
        self._options += [part for name in later for part in ("--later", name)]
        self._options += [] if idle_s is None else ["--idle-s", str(idle_s)]
        self._modules = tuple(modules)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None  # None for a lent zygote
        self._pid = 0
        self._orders: socket.socket | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._forked: dict[int, asyncio.Future[int]] = {}
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._last_number = 0
        self._reading: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None  # kept, because its end closes the socket
        self.ended = asyncio.Event()
        self.fault = ""
        self.versions: Mapping[str, str] = {}

    async def start(self, lent: socket.socket | None = None) -> None:
        """Start the process, or use the `lent` one if it answers, and wait for its import.

        Raises ZygoteError.
        """
        if lent is not None and not await is_answering(lent, self._environment):
            LOG.info("no process with an imported framework was lent; it is imported here")
            lent.close()
            lent = None
        ours = self._start_process() if lent is None else lent
        self._orders = ours.dup()
        self._orders.setblocking(False)
        ours.setblocking(False)
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._reading = asyncio.create_task(self._read(reader), name="zygote")
        await self._wait_within(self._ready, IMPORT_S, f"{', '.join(self._modules)} not imported")

    def _start_process(self) -> socket.socket:
        """Start the process. Returns the socket to it."""
        ours, theirs = socket.socketpair()
        command = [
            str(self._python), "-s", str(PROGRAM),
            "--socket-fd", str(theirs.fileno()), "--parent", str(os.getpid()),
            *self._options, *self._modules,
        ]  # fmt: skip
        try:
            # Not asyncio's: the kernel's parent-death signal is tied to the thread that starts it.
            self._process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=self._environment,
            )
        except OSError as error:
            ours.close()
            raise ZygoteError(f"{self._python} cannot be started: {error}") from error
        finally:
            theirs.close()
        self._pid = self._process.pid
        return ours

    @property
    def pid(self) -> int:
        """The process id."""
        return self._pid

    async def fork(self) -> tuple[int, socket.socket]:
        """Fork a worker. Returns its process id and the socket to it. Raises ZygoteError."""
        ours, theirs = socket.socketpair()
        try:
            pid = await self._order_fork({}, (theirs,))
        except ZygoteError:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        return pid, ours

    async def fork_copy(
        self, copy: CopyOrder, whole: bool, front: socket.socket, gate: socket.socket
    ) -> int:
        """Fork the zygote of a copy, which waits at the gate. Returns its id. Raises ZygoteError.

        It serves the copy's server at the other end of `front`. With `whole` it first imports all
        modules.
        """
        await asyncio.shield(self._ready)
        order = {"copy": copy, **({"whole": True} if whole else {})}
        return await self._order_fork(order, (front, gate))

    async def _order_fork(self, order: dict[str, Any], sockets: Sequence[socket.socket]) -> int:
        if self._orders is None or self.ended.is_set():
            raise ZygoteError(self.fault or "it was not started")
        self._last_number += 1
        number = self._last_number
        forked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._forked[number] = forked
        message = b"".join(pack_message({"number": number, **order}))
        try:
            socket.send_fds(self._orders, [message], [it.fileno() for it in sockets])
            what = f"none of {len(self._forked)} workers that were asked for was forked"
            return await self._wait_within(forked, FORK_S, what)
        except OSError as error:
            raise ZygoteError(f"the order could not be sent: {error}") from error
        finally:
            self._forked.pop(number, None)

    async def exit_code(self, pid: int) -> int | None:
        """The status of a worker, or minus its signal. None if it is not known in time."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._get_end(pid)), EXIT_CODE_S)
        return None

    def kill(self, pid: int) -> None:
        """End a worker, if it lives."""
        if pid in self._ends and not self._ends[pid].done():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def wait_for_end(self) -> str:
        """Wait until the process is gone. Returns the reason."""
        await self.ended.wait()
        return self.fault

    async def close(self) -> None:
        """End the process, and with it every worker."""
        if self._process is not None:
            self._process.kill()
        elif self._orders is not None:
            self._orders.shutdown(socket.SHUT_RDWR)  # ends a lent zygote
        if self._reading is not None:
            with suppress(asyncio.CancelledError):
                await self._reading
        if self._orders is not None and self._writer is not None:
            self._orders.close()
            self._writer.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)

    def _get_end(self, pid: int) -> "asyncio.Future[int]":
        return self._ends.setdefault(pid, asyncio.get_running_loop().create_future())

    async def _wait_within(self, future: "asyncio.Future[T]", limit_s: float, what: str) -> T:
        try:
            return await asyncio.wait_for(asyncio.shield(future), limit_s)
        except TimeoutError:
            raise ZygoteError(f"{what} within {limit_s:g} s") from None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        cause = "its process ended"
        try:
            while True:
                head, _ = await receive_message(reader)
                self._handle(decode(head, FromZygote))
        except (asyncio.IncompleteReadError, ConnectionError):
            if self._process is not None:
                code = await asyncio.to_thread(self._process.wait)
                kind = "by signal" if code < 0 else "with status"
                cause = f"its process ended {kind} {abs(code)}"
        except (WorkerMessageError, msgspec.DecodeError) as error:
            cause = f"it sent no message: {error}"
        finally:
            self._end(cause)

    def _handle(self, message: FromZygote) -> None:
        if message.ready:
            self.versions = {"python": message.python, **message.versions}
            self._pid = message.pid
            set_once(self._ready, None)
        elif message.failed is not None:
            self.fault = f"the framework cannot be imported: {message.failed}"
        elif message.forked is not None and message.number in self._forked:
            self._ends[message.forked] = asyncio.get_running_loop().create_future()
            set_once(self._forked[message.number], message.forked)
        elif message.ended is not None:
            set_once(self._get_end(message.ended), message.code)

    def _end(self, cause: str) -> None:
        self.fault = self.fault or f"the process that workers are forked from is gone: {cause}"
        self.ended.set()
        waited: list[asyncio.Future[Any]] = [self._ready, *self._forked.values()]
        for future in waited:
            if not future.done():
                future.set_exception(ZygoteError(self.fault))
                future.exception()  # marks it as retrieved, if no call waits


def set_once(future: "asyncio.Future[T]", value: T) -> None:
    """Set the result, if the future is not done."""
    if not future.done():
        future.set_result(value)


def take_lent_socket(environment: MutableMapping[str, str]) -> socket.socket | None:
    """The socket to the zygote that the agent forks for this copy, removed from the variables.

    None if the agent forks no zygote.
    """
    number = environment.pop(LENT_FD, "")
    if not number.isdigit():
        return None
    try:
        return socket.socket(fileno=int(number))
    except OSError:
        return None


async def is_answering(lent: socket.socket, environment: Mapping[str, str]) -> bool:
    """Send the variables to a lent zygote. True if it answers."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    lent.setblocking(False)
    try:
        await loop.sock_sendall(lent, b"".join(pack_message({"environment": dict(environment)})))
        loop.add_reader(lent, set_once, readable, None)
        try:
            await asyncio.wait_for(readable, IMPORT_S)
        finally:
            loop.remove_reader(lent)
        return bool(lent.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def build_worker_environment(
    inherited: Mapping[str, str], python: Path, model_dir: Path, threads: int
) -> dict[str, str]:
    """The environment of zygote and workers: `inherited` without variables of interpreters."""
    kept = {name: it for name, it in inherited.items() if name not in DROPPED}
    return {
        **kept,
        **dict.fromkeys(THREADS, str(threads)),
        "PATH": f"{python.parent}:{kept.get('PATH', '/usr/bin:/bin')}",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # a query of CUDA before a fork breaks the forks
        "SM_MODEL_DIR": str(model_dir),
    }
