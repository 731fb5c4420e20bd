"""One worker of a model, as the front sees it."""

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.containers.http.serving_app import RefusedRequestError
from hostelry.containers.predictive.zygote_process import (
    FromWorker,
    WorkerMessageError,
    ZygoteError,
    ZygoteProcess,
    decode_worker_message,
    pack_message,
    receive_message,
)

LOG = logging.getLogger(__name__)


class WorkerLostError(RefusedRequestError):
    """The worker died, hung or sent an invalid message. The message has the cause."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message, 504 if timed_out else 502)


class ModelLoadError(HostelryError):
    """The model or its code cannot be loaded. The message is for their author."""


class PredictRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a model: the headers that its functions see, and its body."""

    headers: Mapping[str, str]
    body: bytes


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """A model's answer to a request."""

    status: int
    content_type: str
    headers: Mapping[str, str]
    body: bytes


class ModelPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """The folders and the framework of a worker (see worker/model_serving.py).

    `environment` has variables in addition to the zygote's.
    """

    model_dir: str
    code_dir: str
    framework: str
    environment: Mapping[str, str]


class WorkerProcess:
    """A worker, made by `start_worker`. It takes one call at a time."""

    def __init__(self, zygote: ZygoteProcess, pid: int) -> None:
        self._zygote = zygote
        self.pid = pid
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.is_alive = True

    async def connect(self, stream: socket.socket) -> None:
        """Use `stream` for messages."""
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

    async def invoke(self, batch: Sequence[PredictRequest], limit_s: float) -> list[Prediction]:
        """The answers in the order of the batch. Raises WorkerLostError."""
        heads = [{"headers": dict(it.headers), "length": len(it.body)} for it in batch]
        bodies = tuple(it.body for it in batch)
        answer, body = await self._call({"invoke": heads}, bodies, limit_s, "a request")
        lengths = [it.length for it in answer.replies]
        if len(lengths) != len(batch) or min(lengths) < 0 or sum(lengths) != len(body):
            raise self._lose("it answered another number of requests")
        predictions, start = [], 0
        for reply in answer.replies:
            predictions.append(
                Prediction(
                    status=reply.status,
                    content_type=reply.content_type,
                    headers=reply.headers,
                    body=body[start : start + reply.length],
                )
            )
            start += reply.length
        return predictions

    async def get_execution_parameters(self, limit_s: float) -> dict[str, Any] | None:
        """The result of execution_parameters_fn. None without the function.

        Raises ModelLoadError if the function fails, WorkerLostError.
        """
        answer, _ = await self._call({"parameters": True}, (), limit_s, "execution_parameters_fn")
        if answer.failed is not None:
            raise ModelLoadError(answer.failed)
        return answer.parameters

    def end(self) -> None:
        """Kill the worker."""
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
                self._writer.writelines(pack_message(head, *bodies))
                await self._writer.drain()
                text, body = await receive_message(self._reader)
            return decode_worker_message(text), body
        except TimeoutError:
            raise self._lose(f"{during} took more than {limit_s:g} s", timed_out=True) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await self._zygote.exit_code(self.pid)
            raise self._lose(f"it ended during {during}{describe_end(code)}") from None
        except WorkerMessageError as error:
            raise self._lose(f"during {during} it sent no message: {error}") from error
        except asyncio.CancelledError:
            self.end()
            raise

    def _lose(self, cause: str, *, timed_out: bool = False) -> WorkerLostError:
        self.end()
        text = f"worker {self.pid} is lost: {cause}"
        LOG.warning("%s", text)
        return WorkerLostError(text, timed_out=timed_out)


def describe_end(code: int | None) -> str:
    """Describe a worker's exit status."""
    if code is None:
        return ""
    return f", by signal {-code}" if code < 0 else f", with status {code}"


async def start_worker(zygote: ZygoteProcess, places: ModelPlaces, load_s: float) -> WorkerProcess:
    """Start a worker that loads its model. Raises ModelLoadError, WorkerLostError, ZygoteError."""
    pid, stream = await zygote.fork()
    worker = WorkerProcess(zygote, pid)
    try:
        await worker.connect(stream)
        await worker.load(places, load_s)
    except (ModelLoadError, WorkerLostError, ZygoteError, asyncio.CancelledError):
        worker.end()
        raise
    return worker
