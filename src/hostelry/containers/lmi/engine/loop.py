"""The loop of the engine process: messages between steps, and the answers to them.

What takes long runs beside the steps and wakes the loop when it ends: structures are compiled, and
adapters read, in threads.
"""

import errno
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from hostelry.base.clock import monotonic_s
from hostelry.containers.lmi.engine.backend import AdapterView
from hostelry.containers.lmi.engine.channel import Channel
from hostelry.containers.lmi.engine.messages import (
    Abort,
    Add,
    AskAdapter,
    AskStats,
    Done,
    Fault,
    GiveUp,
    PinAdapter,
    Refused,
    RegisterAdapter,
    Start,
    Stepped,
    ToEngine,
    UnloadAdapter,
)
from hostelry.containers.lmi.engine.preparations import (
    Outcome,
    Preparations,
    TooManyPreparationsError,
)
from hostelry.containers.lmi.engine.view import adapter_view, stats
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

SILENT_S = 10.0  # a loop that works and has said nothing for so long says that it lives
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM})

log = logging.getLogger(__name__)


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
        self._preparations = Preparations(engine.prepare_adapter, channel.wake)
        self._registering: dict[int, RegisterAdapter] = {}
        self._said_at = monotonic_s()

    def run(self) -> None:
        """Serve until the parent goes away."""
        while True:
            for message in self._channel.receive(wait=not self._engine.has_work):
                self._take(message)
            self._add_compiled()
            self._register_prepared()
            if not self._engine.has_work:
                self._said_at = monotonic_s()
                continue
            outputs = self._engine.step()
            now = monotonic_s()
            if outputs or now - self._said_at > SILENT_S:
                self._said_at = now
                self._channel.send(Stepped(tuple(outputs)))

    def _take(self, message: ToEngine) -> None:
        match message:
            case Add():
                self._add(message)
            case Abort(request_ids):
                self._abort(request_ids)
            case RegisterAdapter():
                self._begin_registration(message)
            case GiveUp(call):
                self._give_up(call)
            case Start():
                raise ValueError("the engine was started already")
            case _:
                self._channel.send(self._answer(message))

    # Requests

    def _add(self, message: Add) -> None:
        """Add requests now, or where they ask for structures once these are compiled."""
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

    def _give_up(self, call: int) -> None:
        self._preparations.give_up(call)
        message = self._registering.pop(call, None)
        if message is not None:
            text = f"adapter {message.name} was not read from {message.src} in time"
            self._channel.send(Done(call, "adapter_refused", text))

    def _register_prepared(self) -> None:
        for call, outcome in self._preparations.take_ended():
            message = self._registering.pop(call)
            self._channel.send(self._register(message, outcome))

    def _register(self, message: RegisterAdapter, outcome: Outcome) -> Done:
        if not message.replace and self._has(message.name):
            return exists(message)
        try:
            if isinstance(outcome, Exception):
                raise outcome  # noqa: TRY301 - one place tells all failures of an adapter
            self._engine.register_adapter(
                message.name, outcome, pin=message.pin, replace=message.replace
            )
        except Exception as error:  # noqa: BLE001 - fetchers are others' code; told as a reason
            log.warning("adapter %s from %s: %s", message.name, message.src, error)
            return Done(message.call, adapter_fault_of(error), told(error))
        view = self._view(message.name)
        for warning in view.warnings:
            log.warning("adapter %s: %s", message.name, warning)
        return Done(message.call, adapter=view)

    def _answer(self, message: UnloadAdapter | PinAdapter | AskAdapter | AskStats) -> Done:
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
    """The answer to a name that is taken."""
    return Done(message.call, "adapter_exists", f"adapter {message.name} is loaded already")


def fault_of(error: Exception) -> Fault:
    """Why a request is not run; what is neither its fault nor a limit is a defect of ours."""
    if isinstance(error, UnknownAdapterError):
        return "adapter_missing"
    if isinstance(error, QuotaExceededError):
        return "quota"
    if isinstance(error, ServerFullError):
        return "full"
    return "request" if isinstance(error, ValueError) else "failed"


def adapter_fault_of(error: Exception) -> Fault:
    """Why an adapter is not registered: it is wrong, or there is no room for it."""
    if isinstance(error, AdapterTooLargeError | PinBudgetError) or lacks_memory(error):
        return "capacity"
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return "capacity"
    return "adapter_refused"


def told(error: Exception) -> str:
    """An error as the client reads it; one that nobody wrote for readers says its kind."""
    is_plain = isinstance(error, AdapterError | OSError | PinBudgetError)
    return str(error) if is_plain else f"{type(error).__name__}: {error}"


def lacks_memory(error: BaseException) -> bool:
    """Whether there was no memory for what failed; torch has no error of its own for the CPU's."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )
