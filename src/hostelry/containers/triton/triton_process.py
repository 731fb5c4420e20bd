"""One tritonserver, which has one model loaded, and the models that it calls.

It listens on Unix sockets in its own folder, which no other user can enter: who can call it can
also have it load code. Each model has a server of its own, so that a model's end, its name and its
memory are no other model's.
"""

import asyncio
import ctypes
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.base.json import decode
from hostelry.base.proc import PROC, process_stat, processes
from hostelry.base.shared_memory import close_regions, remove_regions
from hostelry.containers.http.server_connection import ServerLostError, ServerPool
from hostelry.containers.predictive.worker_process import ModelLoadError
from hostelry.containers.triton.program import STUB, TritonProgram
from hostelry.containers.triton.python_environments import (
    environments,
    remove_environments,
    used_by,
)
from hostelry.containers.triton.zero_request import zero_request

PR_SET_PDEATHSIG = 1
HTTP, METRICS = "http", "metrics"  # sockets, in the folder
LEFT = "left.json"
START_S = 60.0
LOOK_S = 0.02
END_S = 2.0
UNLOAD_S = 5.0  # for a model's finalize()
CALL_S = 10.0
MAX_ANSWER_BYTES = (1 << 31) - 1
OK, UNAVAILABLE = 200, 503

_libc = ctypes.CDLL(None)
log = logging.getLogger("hostelry.containers.triton")


class TritonLostError(HostelryError):
    """The server or a model's process is gone; the message has the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonOrder:
    """What a server is started for.

    `model` is the one that requests are for, `folder` its own place, relative to the working folder
    since the paths of sockets are short; `regions` is what its shared memory's names begin with.
    """

    program: TritonProgram
    repository: Path
    model: str
    inference: str
    is_stateless: bool
    can_be_killed: bool
    options: tuple[str, ...]
    folder: Path
    regions: str
    load_limit_s: float
    proof_limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonAnswer:
    """An answer; its headers' names are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class LeftEnvironments(msgspec.Struct, frozen=True):
    """Folders of the Python backend that a killed server leaves: `made` and `used` by name."""

    made: list[str] = []
    used: list[str] = []

    def remove(self) -> None:
        """Remove them."""
        remove_environments({*self.made, *self.used}, self.used)


def remove_left(folder: Path) -> None:
    """Remove what the servers have left that had their folders below this one."""
    for file in folder.glob(f"*/*/{LEFT}"):
        with suppress(OSError, msgspec.DecodeError):
            decode(file.read_bytes(), LeftEnvironments).remove()


class _ModelState(msgspec.Struct, frozen=True):
    """A row of the index of Triton's repository."""

    name: str
    state: str = ""
    reason: str = ""


def arguments(order: TritonOrder) -> list[str]:
    """The command line; the server's working folder is the order's."""
    return [
        str(order.program.path),
        f"--model-repository={order.repository}",
        f"--backend-directory={order.program.backends}",
        "--model-control-mode=explicit",
        "--strict-readiness=false",
        "--allow-grpc=false",
        f"--http-address=unix:{HTTP}",
        f"--metrics-address=unix:{METRICS}",
        f"--backend-config=python,shm-region-prefix-name={order.regions}",
        *order.options,
    ]


