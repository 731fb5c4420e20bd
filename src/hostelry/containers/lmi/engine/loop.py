"""The loop of the engine process: handles messages between steps.

Slow work runs in threads and wakes the loop when it ends: structures are compiled and adapters
read there.

Fault of a request or adapter that fails:

    adapter is not registered                     -> adapter_missing
    tenant over quota; queue full                 -> quota; full
    another ValueError of a request               -> request
    another error of a request: a defect          -> failed
    adapter exceeds memory, pins, pool or disk    -> capacity
    another error of an adapter                   -> adapter_refused
"""

import errno
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from hostelry.base.clock import monotonic_s
from hostelry.containers.lmi.engine.backend import AdapterView
from hostelry.containers.lmi.engine.channel import EngineChannel
from hostelry.containers.lmi.engine.messages import (
    Abort,
    Add,
    AskAdapter,
    AskCache,
    AskStats,
    CancelRegistration,
    Done,
    Fault,
    PinAdapter,
    Refused,
    RegisterAdapter,
    StartEngine,
    Stepped,
    ToEngine,
    UnloadAdapter,
)
from hostelry.containers.lmi.engine.preparations import (
    PreparationResult,
    Preparations,
    TooManyPreparationsError,
)
from hostelry.containers.lmi.engine.view import adapter_view, cache_view, stats
from hostelry.engine.engine import (
    AdapterError,
    AdapterTooLargeError,
    Engine,
    PinBudgetError,
    QuotaExceededError,
    ServerFullError,
    UnknownAdapterError,
)
from hostelry.engine.request import Request
from hostelry.engine.sampling.xgrammar_binding import CompiledStructure

SILENT_S = 10.0  # without outputs for so long, an empty `Stepped` is sent as a heartbeat
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM})

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Compiling:
    """Requests of one `Add`, and the structures they wait for."""

    requests: tuple[Request, ...]
    structures: Sequence[Future[CompiledStructure]]


class EngineLoop:
    """Handles messages between steps; all outputs of a step are sent in one message."""

    def __init__(self, engine: Engine, channel: EngineChannel) -> None:
        self._engine = engine
        self._channel = channel
        self._compiling: list[Compiling] = []
        self._preparations = Preparations(engine.prepare_adapter, channel.wake)
        self._registering: dict[int, RegisterAdapter] = {}
        self._sent_at = monotonic_s()

    def run(self) -> None:
        """Serve until the parent closes the socket."""
        while True:
            for message in self._channel.receive(wait=not self._engine.has_work):
                self._take(message)
            self._add_compiled()
            self._register_prepared()
            if not self._engine.has_work:
                self._sent_at = monotonic_s()
                continue
            outputs = self._engine.step()
            now = monotonic_s()
            if outputs or now - self._sent_at > SILENT_S:
                self._sent_at = now
                self._channel.send(Stepped(tuple(outputs)))

    def _take(self, message: ToEngine) -> None:
        match message:
            case Add():
                self._add(message)
            case Abort(request_ids):
                self._abort(request_ids)
            case RegisterAdapter():
                self._begin_registration(message)
            case CancelRegistration(call):
                self._cancel_registration(call)
            case StartEngine():
                raise ValueError("the engine was started already")
            case _:
                self._channel.send(self._answer(message))

    # Requests

    def _add(self, message: Add) -> None:
        """Add the requests, once the structures that they ask for are compiled."""
        asked = [each.sampling.structure for each in message.requests]
        try:
            structures = [self._engine.compile_structure(it) for it in asked if it is not None]
        except Exception as error:  # noqa: BLE001 - ends these requests alone, whatever it is
            self._refuse(message, error)
            return
        self._compiling.append(Compiling(message.requests, structures))
        for each in structures:
            each.add_done_callback(lambda _: self._channel.wake())

    def _add_compiled(self) -> None:
        ready = [it for it in self._compiling if all(each.done() for each in it.structures)]
        self._compiling = [it for it in self._compiling if it not in ready]
        for each in ready:
            self._add_now(Add(each.requests))

    def _add_now(self, message: Add) -> None:
        added: list[str] = []
        for request in message.requests:
            try:
                self._engine.add(request)
            except Exception as error:  # noqa: BLE001 - ends these requests alone, whatever it is
                self._abort(added)
                self._refuse(message, error)
                return
            added.append(request.id)

    def _refuse(self, message: Add, error: Exception) -> None:
        fault = fault_of(error)
        text = str(error)
        if fault == "failed":
            text = f"{type(error).__name__}: {error}"
            log.error("requests could not be added: %s", text, exc_info=error)
        retry_after_s = getattr(error, "retry_after_s", 0.0)
        ids = tuple(it.id for it in message.requests)
        self._channel.send(Refused(ids, fault, text, retry_after_s))

    def _abort(self, request_ids: Sequence[str]) -> None:
        for waiting in self._compiling:
            waiting.requests = tuple(it for it in waiting.requests if it.id not in request_ids)
        for request_id in request_ids:
            self._engine.abort(request_id)

    # Adapters

    def _begin_registration(self, message: RegisterAdapter) -> None:
        if not message.replace and self._has(message.name):
            self._channel.send(exists(message))
            return
        try:
            self._preparations.begin(message.call, message.src)
        except TooManyPreparationsError as error:
            self._channel.send(Done(message.call, "full", str(error)))
            return
        self._registering[message.call] = message

    def _cancel_registration(self, call: int) -> None:
        self._preparations.cancel(call)
        message = self._registering.pop(call, None)
        if message is not None:
            text = f"adapter {message.name} was not read from {message.src} in time"
            self._channel.send(Done(call, "adapter_refused", text))

    def _register_prepared(self) -> None:
        for call, outcome in self._preparations.take_ended():
            message = self._registering.pop(call)
            self._channel.send(self._register(message, outcome))

    def _register(self, message: RegisterAdapter, outcome: PreparationResult) -> Done:
        if not message.replace and self._has(message.name):
            return exists(message)
        try:
            if isinstance(outcome, Exception):
                raise outcome  # noqa: TRY301 - one place reports all failures of an adapter
            self._engine.register_adapter(
                message.name, outcome, pin=message.pin, replace=message.replace
            )
        except Exception as error:  # noqa: BLE001 - fetchers are others' code; the client gets the reason
            log.warning("adapter %s from %s: %s", message.name, message.src, error)
            return Done(message.call, adapter_fault_of(error), client_text(error))
        view = self._view(message.name)
        for warning in view.warnings:
            log.warning("adapter %s: %s", message.name, warning)
        return Done(message.call, adapter=view)

    def _answer(
        self, message: UnloadAdapter | PinAdapter | AskAdapter | AskStats | AskCache
    ) -> Done:
        call = message.call
        try:
            match message:
                case UnloadAdapter():
                    self._engine.unload_adapter(message.name)
                case PinAdapter(_, name, True):
                    self._engine.pin_adapter(name)
                case PinAdapter():
                    self._engine.unpin_adapter(message.name)
                case AskAdapter():
                    return Done(call, adapter=self._view(message.name))
                case AskStats():
                    return Done(call, stats=stats(self._engine))
                case AskCache(_, limit):
                    return Done(call, cache=cache_view(self._engine, limit))
        except UnknownAdapterError as error:
            return Done(call, "adapter_missing", str(error))
        except PinBudgetError as error:
            return Done(call, "capacity", str(error))
        except Exception as error:
            log.exception("a call failed: %s", message)
            return Done(call, "failed", f"{type(error).__name__}: {error}")
        return Done(call)

    def _has(self, name: str) -> bool:
        return any(it.version.name == name for it in self._engine.adapters)

    def _view(self, name: str) -> AdapterView:
        return adapter_view(self._engine, name)


def exists(message: RegisterAdapter) -> Done:
    """The result for a name that is taken."""
    return Done(message.call, "adapter_exists", f"adapter {message.name} is loaded already")


def fault_of(error: Exception) -> Fault:
    """The fault of a request that is not run; see the table above."""
    if isinstance(error, UnknownAdapterError):
        return "adapter_missing"
    if isinstance(error, QuotaExceededError):
        return "quota"
    if isinstance(error, ServerFullError):
        return "full"
    return "request" if isinstance(error, ValueError) else "failed"


def adapter_fault_of(error: Exception) -> Fault:
    """The fault of an adapter that is not registered; see the table above."""
    if isinstance(error, AdapterTooLargeError | PinBudgetError) or lacks_memory(error):
        return "capacity"
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return "capacity"
    return "adapter_refused"


def client_text(error: Exception) -> str:
    """The error's text for the client, with its class where the text alone is not meant for one."""
    is_plain = isinstance(error, AdapterError | OSError | PinBudgetError)
    return str(error) if is_plain else f"{type(error).__name__}: {error}"


def lacks_memory(error: BaseException) -> bool:
    """Whether the failure is lack of memory; torch has no error class for the CPU's."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )
