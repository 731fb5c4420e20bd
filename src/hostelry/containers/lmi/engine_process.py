"""The engine process: loads the model, then loops add, abort and step over one socket.

Started by `process_backend` with the socket as a file descriptor. It never outlives its parent: the
kernel kills it when the parent dies, and a closed socket ends it too. Signals to the process
group are left to the parent, which ends this process by closing the socket.
"""

import argparse
import ctypes
import logging
import os
import select
import signal
import socket
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from hostelry.base.logging import configure_logging
from hostelry.containers.lmi.backend import BackendStats, ModelFacts
from hostelry.containers.lmi.messages import (
    TO_ENGINE,
    Abort,
    Add,
    AskStats,
    Done,
    Failed,
    Fault,
    FromEngine,
    LoadAdapter,
    Loaded,
    Refused,
    Start,
    Stepped,
    ToEngine,
    Unframer,
    UnloadAdapter,
    frame,
)
from hostelry.engine.engine import AdapterError, Engine, EngineConfig, UnknownAdapterError
from hostelry.engine.request import Request
from hostelry.engine.sampling.xgrammar_binding import CompiledStructure

PR_SET_PDEATHSIG = 1
RECEIVE_BYTES = 1 << 20
COMPILE_POLL_S = 0.005  # between looks at structures that are being compiled, without other work

log = logging.getLogger(__name__)


class ParentGoneError(Exception):
    """The HTTP process closed its end."""


class Channel:
    """The blocking end of the socket."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._unframer = Unframer()

    def receive(self, *, wait: bool, at_most_s: float | None = None) -> list[ToEngine]:
        """What has arrived; with `wait`, at least one message or `at_most_s` of time.

        Raises ParentGoneError.
        """
        messages: list[ToEngine] = []
        if wait and not select.select([self._stream], [], [], at_most_s)[0]:
            return messages
        while (wait and not messages) or select.select([self._stream], [], [], 0)[0]:
            data = self._stream.recv(RECEIVE_BYTES)
            if not data:
                raise ParentGoneError
            messages += [TO_ENGINE.decode(body) for body in self._unframer.feed(data)]
        return messages

    def send(self, message: FromEngine) -> None:
        """Write `message` whole. Raises ParentGoneError."""
        try:
            self._stream.sendall(frame(message))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ParentGoneError from error


@dataclass(slots=True, eq=False)
class Compiling:
    """Requests of one `Add`, and the structures that they wait for."""

    requests: tuple[Request, ...]
    structures: Sequence[Future[CompiledStructure]]


class EngineLoop:
    """Takes messages between steps; everything a step gives leaves in one message."""

    def __init__(self, engine: Engine, channel: Channel) -> None:
        self._engine = engine
        self._channel = channel
        self._compiling: list[Compiling] = []

    def run(self) -> None:
        """Serve until the parent goes away."""
        while True:
            at_most_s = COMPILE_POLL_S if self._compiling else None
            for message in self._channel.receive(
                wait=not self._engine.has_work, at_most_s=at_most_s
            ):
                self._take(message)
            self._add_compiled()
            outputs = self._engine.step() if self._engine.has_work else []
            if outputs:
                self._channel.send(Stepped(tuple(outputs)))

    def _take(self, message: ToEngine) -> None:
        match message:
            case Add():
                self._add(message)
            case Abort(request_ids):
                self._abort(request_ids)
            case LoadAdapter(call, name, folder):
                self._channel.send(self._load_adapter(call, name, Path(folder)))
            case UnloadAdapter(call, name):
                self._channel.send(self._unload_adapter(call, name))
            case AskStats(call):
                self._channel.send(Done(call, stats=stats(self._engine)))
            case Start():
                raise ValueError("the engine was started already")

    def _add(self, message: Add) -> None:
        """Add requests now, or where they ask for structures once these are compiled."""
        asked = [each.sampling.structure for each in message.requests]
        try:
            structures = [self._engine.compile_structure(it) for it in asked if it is not None]
        except ValueError as error:
            self._refuse(message, "request", error)
            return
        self._compiling.append(Compiling(message.requests, structures))
        self._add_compiled()

    def _add_compiled(self) -> None:
        ready = [it for it in self._compiling if all(each.done() for each in it.structures)]
        self._compiling = [it for it in self._compiling if it not in ready]
        for each in ready:
            self._add_now(Add(each.requests))

    def _refuse(self, message: Add, fault: Fault, error: Exception) -> None:
        self._channel.send(Refused(tuple(it.id for it in message.requests), fault, str(error)))

    def _add_now(self, message: Add) -> None:
        added: list[str] = []
        for request in message.requests:
            try:
                self._engine.add(request)
            except (UnknownAdapterError, ValueError) as error:
                self._abort(added)
                missing = isinstance(error, UnknownAdapterError)
                self._refuse(message, "adapter_missing" if missing else "request", error)
                return
            added.append(request.id)

    def _abort(self, request_ids: Sequence[str]) -> None:
        for waiting in self._compiling:
            waiting.requests = tuple(it for it in waiting.requests if it.id not in request_ids)
        for request_id in request_ids:
            self._engine.abort(request_id)

    def _load_adapter(self, call: int, name: str, folder: Path) -> Done:
        if any(each.version.name == name for each in self._engine.adapters):
            return Done(call, "adapter_exists", f"adapter {name} is loaded already")
        try:
            self._engine.load_adapter(name, folder)
        except (AdapterError, OSError) as error:
            return Done(call, "adapter_refused", str(error))
        except (MemoryError, RuntimeError) as error:
            if not lacks_memory(error):
                raise
            return Done(call, "capacity", f"no memory for adapter {name}: {error}")
        return Done(call)

    def _unload_adapter(self, call: int, name: str) -> Done:
        try:
            self._engine.unload_adapter(name)
        except UnknownAdapterError as error:
            return Done(call, "adapter_missing", str(error))
        return Done(call)


def lacks_memory(error: BaseException) -> bool:
    """Whether there was no memory for what failed; torch has no error of its own for the CPU's."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def stats(engine: Engine) -> BackendStats:
    """The engine's present load."""
    now = engine.stats
    pages = now.pages
    return BackendStats(
        running_requests=now.num_running,
        waiting_requests=now.num_waiting,
        free_pages=pages.num_free + pages.num_idle_prefix_pages + pages.num_idle_adapter_pages,
        total_pages=pages.num_pages,
        generated_tokens=now.num_generated_tokens,
        preemptions=now.num_preemptions,
        adapter_bytes=now.adapters.host_bytes,
        kv_cache_bytes=now.pool_bytes,
    )


def facts(engine: Engine, page_tokens: int) -> ModelFacts:
    """What the HTTP process must know of the loaded model; a page holds `page_tokens`."""
    model = engine.model
    cached_tokens = engine.stats.pages.num_pages * page_tokens
    warnings = list(engine.warnings)
    if cached_tokens < model.max_model_len:
        warnings.append(
            f"the KV cache holds {cached_tokens} tokens, so that a request has at most as many and "
            f"not the model's {model.max_model_len}"
        )
    return ModelFacts(
        vocab_size=model.vocab_size,
        max_model_len=min(model.max_model_len, cached_tokens),
        eos_token_ids=tuple(model.eos_token_ids),
        dtype=model.dtype,
        warnings=tuple(warnings),
    )


def load(start: Start) -> Engine:
    """The engine with its model and first adapters.

    Raises what the engine raises; an adapter's failure names the adapter and its folder.
    """
    settings = start.settings
    defaults = EngineConfig()
    config = EngineConfig(
        dtype=settings.dtype,
        max_batch_size=settings.max_batch_size,
        max_batched_tokens=settings.max_batched_tokens or defaults.max_batched_tokens,
        max_model_len=settings.max_model_len,
        num_threads=settings.num_threads,
        max_lora_rank=settings.max_lora_rank,
        max_loras=settings.max_loras,
    )
    engine = Engine.load(Path(settings.folder), config)
    for name, folder in start.adapters:
        try:
            engine.load_adapter(name, Path(folder))
        except (AdapterError, OSError) as error:
            raise AdapterError(f"adapter {name} in {folder} cannot be loaded: {error}") from error
        log.info("Registered adapter %s from %s successfully", name, folder)
    return engine


def serve(channel: Channel) -> int:
    """Load on the first message and run until the parent goes away; the exit status."""
    try:
        start = channel.receive(wait=True)[0]
        if not isinstance(start, Start):
            raise TypeError(f"the first message is {type(start).__name__}, not Start")  # noqa: TRY301 - one edge reports every failure
        engine = load(start)
        channel.send(Loaded(facts(engine, EngineConfig().page_tokens)))
        EngineLoop(engine, channel).run()
    except ParentGoneError:
        return 0
    except Exception as error:
        log.exception("the engine failed")
        with suppress(ParentGoneError):
            channel.send(Failed(f"{type(error).__name__}: {error}"))
        return 1
    return 0


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    """Run as `python -m hostelry.containers.lmi.engine_process --socket-fd N --parent PID`."""
    parser = argparse.ArgumentParser(description="The engine process of the LLM model server.")
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    arguments = parser.parse_args()
    die_with_parent()
    if os.getppid() != arguments.parent:
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    configure_logging("lmi-engine")
    with socket.socket(fileno=arguments.socket_fd) as stream:
        return serve(Channel(stream))


if __name__ == "__main__":
    raise SystemExit(main())
