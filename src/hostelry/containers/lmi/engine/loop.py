"""Messages to an engine in another process, and its answers: the same for our engine and vLLM.

Slow work runs in threads: structures are compiled and adapters are read there. The end of such work
wakes the engine's thread.

Faults of requests and adapters:

    adapter is not registered                     -> adapter_missing
    tenant is over its quota                      -> quota
    queue is full                                 -> full
    another ValueError of a request               -> request
    another error of a request: a defect          -> failed
    adapter exceeds memory, pins, pool or disk    -> capacity
    the engine died                               -> failed
    another error of an adapter                   -> adapter_refused
"""

import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec
import torch

from hostelry.containers.lmi.engine.backend import (
    AdapterView,
    BackendStats,
    CacheView,
    EngineFailedError,
)
from hostelry.containers.lmi.engine.messages import (
    Abort,
    Add,
    AskAdapter,
    AskCache,
    AskStats,
    CancelRegistration,
    Done,
    Fault,
    FromEngine,
    PinAdapter,
    Refused,
    RegisterAdapter,
    StartEngine,
    ToEngine,
    UnloadAdapter,
)
from hostelry.engine.lora.errors import AdapterError, AdapterTooLargeError, UnknownAdapterError
from hostelry.engine.lora.sources import is_remote
from hostelry.engine.pages.adapters import PinBudgetError
from hostelry.engine.request import Request, Structure
from hostelry.engine.scheduler.decisions import QuotaExceededError, ServerFullError

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM})
MAX_LOCAL = 4  # concurrent reads from folders, which take CPU
MAX_REMOTE = 16  # concurrent reads from remote places, which wait for their network
MAX_STUCK = 16  # cancelled reads whose threads still run
MAX_WAITING = 1000

Send = Callable[[FromEngine], None]

LOG = logging.getLogger(__name__)


class HostedEngine(Protocol):
    """An engine that `MessageLoop` serves.

    All methods are called in the engine's own thread, except `prepare_adapter`.
    """

    @property
    def pin_refusal(self) -> str | None:
        """Why this engine pins no adapter. None if it pins adapters."""
        ...

    def add(self, requests: Sequence[Request]) -> None:
        """Start all `requests`. Starts none of them if it raises."""
        ...

    def abort(self, request_ids: Sequence[str]) -> None:
        """End these requests. Unknown ids are skipped."""
        ...

    def compile_structure(self, structure: Structure) -> Future[Any]:
        """Compile in another thread or process. Raises ValueError, now or from the future."""
        ...

    def prepare_adapter(self, name: str, src: str) -> Any:
        """Read and check an adapter, in any thread. Returns the argument of `register_adapter`."""
        ...

    def register_adapter(self, name: str, prepared: Any, *, pin: bool, replace: bool) -> None:
        """Register a prepared adapter. With `replace` as the new version of its name."""
        ...

    def discard_adapter(self, prepared: Any) -> None:
        """Free a prepared adapter that is not registered."""
        ...

    def unload_adapter(self, name: str) -> None:
        """Unregister an adapter. Raises UnknownAdapterError."""
        ...

    def pin_adapter(self, name: str, pin: bool) -> None:
        """Pin or unpin an adapter. Raises UnknownAdapterError, PinBudgetError, AdapterError."""
        ...

    def has_adapter(self, name: str) -> bool:
        """True if an adapter of that name is registered."""
        ...

    def adapter(self, name: str) -> AdapterView:
        """The adapter's state. Raises UnknownAdapterError."""
        ...

    def stats(self) -> BackendStats:
        """The present load."""
        ...

    def cache(self, limit: int) -> CacheView:
        """The contents of the engine's caches, with at most `limit` adapters."""
        ...


class Compiling(msgspec.Struct, eq=False):
    """Requests of one `Add`, and the structures they wait for."""

    requests: tuple[Request, ...]
    structures: Sequence[Future[Any]]


