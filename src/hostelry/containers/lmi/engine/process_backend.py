"""`EngineBackend` over the engine process: starts it, exchanges messages, detects its death.

Only the event loop's thread touches this object.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.containers.lmi.engine.backend import (
    AdapterCapacityError,
    AdapterExistsError,
    AdapterMissingError,
    AdapterRefusedError,
    AdapterView,
    BackendError,
    BackendStats,
    BusyError,
    CacheView,
    EngineFailedError,
    EngineFullError,
    GenerationRefusedError,
    ModelFacts,
    ModelUnsupportedError,
    QuotaReachedError,
)
from hostelry.containers.lmi.engine.child import EngineChild, reap
from hostelry.containers.lmi.engine.messages import (
    FROM_ENGINE,
    Abort,
    Add,
    AskAdapter,
    AskCache,
    AskStats,
    CancelRegistration,
    Done,
    EngineCall,
    Failed,
    Fault,
    FromEngine,
    ModelLoaded,
    PinAdapter,
    Refused,
    RegisterAdapter,
    StartEngine,
    Stepped,
    ToEngine,
    Unframer,
    UnloadAdapter,
    frame,
)
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.engine.request import Output, Request

Spawn = Callable[[EngineSettings], tuple[EngineChild, socket.socket]]

STALL_LIMIT_S = 120.0  # an engine with work that sends nothing for this time counts as dead

ERRORS: Mapping[Fault, type[BackendError]] = {
    "request": GenerationRefusedError,
    "adapter_missing": AdapterMissingError,
    "adapter_refused": AdapterRefusedError,
    "adapter_exists": AdapterExistsError,
    "capacity": AdapterCapacityError,
    "quota": QuotaReachedError,
    "full": EngineFullError,
    "failed": EngineFailedError,
}

LOG = logging.getLogger(__name__)


class RequestGroup:
    """The unfinished requests of one `generate` call, and their outputs that are not taken yet."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.unfinished = {request.id for request in requests}
        self._outputs: list[Output] = []
        self._error: BackendError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def add(self, output: Output) -> None:
        """Add an output."""
        self._outputs.append(output)
        self._wake()

    def fail(self, error: BackendError) -> None:
        """End all requests with `error`, after the outputs that came before it."""
        self._error = error
        self._wake()

    async def take(self) -> tuple[Output, ...]:
        """The outputs that came, at least one. Raises the error after which none comes."""
        if not self._outputs and self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._outputs:
            outputs, self._outputs = self._outputs, []
            self.unfinished.difference_update(it.request_id for it in outputs if it.finish_reason)
            return tuple(outputs)
        assert self._error is not None, "woken by an output or by the error"
        self.unfinished.clear()
        raise self._error

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ProcessBackend:
    """One engine process: `start`, `wait_ready`, use, `close`.

    `spawn` starts the process, and gives this end of its socket.
    """

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._process: EngineChild | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._facts: asyncio.Future[ModelFacts] = asyncio.get_running_loop().create_future()
        self._groups: dict[str, RequestGroup] = {}
        self._calls: dict[int, asyncio.Future[Done]] = {}
        self._registrations: set[int] = set()  # calls without a time limit of ours
        self._last_call = 0
        self._failure: str | None = None
        self._closing = False
        self._received_at = 0.0
        self.died = asyncio.Event()

    async def start(self, start: StartEngine) -> None:
        """Start the process and send `start`, without waiting for the load."""
        self._process, ours = self._spawn(start.settings)
        ours.setblocking(False)
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._received_at = monotonic_s()
        self._reading = asyncio.create_task(self._read(reader))
        self._send(start)

    async def wait_ready(self) -> ModelFacts:
        """The model's facts once it is loaded. Raises EngineFailedError with the reason."""
        return await asyncio.shield(self._facts)

    @property
    def pid(self) -> int | None:
        """The engine process."""
        return self._process.pid if self._process else None

    @property
    def failure(self) -> str | None:
        """Why the engine can no longer compute. None while it can."""
        return self._failure

    @property
    def ready(self) -> bool:
        """True if the model is loaded and the engine is alive and stepping."""
        loaded = self._facts.done() and not self._failure
        silent_s = monotonic_s() - self._received_at
        return loaded and not (self._waiting and silent_s > STALL_LIMIT_S)

    @property
    def facts(self) -> ModelFacts:
        """The loaded model. Raises EngineFailedError before it is loaded."""
        if not self._facts.done():
            raise EngineFailedError("the model is not loaded yet")
        return self._facts.result()

    async def generate(self, requests: Sequence[Request]) -> AsyncGenerator[tuple[Output, ...]]:
        """Run `requests` together (see EngineBackend)."""
        group = RequestGroup(requests)
        self._send(Add(tuple(requests)))
        self._groups.update(dict.fromkeys(group.unfinished, group))
        try:
            while group.unfinished:
                yield await group.take()
        finally:
            await self.abort(tuple(group.unfinished))

    async def abort(self, request_ids: Sequence[str]) -> None:
        """End these requests here at once and in the engine before its next step."""
        for request_id in request_ids:
            group = self._groups.pop(request_id, None)
            if group:
                group.unfinished.discard(request_id)
        if request_ids and not self._failure:
            self._send(Abort(tuple(request_ids)))

    async def register_adapter(
        self, name: str, src: str, *, pin: bool, replace: bool, limit_s: float
    ) -> None:
        """Register the adapter at `src` as `name` (see EngineBackend)."""
        call = self._next_call()
        self._registrations.add(call)
        loop = asyncio.get_running_loop()
        late = loop.call_later(limit_s, lambda: self._cancel_registration(call))
        try:
            await self._call(RegisterAdapter(call, name, src, pin, replace))
        finally:
            late.cancel()
            self._registrations.discard(call)

    async def pin_adapter(self, name: str, pin: bool) -> None:
        """Pin or unpin it (see EngineBackend)."""
        await self._call(PinAdapter(self._next_call(), name, pin))

    async def adapter(self, name: str) -> AdapterView:
        """The adapter's state (see EngineBackend)."""
        view = (await self._call(AskAdapter(self._next_call(), name))).adapter
        assert view is not None, "the engine answers with the adapter or a fault"
        return view

    async def unload_adapter(self, name: str) -> None:
        """Unregister `name` (see EngineBackend)."""
        await self._call(UnloadAdapter(self._next_call(), name))

    async def stats(self) -> BackendStats:
        """The engine's present load."""
        return (await self._call(AskStats(self._next_call()))).stats or BackendStats()

    async def cache(self, limit: int) -> CacheView:
        """The contents of the engine's caches (see EngineBackend)."""
        view = (await self._call(AskCache(self._next_call(), limit))).cache
        assert view is not None, "the engine answers with what it keeps or a fault"
        return view

    async def close(self) -> None:
        """Stop the engine process and wait for its exit."""
        self._closing = True
        if self._writer:
            self._writer.close()
        if self._process:
            await asyncio.to_thread(reap, self._process)
        if self._reading:
            await asyncio.gather(self._reading, return_exceptions=True)

    @property
    def _waiting(self) -> bool:
        return bool(self._groups or self._calls.keys() - self._registrations)

    def _next_call(self) -> int:
        self._last_call += 1
        return self._last_call

    def _cancel_registration(self, call: int) -> None:
        if not self._failure:
            self._send(CancelRegistration(call))

    async def _call(self, message: EngineCall) -> Done:
        future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self._send(message)
        self._calls[message.call] = future
        try:
            done = await future
        finally:
            self._calls.pop(message.call, None)
        if done.fault:
            raise build_error(done.fault, done.message)
        return done

    def _send(self, message: ToEngine) -> None:
        if self._failure or self._writer is None:
            raise EngineFailedError(self._failure or "the engine process is not started")
        if not self._waiting:
            self._received_at = monotonic_s()
        self._writer.write(frame(message))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        unframer = Unframer()
        try:
            while data := await reader.read(1 << 18):
                self._received_at = monotonic_s()
                for body in unframer.feed(data):
                    self._take(FROM_ENGINE.decode(body))
        except OSError:
            LOG.warning("the connection to the engine process broke")
        except (msgspec.MsgspecError, UnicodeDecodeError, asyncio.InvalidStateError) as error:
            self._fail(f"the engine process sent an invalid message: {error!r}")
        self._fail("the engine process ended" + ("" if self._closing else " unexpectedly"))

    def _take(self, message: FromEngine) -> None:
        match message:
            case Stepped(outputs):
                self._deliver(outputs)
            case Refused(request_ids, fault, text, retry_after_s):
                self._refuse(request_ids, build_error(fault, text, retry_after_s))
            case Done(call):
                future = self._calls.get(call)
                if future and not future.done():
                    future.set_result(message)
            case ModelLoaded(facts):
                self._facts.set_result(facts)
            case Failed(text, is_unsupported):
                self._fail(text, ModelUnsupportedError if is_unsupported else EngineFailedError)

    def _deliver(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            group = self._groups.get(output.request_id)
            if group is not None:
                group.add(output)
                if output.finish_reason:
                    del self._groups[output.request_id]

    def _refuse(self, request_ids: Sequence[str], error: BackendError) -> None:
        groups = [self._groups.pop(each) for each in request_ids if each in self._groups]
        for group in {id(group): group for group in groups}.values():
            group.fail(error)

    def _fail(self, reason: str, kind: type[EngineFailedError] = EngineFailedError) -> None:
        if self._failure:
            return
        self._failure = reason
        LOG.log(logging.INFO if self._closing else logging.ERROR, "engine: %s", reason)
        if not self._facts.done():
            self._facts.set_exception(kind(reason))
            self._facts.exception()  # retrieved, because no caller may wait for it
        for future in self._calls.values():
            if not future.done():
                future.set_exception(EngineFailedError(reason))
        self._refuse(tuple(self._groups), EngineFailedError(reason))
        self.died.set()


def build_error(fault: Fault, message: str, retry_after_s: float = 1.0) -> BackendError:
    """The error of a fault that the engine reported."""
    kind = ERRORS[fault]
    if issubclass(kind, BusyError):
        return kind(message, retry_after_s)
    return kind(message)
