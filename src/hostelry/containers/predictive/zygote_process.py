"""The process with the imported framework, as the front sees it: workers forked and ended."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.base.json import decode
from hostelry.containers.predictive.messages import FromZygote, WorkerMessageError, packed, received

PROGRAM = Path(__file__).parent / "worker" / "__main__.py"
LENT_FD = "HOSTELRY_ZYGOTE_FD"  # the variable with the descriptor of a lent one's socket
IMPORT_S = 300.0  # a large framework, read from a slow disk for the first time
FORK_S = 10.0
EXIT_CODE_S = 3.0
DROPPED = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV")
THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)  # fmt: skip

log = logging.getLogger(__name__)
T = TypeVar("T")


class CopyOrder(TypedDict):
    """What a zygote needs to know of the copy that it is forked for; see worker/copy_process.py.

    `marker` is the variable by which the copy's processes are found, its value `copy_folder`.
    Without `uid` and `gid` it stays the same user.
    """

    folder: str
    copy_folder: str
    marker: str
    log: str
    uid: int | None
    gid: int | None


class ZygoteError(HostelryError):
    """The framework cannot be imported, or its process ended; the message has the cause."""


class ZygoteProcess:
    """The process; `start` it, then `fork` workers. `ended` is set once it is gone."""

    def __init__(
        self,
        python: Path,
        modules: Sequence[str],
        environment: Mapping[str, str],
        also: Sequence[str] = (),
        later: Sequence[str] = (),
        idle_s: float | None = None,
    ) -> None:
        """`also` are modules that are imported where they are there, `later` while it waits.

        With `idle_s` it is an agent's, for many copies: it ends after that time with one at most.
        """
        self._python = python
        self._options = [part for name in also for part in ("--also", name)]
        self._options += [part for name in later for part in ("--later", name)]
        self._options += [] if idle_s is None else ["--idle-s", str(idle_s)]
        self._modules = tuple(modules)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None  # unless it was lent
        self._pid = 0
        self._orders: socket.socket | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._forked: dict[int, asyncio.Future[int]] = {}
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._last_number = 0
        self._reading: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None  # its end closes the socket
        self.ended = asyncio.Event()
        self.fault = ""
        self.versions: Mapping[str, str] = {}

    async def start(self, lent: socket.socket | None = None) -> None:
        """Start it, or take the `lent` one if it is there, and wait for the imported framework.

        Raises ZygoteError.
        """
        if lent is not None and not await answers(lent, self._environment):
            log.info("no process with an imported framework was lent; it is imported here")
            lent.close()
            lent = None
        ours = self._started() if lent is None else lent
        self._orders = ours.dup()
        self._orders.setblocking(False)
        ours.setblocking(False)
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._reading = asyncio.create_task(self._read(reader), name="zygote")
        await self._within(self._ready, IMPORT_S, f"{', '.join(self._modules)} not imported")

    def _started(self) -> socket.socket:
        """The socket to a process of its own."""
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
        """Its process id; it is started."""
        return self._pid

    async def fork(self) -> tuple[int, socket.socket]:
        """A worker's process id, and the socket to it. Raises ZygoteError."""
        ours, theirs = socket.socketpair()
        try:
            pid = await self._forked_for({}, (theirs,))
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
        """The process id of a copy's own zygote, which waits at the gate. Raises ZygoteError.

        It serves the copy's server at the other end of `front`; `whole` has it import everything
        before.
        """
        await asyncio.shield(self._ready)
        order = {"copy": copy, **({"whole": True} if whole else {})}
        return await self._forked_for(order, (front, gate))

    async def _forked_for(self, order: dict[str, Any], sockets: Sequence[socket.socket]) -> int:
        if self._orders is None or self.ended.is_set():
            raise ZygoteError(self.fault or "it was not started")
        self._last_number += 1
        number = self._last_number
        forked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._forked[number] = forked
        message = b"".join(packed({"number": number, **order}))
        try:
            socket.send_fds(self._orders, [message], [it.fileno() for it in sockets])
            return await self._within(forked, FORK_S, "no worker forked")
        except OSError as error:
            raise ZygoteError(f"the order could not be sent: {error}") from error
        finally:
            self._forked.pop(number, None)

    async def exit_code(self, pid: int) -> int | None:
        """The status of a worker that ends, minus its signal; None if it is not known in time."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._end_of(pid)), EXIT_CODE_S)
        return None

    def kill(self, pid: int) -> None:
        """End a worker that has not ended."""
        if pid in self._ends and not self._ends[pid].done():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def close(self) -> None:
        """End it, and with it every worker."""
        if self._process is not None:
            self._process.kill()
        elif self._orders is not None:
            self._orders.shutdown(socket.SHUT_RDWR)  # a lent one ends by that
        if self._reading is not None:
            with suppress(asyncio.CancelledError):
                await self._reading
        if self._orders is not None and self._writer is not None:
            self._orders.close()
            self._writer.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)

    def _end_of(self, pid: int) -> "asyncio.Future[int]":
        return self._ends.setdefault(pid, asyncio.get_running_loop().create_future())

    async def _within(self, future: "asyncio.Future[T]", limit_s: float, what: str) -> T:
        try:
            return await asyncio.wait_for(asyncio.shield(future), limit_s)
        except TimeoutError:
            raise ZygoteError(f"{what} within {limit_s:g} s") from None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        cause = "its process ended"
        try:
            while True:
                head, _ = await received(reader)
                self._take(decode(head, FromZygote))
        except (asyncio.IncompleteReadError, ConnectionError):
            if self._process is not None:
                code = await asyncio.to_thread(self._process.wait)
                kind = "by signal" if code < 0 else "with status"
                cause = f"its process ended {kind} {abs(code)}"
        except (WorkerMessageError, msgspec.DecodeError) as error:
            cause = f"it sent no message: {error}"
        finally:
            self._end(cause)

    def _take(self, message: FromZygote) -> None:
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
            set_once(self._end_of(message.ended), message.code)

    def _end(self, cause: str) -> None:
        self.fault = self.fault or f"the process that workers are forked from is gone: {cause}"
        self.ended.set()
        waited: list[asyncio.Future[Any]] = [self._ready, *self._forked.values()]
        for future in waited:
            if not future.done():
                future.set_exception(ZygoteError(self.fault))
                future.exception()  # seen, also where no call waits for it


def set_once(future: "asyncio.Future[T]", value: T) -> None:
    """Set the result, unless it is set."""
    if not future.done():
        future.set_result(value)


def lent_socket(environment: MutableMapping[str, str]) -> socket.socket | None:
    """The socket to the zygote that the agent forks for this copy; None where it does not."""
    number = environment.pop(LENT_FD, "")
    if not number.isdigit():
        return None
    try:
        return socket.socket(fileno=int(number))
    except OSError:
        return None


async def answers(lent: socket.socket, environment: Mapping[str, str]) -> bool:
    """Whether a lent zygote is there, once it has these variables."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    lent.setblocking(False)
    try:
        await loop.sock_sendall(lent, b"".join(packed({"environment": dict(environment)})))
        loop.add_reader(lent, set_once, readable, None)
        try:
            await asyncio.wait_for(readable, IMPORT_S)
        finally:
            loop.remove_reader(lent)
        return bool(lent.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def worker_environment(
    inherited: Mapping[str, str], python: Path, model_dir: Path, threads: int
) -> dict[str, str]:
    """The environment of zygote and workers: `inherited`, without what steers an interpreter."""
    kept = {name: it for name, it in inherited.items() if name not in DROPPED}
    return {
        **kept,
        **dict.fromkeys(THREADS, str(threads)),
        "PATH": f"{python.parent}:{kept.get('PATH', '/usr/bin:/bin')}",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking CUDA itself before a fork breaks the forks
        "SM_MODEL_DIR": str(model_dir),
    }