class MessageLoop:
    """Carries out messages on an engine. `send` and `wake` may be called from the engine's thread.

    `wake` is also called from other threads, and must have the engine's thread call `settle`.
    """

    def __init__(self, engine: HostedEngine, send: Send, wake: Callable[[], object]) -> None:
        self._engine = engine
        self._send = send
        self._wake = wake
        self._compiling: list[Compiling] = []
        self._reads = AdapterReads(engine, wake)

    def take(self, message: ToEngine) -> None:
        """Carry out one message."""
        match message:
            case Add():
                self._compile(message.requests)
            case Abort(request_ids):
                for waiting in self._compiling:
                    left = tuple(it for it in waiting.requests if it.id not in request_ids)
                    waiting.requests = left
                self._engine.abort(request_ids)
            case RegisterAdapter():
                self._begin_registration(message)
            case CancelRegistration(call):
                cancelled = self._reads.cancel(call)
                if cancelled is not None:
                    text = f"adapter {cancelled.name} was not read from {cancelled.src} in time"
                    self._send(Done(call, "adapter_refused", text))
            case StartEngine():
                raise ValueError("the engine was started already")
            case _:
                self._send(self._answer(message))

    def settle(self) -> None:
        """Add requests whose structures are compiled, and register adapters that were read."""
        if self._compiling:
            ready = [it for it in self._compiling if all(each.done() for each in it.structures)]
            self._compiling = [it for it in self._compiling if it not in ready]
            for each in ready:
                self._add(each.requests, each.structures)
        for message, outcome in self._reads.take_ended():
            self._send(self._register(message, outcome))

    # Requests

    def _compile(self, requests: tuple[Request, ...]) -> None:
        """Add `requests` once the structures that they ask for are compiled."""
        asked = dict.fromkeys(it.sampling.structure for it in requests)
        try:
            structures = [self._engine.compile_structure(it) for it in asked if it is not None]
        except Exception as error:  # noqa: BLE001 - ends these requests alone, whatever it is
            self._refuse(requests, error)
            return
        if not structures:
            self._add(requests, structures)
            return
        self._compiling.append(Compiling(requests, structures))
        for each in structures:
            each.add_done_callback(lambda _: self._wake())

    def _add(self, requests: tuple[Request, ...], structures: Sequence[Future[Any]]) -> None:
        try:
            for each in structures:
                each.result()
            self._engine.add(requests)
        except Exception as error:  # noqa: BLE001 - ends these requests alone, whatever it is
            self._refuse(requests, error)

    def _refuse(self, requests: Sequence[Request], error: Exception) -> None:
        fault = classify_request_error(error)
        text = str(error)
        if fault == "failed":
            text = f"{type(error).__name__}: {error}"
            LOG.error("requests could not be added: %s", text, exc_info=error)
        retry_after_s = getattr(error, "retry_after_s", 0.0)
        self._send(Refused(tuple(it.id for it in requests), fault, text, retry_after_s))

    # Adapters

    def _begin_registration(self, message: RegisterAdapter) -> None:
        if not message.replace and self._engine.has_adapter(message.name):
            self._send(build_taken_name_answer(message))
        elif message.pin and self._engine.pin_refusal is not None:
            self._send(Done(message.call, "adapter_refused", self._engine.pin_refusal))
        elif self._reads.is_full:
            text = f"{MAX_WAITING} adapters wait to be read already; try again in a moment"
            self._send(Done(message.call, "full", text))
        else:
            self._reads.begin(message)

    def _register(self, message: RegisterAdapter, outcome: Any) -> Done:
        if not message.replace and self._engine.has_adapter(message.name):
            self._reads.discard(outcome)
            return build_taken_name_answer(message)
        try:
            if isinstance(outcome, Exception):
                raise outcome  # noqa: TRY301 - one place reports all failures of an adapter
            self._engine.register_adapter(
                message.name, outcome, pin=message.pin, replace=message.replace
            )
        except Exception as error:  # noqa: BLE001 - fetchers are others' code; the client gets the reason
            LOG.warning("adapter %s from %s: %s", message.name, message.src, error)
            return Done(message.call, classify_adapter_error(error), to_client_text(error))
        view = self._engine.adapter(message.name)
        for warning in view.warnings:
            LOG.warning("adapter %s: %s", message.name, warning)
        return Done(message.call, adapter=view)

    def _answer(
        self, message: UnloadAdapter | PinAdapter | AskAdapter | AskStats | AskCache
    ) -> Done:
        call = message.call
        try:
            match message:
                case UnloadAdapter():
                    self._engine.unload_adapter(message.name)
                case PinAdapter(_, name, pin):
                    self._engine.pin_adapter(name, pin)
                case AskAdapter():
                    return Done(call, adapter=self._engine.adapter(message.name))
                case AskStats():
                    return Done(call, stats=self._engine.stats())
                case AskCache(_, limit):
                    return Done(call, cache=self._engine.cache(limit))
        except UnknownAdapterError as error:
            return Done(call, "adapter_missing", str(error))
        except (AdapterError, PinBudgetError) as error:
            return Done(call, classify_adapter_error(error), str(error))
        except Exception as error:
            LOG.exception("a call failed: %s", message)
            return Done(call, "failed", f"{type(error).__name__}: {error}")
        return Done(call)


