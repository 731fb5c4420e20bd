"""One worker of a model, as the front sees it: loaded, asked, ended."""

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hostelry.base.errors import HostelryError
from hostelry.containers.predictive.messages import (
    FromWorker,
    WorkerMessageError,
    packed,
    received,
    worker_answer,
)
from hostelry.containers.predictive.zygote_process import ZygoteError, ZygoteProcess

log = logging.getLogger(__name__)


class WorkerLostError(HostelryError):
    """The worker died, hung or sent nonsense; the message has the cause."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class ModelLoadError(HostelryError):
    """The model or its code cannot be loaded; the message is for their author."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request to a model: the headers that its functions see, and its body."""

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer of a model's functions."""

    status: int
    content_type: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlaces:
    """What a worker loads; see worker/model_serving.py. `environment` is beyond the zygote's."""

    model_dir: str
    code_dir: str
    framework: str
    environment: Mapping[str, str]


class WorkerProcess:
    """A worker; made by `start_worker`. One call at a time."""

    def __init__(self, zygote: ZygoteProcess, pid: int) -> None:
        self._zygote = zygote
        self.pid = pid
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.is_alive = True

    async def connect(self, stream: socket.socket) -> None:
        """Use this socket."""
        self._reader, self._writer = await asyncio.open_unix_connection(sock=stream)

    async def load(self, places: ModelPlaces, limit_s: float) -> None:
        """Load the model. Raises ModelLoadError, WorkerLostError."""
        load = {
            "model_dir": places.model_dir,
            "code_dir": places.code_dir,
            "framework": places.framework,
            "environment": dict(places.environment),
        }
        answer, _ = await self._call({"load": load}, (), limit_s, "loading the model")
        if answer.failed is not None:
            self.end()
            raise ModelLoadError(answer.failed)

    async def invoke(self, batch: Sequence[Asked], limit_s: float) -> list[Answered]:
        """The answer to each request of the batch, in its order. Raises WorkerLostError."""
        heads = [{"headers": dict(it.headers), "length": len(it.body)} for it in batch]
        bodies = tuple(it.body for it in batch)
        answer, body = await self._call({"invoke": heads}, bodies, limit_s, "a request")
        lengths = [it.length for it in answer.replies]
        if len(lengths) != len(batch) or min(lengths) < 0 or sum(lengths) != len(body):
            raise self._lost("it answered another number of requests")
        found, start = [], 0
        for reply in answer.replies:
            found.append(
                Answered(
                    status=reply.status,
                    content_type=reply.content_type,
                    headers=reply.headers,
                    body=body[start : start + reply.length],
                )
            )
            start += reply.length
        return found

    async def execution_parameters(self, limit_s: float) -> dict[str, Any] | None:
        """What execution_parameters_fn gives; None without it.

        Raises ModelLoadError where the function fails, WorkerLostError.
        """
        answer, _ = await self._call({"parameters": True}, (), limit_s, "execution_parameters_fn")
        if answer.failed is not None:
            raise ModelLoadError(answer.failed)
        return answer.parameters

    def end(self) -> None:
        """Kill it."""
        self.is_alive = False
        if self._writer is not None:
            self._writer.close()
        self._zygote.kill(self.pid)

    async def _call(
        self, head: dict[str, Any], bodies: Sequence[bytes], limit_s: float, during: str
    ) -> tuple[FromWorker, bytes]:
        assert self._reader is not None, "it is connected"
        assert self._writer is not None, "it is connected"
        try:
            async with asyncio.timeout(limit_s):
                self._writer.writelines(packed(head, *bodies))
                await self._writer.drain()
                text, body = await received(self._reader)
            return worker_answer(text), body
        except TimeoutError:
            raise self._lost(f"{during} took more than {limit_s:g} s", timed_out=True) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await self._zygote.exit_code(self.pid)
            raise self._lost(f"it ended during {during}{end_of(code)}") from None
        except WorkerMessageError as error:
            raise self._lost(f"during {during} it sent no message: {error}") from error
        except asyncio.CancelledError:
            self.end()
            raise

    def _lost(self, cause: str, *, timed_out: bool = False) -> WorkerLostError:
        self.end()
        text = f"worker {self.pid} is lost: {cause}"
        log.warning("%s", text)
        return WorkerLostError(text, timed_out=timed_out)


def end_of(code: int | None) -> str:
    """A worker's end in words."""
    if code is None:
        return ""
    return f", by signal {-code}" if code < 0 else f", with status {code}"


async def start_worker(zygote: ZygoteProcess, places: ModelPlaces, load_s: float) -> WorkerProcess:
    """A worker that has loaded its model. Raises ModelLoadError, WorkerLostError, ZygoteError."""
    pid, stream = await zygote.fork()
    worker = WorkerProcess(zygote, pid)
    try:
        await worker.connect(stream)
        await worker.load(places, load_s)
    except (ModelLoadError, WorkerLostError, ZygoteError, asyncio.CancelledError):
        worker.end()
        raise
    return worker
