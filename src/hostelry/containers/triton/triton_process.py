"""One tritonserver with one loaded model, and the models that this model calls.

It listens on Unix sockets in its own folder, which no other user can enter, because a caller could
also make it load code. Each model has its own server, which separates the models' ends, names and
memory.
"""

import asyncio
import ctypes
import logging
import math
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.base.files import close_regions, remove_regions
from hostelry.base.http import HttpRequest
from hostelry.base.json import decode
from hostelry.base.proc import PROC, first_environment, process_stat, processes
from hostelry.containers.predictive.worker_process import ModelLoadError
from hostelry.containers.triton.program import STUB, TritonProgram
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import UNIX, Timeouts, UpstreamPool

PLACE = Path("/tmp")
NAME = re.compile(r"python_env_[A-Za-z0-9]{6}")
USED = re.compile(rb"/tmp/(python_env_[A-Za-z0-9]{6})/")
MAX_VALUES = 4_000_000  # as JSON, 8 MB
ZEROS: dict[str, Any] = {"BOOL": False, "BYTES": ""}
NOT_IN_JSON = ("FP16", "BF16")
PR_SET_PDEATHSIG = 1
HTTP, METRICS = "http", "metrics"  # sockets, in the folder
LEFT = "left.json"
START_S = 60.0
LOOK_S = 0.02
END_S = 2.0
UNLOAD_S = 5.0  # for a model's finalize()
CALL_S = 10.0
IDLE_S = 5.0
TIMEOUTS = Timeouts(total_s=24 * 3600.0)  # the callers' limits are shorter
MAX_ANSWER_BYTES = (1 << 31) - 1
OK, UNAVAILABLE = 200, 503
_libc = ctypes.CDLL(None)
LOG = logging.getLogger("hostelry.containers.triton")


def list_environments(place: Path = PLACE) -> set[str]:
    """The names of this user's folders of the Python backend."""
    names = set()
    with suppress(OSError):
        for entry in os.scandir(place):
            if NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        names.add(entry.name)
    return names


def list_used(pids: Iterable[int]) -> set[str]:
    """The names of the folders that the processes run in."""
    return {name.decode() for pid in pids for name in USED.findall(first_environment(pid))}


def remove_environments(names: Iterable[str], used: Collection[str], place: Path = PLACE) -> None:
    """Remove the folders `names` that are empty, and those in `used` with their content."""
    for name in list_environments(place).intersection(names):
        with suppress(OSError):
            if name in used:
                shutil.rmtree(place / name)
            else:
                (place / name).rmdir()


def build_zero_request(config: dict[str, Any]) -> dict[str, Any] | None:
    """A request of zeros for Triton's configuration of a model. None if zeros may not fit. Pure.

    Each free dimension is 1. Optional inputs are left out.
    """
    inputs = []
    is_batched = int(config.get("max_batch_size", 0)) > 0
    for given in config.get("input", []):
        if given.get("optional"):
            continue
        if given.get("is_shape_tensor") or given.get("allow_ragged_batch"):
            return None
        kind = str(given.get("data_type", "")).removeprefix("TYPE_")
        kind = "BYTES" if kind == "STRING" else kind
        shape = [max(1, int(it)) for it in given.get("dims", [])]
        count = math.prod(shape)
        if count > MAX_VALUES or kind in NOT_IN_JSON:
            return None
        zero = ZEROS.get(kind, 0)
        inputs.append(
            {
                "name": given.get("name", ""),
                "datatype": kind,
                "shape": [1, *shape] if is_batched else shape,
                "data": [zero] * count,
            }
        )
    return {"inputs": inputs} if inputs else None


class TritonLostError(HostelryError):
    """The server or a model's process is gone. The message has the cause."""


class TritonOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order to start a server.

    `model` gets the requests. `folder` is the server's folder, relative to the working folder
    because the paths of sockets are short. `regions` is the prefix of its shared memory's names.
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


class TritonAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. The names of its headers are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class LeftEnvironments(msgspec.Struct, frozen=True):
    """The names of folders that the Python backend makes in /tmp, and leaves there when killed.

    Each server makes a folder, even if TMPDIR names another place, and unpacks a model's
    EXECUTION_ENV_PATH into it. A folder is `used` if a model's process runs in it. An empty folder
    that appeared while the server loaded its model counts as `made` by the server.
    """

    made: list[str] = []
    used: list[str] = []

    def remove(self) -> None:
        """Remove the folders."""
        remove_environments({*self.made, *self.used}, self.used)


def remove_leftovers(folder: Path) -> None:
    """Remove the leftovers of servers whose folders are below `folder`."""
    for file in folder.glob(f"*/*/{LEFT}"):
        with suppress(OSError, msgspec.DecodeError):
            decode(file.read_bytes(), LeftEnvironments).remove()


class _ModelState(msgspec.Struct, frozen=True):
    """A row of the index of Triton's repository."""

    name: str
    state: str = ""
    reason: str = ""


def build_command(order: TritonOrder) -> list[str]:
    """The command line. The server's working folder is the order's folder."""
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
    """The server of one model. Call `start`, then `invoke`, then `stop`."""

    def __init__(self, order: TritonOrder, clock: Clock) -> None:
        self._order = order
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._pool = UpstreamPool(IDLE_S)
        self._loaded: frozenset[int] = frozenset()  # the processes of the loaded models
        self._reason: str | None = None
        self._left = LeftEnvironments()
        self.last_answer_at = 0.0

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of the server and of the processes of Python models."""
        if self._process is None or self._process.poll() is not None:
            return ()
        session = self._process.pid
        return tuple(it.pid for it in processes() if it.session == session)

    @property
    def loss(self) -> str | None:
        """The process that is gone, or the reason why it was killed. None while all live."""
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
        """Start the server, load the model and prove that it answers. Raises ModelLoadError."""
        shutil.rmtree(self._order.folder, ignore_errors=True)
        self._order.folder.mkdir(mode=0o700, parents=True)
        before = list_environments()
        try:
            # Not asyncio's: the parent-death signal is tied to the thread that starts it.
            self._process = subprocess.Popen(  # noqa: ASYNC220
                build_command(self._order),
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
            await self._wait_until_live()
            await self._load()
            await self._prove()
        except (UpstreamError, TimeoutError) as error:
            raise ModelLoadError(self.loss or str(error) or "Triton did not answer") from error
        finally:
            self._left = LeftEnvironments(
                made=sorted(list_environments() - before), used=sorted(list_used(self.pids))
            )
            with suppress(OSError):
                (self._order.folder / LEFT).write_bytes(msgspec.json.encode(self._left))

    async def invoke(self, headers: Mapping[str, str], body: bytes) -> TritonAnswer:
        """The model's answer. Raises TritonLostError if a process is gone."""
        path = f"/v2/models/{quote(self._order.model, safe='')}/{self._order.inference}"
        try:
            answer = await self._call(HTTP, "POST", path, body, headers)
        except UpstreamError as error:
            await self._clock.sleep(LOOK_S)  # a socket breaks before the kernel reports the end
            raise TritonLostError(self.loss or str(error)) from None
        self.last_answer_at = self._clock.now()
        if answer.status != OK and (loss := self.loss) is not None:
            raise TritonLostError(f"{loss}: {self.get_error(answer.body)}")
        return answer

    async def metrics(self) -> str:
        """The server's page for Prometheus. Empty if it does not answer."""
        with suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(CALL_S):
                answer = await self._call(METRICS, "GET", "/metrics", b"", {})
            return answer.body.decode(errors="replace")
        return ""

    async def stop(self) -> None:
        """Unload the model, end every process, and return once the memory is free.

        An unload takes a second. Its only purpose is the model's finalize().
        """
        if self._process is not None and self.loss is None and not self._order.can_be_killed:
            with suppress(UpstreamError, TimeoutError):
                async with asyncio.timeout(UNLOAD_S):
                    await self._unload()
        await self.kill()

    async def kill(self, reason: str | None = None) -> None:
        """Kill every process. Requests in flight fail with the reason."""
        self._reason = reason
        self._pool.close()
        if self._process is not None:
            pids = self.pids
            if not self._loaded:
                await self._terminate()
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

    async def _terminate(self) -> None:
        """Let the server end by itself and remove its files. Without models that is fast."""
        assert self._process is not None, "it was started"
        self._process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                while self._process.poll() is None:
                    await self._clock.sleep(LOOK_S)

    def get_error(self, body: bytes) -> str:
        """The text of an error, without paths of this machine."""
        text = body.decode(errors="replace")
        with suppress(msgspec.DecodeError):
            value = msgspec.json.decode(body)
            text = str(value.get("error", text)) if isinstance(value, dict) else text
        return self._strip_paths(text)

    def _strip_paths(self, text: str) -> str:
        for folder in (self._order.repository, self._order.repository.resolve()):
            text = text.replace(f"{folder}/", "")
        return text.replace(str(self._order.program.backends), "backends")

    async def _wait_until_live(self) -> None:
        async with asyncio.timeout(START_S):
            while self.loss is None:
                with suppress(UpstreamError):
                    if (await self._call(HTTP, "GET", "/v2/health/live", b"", {})).status == OK:
                        return
                await self._clock.sleep(LOOK_S)
        raise ModelLoadError(str(self.loss))

    async def _load(self) -> None:
        path = f"/v2/repository/models/{quote(self._order.model, safe='')}/load"
        async with asyncio.timeout(self._order.load_limit_s):
            answer = await self._call(HTTP, "POST", path, b"{}", {})
        if answer.status != OK:
            reasons = [f"{it.name}: {it.reason}" for it in await self._index() if it.reason]
            reason = "; ".join(reasons) or self.get_error(answer.body)
            raise ModelLoadError(self._strip_paths(reason))
        close_regions(self._order.regions)  # other users can read them, and they hold requests
        self._loaded = frozenset(it for it in self.pids if _runs_model(it))

    async def _prove(self) -> None:
        """Send a request of zeros, if one fits the model. The model must survive it."""
        path = f"/v2/models/{quote(self._order.model, safe='')}/config"
        async with asyncio.timeout(CALL_S):
            config: dict[str, Any] = msgspec.json.decode(
                (await self._call(HTTP, "GET", path, b"", {})).body
            )
        zeros = build_zero_request(config) if self._order.is_stateless else None
        if zeros is None or self._order.inference != "infer":
            LOG.info("%s: no request of zeros fits, so none was tried", self._order.model)
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
            LOG.warning("a request of zeros was answered with %s", self.get_error(answer.body))

    async def _unload(self) -> None:
        path = f"/v2/repository/models/{quote(self._order.model, safe='')}/unload"
        body = b'{"parameters":{"unload_dependents":true}}'
        await self._call(HTTP, "POST", path, body, {})
        while any(it.state not in ("", "UNAVAILABLE") for it in await self._index()):
            await self._clock.sleep(LOOK_S)

    async def _index(self) -> list[_ModelState]:
        answer = await self._call(HTTP, "POST", "/v2/repository/index", b"{}", {})
        with suppress(msgspec.DecodeError):
            return decode(answer.body, list[_ModelState])
        return []

    async def _call(
        self, socket: str, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> TritonAnswer:
        address = f"{UNIX}{self._order.folder / socket}"
        request = HttpRequest(method, path, "", headers, body)
        answer = await call(self._pool, address, request, TIMEOUTS, MAX_ANSWER_BYTES)
        return TritonAnswer(status=answer.status, headers=answer.headers, body=answer.body)


def _runs_model(pid: int) -> bool:
    """True for a process of the Python backend. The kernel cuts its name to 15 characters."""
    with suppress(OSError):
        return (PROC / str(pid) / "comm").read_text().strip() == STUB[:15]
    return False


def _end_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