class AdapterReads:
    """Reads adapters in threads for the engine's thread, and calls `wake` at the end of each.

    A cancelled read frees its slot, though its thread may hang for good. No read starts while
    `MAX_STUCK` cancelled reads hang.
    """

    def __init__(self, engine: HostedEngine, wake: Callable[[], object]) -> None:
        self._engine = engine
        self._wake = wake
        self._waiting: dict[int, RegisterAdapter] = {}  # by call, in order
        self._running: dict[int, RegisterAdapter] = {}
        self._stuck: set[int] = set()
        self._ended: deque[tuple[int, Any]] = deque()  # filled by other threads

    @property
    def is_full(self) -> bool:
        """True if no more reads may wait."""
        return len(self._waiting) >= MAX_WAITING

    def begin(self, message: RegisterAdapter) -> None:
        """Read the adapter, at once or after others."""
        self._waiting[message.call] = message
        self._start()

    def cancel(self, call: int) -> RegisterAdapter | None:
        """Give up a read. Returns its message, None if it has ended."""
        message = self._running.pop(call, None)
        if message is None:
            message = self._waiting.pop(call, None)
        else:
            self._stuck.add(call)
        self._start()
        return message

    def take_ended(self) -> list[tuple[RegisterAdapter, Any]]:
        """The reads that ended since the last call, each with its result or its exception."""
        if not self._ended:
            return []
        ended = []
        while self._ended:
            call, outcome = self._ended.popleft()
            self._stuck.discard(call)
            message = self._running.pop(call, None)
            if message is None:
                self.discard(outcome)
            else:
                ended.append((message, outcome))
        self._start()
        return ended

    def discard(self, outcome: Any) -> None:
        """Free the result of a read."""
        if not isinstance(outcome, Exception):
            self._engine.discard_adapter(outcome)

    def _start(self) -> None:
        for call, message in list(self._waiting.items()):
            if len(self._stuck) >= MAX_STUCK:
                return
            remote = is_remote(message.src)
            alike = [it for it in self._running.values() if is_remote(it.src) == remote]
            if len(alike) < (MAX_REMOTE if remote else MAX_LOCAL):
                self._running[call] = self._waiting.pop(call)
                threading.Thread(
                    target=self._read, args=(message,), name=f"prepare-{call}", daemon=True
                ).start()

    def _read(self, message: RegisterAdapter) -> None:
        try:
            outcome: Any = self._engine.prepare_adapter(message.name, message.src)
        except Exception as error:  # noqa: BLE001 - every call gets a result
            outcome = error
        self._ended.append((message.call, outcome))
        self._wake()


def build_taken_name_answer(message: RegisterAdapter) -> Done:
    """The result for a name that is taken."""
    return Done(message.call, "adapter_exists", f"adapter {message.name} is loaded already")


def classify_request_error(error: Exception) -> Fault:
    """The fault of a request that is not run (see the table above)."""
    if isinstance(error, UnknownAdapterError):
        return "adapter_missing"
    if isinstance(error, QuotaExceededError):
        return "quota"
    if isinstance(error, ServerFullError):
        return "full"
    return "request" if isinstance(error, ValueError) else "failed"


def classify_adapter_error(error: Exception) -> Fault:
    """The fault of an adapter that is not registered (see the table above)."""
    if isinstance(error, EngineFailedError):
        return "failed"
    if isinstance(error, AdapterTooLargeError | PinBudgetError) or lacks_memory(error):
        return "capacity"
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return "capacity"
    return "adapter_refused"


def to_client_text(error: Exception) -> str:
    """The error's text for the client, with the class of an error that is not meant for clients."""
    is_plain = isinstance(error, AdapterError | OSError | PinBudgetError | EngineFailedError)
    return str(error) if is_plain else f"{type(error).__name__}: {error}"


def lacks_memory(error: BaseException) -> bool:
    """True if memory was lacking. Torch has no error class for the CPU's."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )
