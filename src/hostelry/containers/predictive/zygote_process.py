"""The process with the imported framework, as the front sees it: workers forked and ended."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.base.json import decode
from hostelry.containers.predictive.messages import FromZygote, WorkerMessageError, packed, received

PROGRAM = Path(__file__).parent / "worker" / "__main__.py"
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
    ) -> None:
        """`also` are modules that are imported where they are there."""
        self._python = python
        self._also = [part for name in also for part in ("--also", name)]
        self._modules = tuple(modules)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
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

    async def start(self) -> None:
        """Start it and wait until the framework is imported. Raises ZygoteError."""
        ours, theirs = socket.socketpair()
        command = [
            str(self._python), "-s", str(PROGRAM),
            "--socket-fd", str(theirs.fileno()), "--parent", str(os.getpid()),
            *self._also, *self._modules,
        ]  # fmt: skip
        try:
            # Not asyncio's: the kernel's parent-death signal is tied to the thread that starts it.
            self._process = subprocess.Popen(  # noqa: ASYNC220 - see above
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
        self._orders = ours.dup()
        self._orders.setblocking(False)
        ours.setblocking(False)
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._reading = asyncio.create_task(self._read(reader), name="zygote")
        await self._within(self._ready, IMPORT_S, f"{', '.join(self._modules)} not imported")

    @property
    def pid(self) -> int:
        """Its process id; it is started."""
        assert self._process is not None, "it is started"
        return self._process.pid

    async def fork(self) -> tuple[int, socket.socket]:
        """A worker's process id, and the socket to it. Raises ZygoteError."""
        if self._orders is None or self.ended.is_set():
            raise ZygoteError(self.fault or "it was not started")
        self._last_number += 1
        number = self._last_number
        forked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._forked[number] = forked
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._orders, packed({"number": number}), [theirs.fileno()])
            pid = await self._within(forked, FORK_S, "no worker forked")
        except OSError as error:
            ours.close()
            raise ZygoteError(f"the order could not be sent: {error}") from error
        except ZygoteError:
            ours.close()
            raise
        finally:
            theirs.close()
            self._forked.pop(number, None)
        ours.setblocking(False)
        return pid, ours

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
            assert self._process is not None, "it is started"
            code = await asyncio.to_thread(self._process.wait)
            cause = f"its process ended {'by signal' if code < 0 else 'with status'} {abs(code)}"
        except (WorkerMessageError, msgspec.DecodeError) as error:
            cause = f"it sent no message: {error}"
        finally:
            self._end(cause)

    def _take(self, message: FromZygote) -> None:
        if message.ready:
            self.versions = {"python": message.python, **message.versions}
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