class TritonProcess:
    """The server; `start` it, `invoke` its model, `stop` it."""

    def __init__(self, order: TritonOrder, clock: Clock) -> None:
        self._order = order
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._http = _pool(order.folder / HTTP)
        self._metrics = _pool(order.folder / METRICS)
        self._loaded: frozenset[int] = frozenset()  # the processes of the loaded models
        self._reason: str | None = None
        self._left = LeftEnvironments()
        self.last_answer_at = 0.0

    @property
    def pids(self) -> tuple[int, ...]:
        """Its processes: the server's, and those of Python models."""
        if self._process is None or self._process.poll() is not None:
            return ()
        session = self._process.pid
        return tuple(it.pid for it in processes() if it.session == session)

    @property
    def loss(self) -> str | None:
        """Which process is gone that should be there, or why it was killed; None while all are."""
        if self._reason is not None:
            return self._reason
        if self._process is None:
            return "tritonserver has not started"
        code = self._process.poll()
        if code is not None:
            kind = f"signal {-code}" if code < 0 else f"exit code {code}"
            return f"tritonserver ended with {kind}; the copy's log has its output"
        if any(process_stat(it) is None for it in self._loaded):
            return "the model's process died"
        return None

    async def start(self) -> None:
        """Start it, load the model and prove that it answers. Raises ModelLoadError."""
        shutil.rmtree(self._order.folder, ignore_errors=True)
        self._order.folder.mkdir(mode=0o700, parents=True)
        before = environments()
        try:
            # Not asyncio's: the parent-death signal is tied to the thread that starts it.
            self._process = subprocess.Popen(  # noqa: ASYNC220
                arguments(self._order),
                cwd=self._order.folder,
                env=dict(self._order.program.variables),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                umask=0o077,
                preexec_fn=_end_with_parent,
            )
        except OSError as error:
            raise ModelLoadError(
                f"{self._order.program.path} cannot be started: {error}"
            ) from error
        try:
            await self._listening()
            await self._load()
            await self._prove()
        except (ServerLostError, TimeoutError) as error:
            raise ModelLoadError(self.loss or str(error) or "Triton did not answer") from error
        finally:
            self._left = LeftEnvironments(
                made=sorted(environments() - before), used=sorted(used_by(self.pids))
            )
            with suppress(OSError):
                (self._order.folder / LEFT).write_bytes(msgspec.json.encode(self._left))

    async def invoke(self, headers: Mapping[str, str], body: bytes) -> TritonAnswer:
        """The model's answer. Raises TritonLostError where a process is gone."""
        path = f"/v2/models/{quote(self._order.model, safe='')}/{self._order.inference}"
        try:
            answer = await self._call(self._http, "POST", path, body, headers)
        except ServerLostError as error:
            await self._clock.sleep(LOOK_S)  # the kernel reports an end later than a broken socket
            raise TritonLostError(self.loss or str(error)) from None
        self.last_answer_at = self._clock.now()
        if answer.status != OK and (loss := self.loss) is not None:
            raise TritonLostError(f"{loss}: {self.words(answer.body)}")
        return answer

    async def metrics(self) -> str:
        """Its page for Prometheus; empty where it gives none."""
        with suppress(ServerLostError, TimeoutError):
            async with asyncio.timeout(CALL_S):
                answer = await self._call(self._metrics, "GET", "/metrics", b"", {})
            return answer.body.decode(errors="replace")
        return ""

    async def stop(self) -> None:
        """Unload the model, and end every process; its memory is free on return.

        An unload takes a second, which is for the model's finalize() alone.
        """
        if self._process is not None and self.loss is None and not self._order.can_be_killed:
            with suppress(ServerLostError, TimeoutError):
                async with asyncio.timeout(UNLOAD_S):
                    await self._unload()
        await self.kill()

    async def kill(self, reason: str | None = None) -> None:
        """End every process at once; requests that it has fail with the reason."""
        self._reason = reason
        self._http.close()
        self._metrics.close()
        if self._process is not None:
            pids = self.pids
            if not self._loaded:
                await self._ended()
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await asyncio.to_thread(self._process.wait)
            with suppress(TimeoutError):
                async with asyncio.timeout(CALL_S):
                    while any(process_stat(it) is not None for it in pids):
                        await self._clock.sleep(LOOK_S)
        remove_regions(self._order.regions)
        self._left.remove()
        shutil.rmtree(self._order.folder, ignore_errors=True)

    async def _ended(self) -> None:
        """Let it end by itself, which removes what it has unpacked; without models that is fast."""
        assert self._process is not None, "it was started"
        self._process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                while self._process.poll() is None:
                    await self._clock.sleep(LOOK_S)

    def words(self, body: bytes) -> str:
        """The text of an error, without paths of this machine."""
        text = body.decode(errors="replace")
        with suppress(msgspec.DecodeError):
            found = msgspec.json.decode(body)
            text = str(found.get("error", text)) if isinstance(found, dict) else text
        return self.without_paths(text)

    def without_paths(self, text: str) -> str:
        """A text whose files are the model's own."""
        for folder in (self._order.repository, self._order.repository.resolve()):
            text = text.replace(f"{folder}/", "")
        return text.replace(str(self._order.program.backends), "backends")

    async def _listening(self) -> None:
        async with asyncio.timeout(START_S):
            while self.loss is None:
                with suppress(ServerLostError):
                    if (
                        await self._call(self._http, "GET", "/v2/health/live", b"", {})
                    ).status == OK:
                        return
                await self._clock.sleep(LOOK_S)
        raise ModelLoadError(str(self.loss))

    async def _load(self) -> None:
        path = f"/v2/repository/models/{quote(self._order.model, safe='')}/load"
        async with asyncio.timeout(self._order.load_limit_s):
            answer = await self._call(self._http, "POST", path, b"{}", {})
        if answer.status != OK:
            reasons = [f"{it.name}: {it.reason}" for it in await self._index() if it.reason]
            found = "; ".join(reasons) or self.words(answer.body)
            raise ModelLoadError(self.without_paths(found))
        close_regions(self._order.regions)  # made for all to read; from now on requests are in them
        self._loaded = frozenset(it for it in self.pids if _runs_a_model(it))

    async def _prove(self) -> None:
        """One request of zeros, where the model takes one: any answer will do but a death."""
        path = f"/v2/models/{quote(self._order.model, safe='')}/config"
        async with asyncio.timeout(CALL_S):
            config: dict[str, Any] = msgspec.json.decode(
                (await self._call(self._http, "GET", path, b"", {})).body
            )
        zeros = zero_request(config) if self._order.is_stateless else None
        if zeros is None or self._order.inference != "infer":
            log.info("%s: no request of zeros fits, so none was tried", self._order.model)
            return
        try:
            async with asyncio.timeout(self._order.proof_limit_s):
                answer = await self.invoke({}, msgspec.json.encode(zeros))
        except TritonLostError as error:
            raise ModelLoadError(f"with a request of zeros {error}") from None
        except TimeoutError:
            limit_s = self._order.proof_limit_s
            raise ModelLoadError(f"a request of zeros had no answer within {limit_s:g} s") from None
        if answer.status != OK:
            log.warning("a request of zeros was answered with %s", self.words(answer.body))

    async def _unload(self) -> None:
        path = f"/v2/repository/models/{quote(self._order.model, safe='')}/unload"
        body = b'{"parameters":{"unload_dependents":true}}'
        await self._call(self._http, "POST", path, body, {})
        while any(it.state not in ("", "UNAVAILABLE") for it in await self._index()):
            await self._clock.sleep(LOOK_S)

    async def _index(self) -> list[_ModelState]:
        answer = await self._call(self._http, "POST", "/v2/repository/index", b"{}", {})
        with suppress(msgspec.DecodeError):
            return decode(answer.body, list[_ModelState])
        return []

    async def _call(
        self, pool: ServerPool, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> TritonAnswer:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {path} HTTP/1.1\r\nHost: triton\r\nContent-Length: {len(body)}\r\n"
        answer = await pool.send(f"{head}{lines}\r\n".encode("latin-1"), body)
        try:
            content = await answer.body(MAX_ANSWER_BYTES)
            return TritonAnswer(status=answer.status, headers=answer.headers, body=content)
        finally:
            answer.close()


def _pool(path: Path) -> ServerPool:
    return ServerPool(
        lambda made: asyncio.get_running_loop().create_unix_connection(made, str(path)), "Triton"
    )


def _runs_a_model(pid: int) -> bool:
    """Whether it is a process of the Python backend; the name is cut to 15 characters."""
    with suppress(OSError):
        return (PROC / str(pid) / "comm").read_text().strip() == STUB[:15]
    return False


def _end_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
