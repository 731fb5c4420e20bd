"""The loop of the engine process with vLLM: messages in, messages out, in one event loop."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol

from hostelry.base.clock import Clock
from hostelry.containers.lmi.engine.backend import BackendStats
from hostelry.containers.lmi.engine.messages import (
    Abort,
    Add,
    AskAdapter,
    AskCache,
    AskStats,
    CancelRegistration,
    Done,
    EngineSettings,
    Fault,
    PinAdapter,
    RegisterAdapter,
    StartEngine,
    Stepped,
    ToEngine,
    UnloadAdapter,
)
from hostelry.containers.lmi.vllm.adapters import PreparedAdapter
from hostelry.containers.lmi.vllm.admission import VllmAdmission
from hostelry.containers.lmi.vllm.engine_seam import EngineLostError, Vllm
from hostelry.containers.lmi.vllm.registry import (
    AdapterTable,
    UnknownVersionError,
    VllmAdapter,
    delete_files,
)
from hostelry.containers.lmi.vllm.requests import Send, VllmRequests
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.request import Structure
from hostelry.engine.scheduler.tenants import TenantPolicies

BEAT_S = 5.0  # an empty `Stepped` that often, as long as vLLM makes steps
MAX_READS = 4  # adapters read at once
MAX_READS_WAITING = 1000
NO_PINS = (
    "pin is not done with vLLM, which chooses itself which adapters are in memory; leave it out, "
    "or use option.backend=hostelry"
)
LORA_OFF = "option.enable_lora is false"

log = logging.getLogger(__name__)


class Prepare(Protocol):
    """Reads and checks the adapter at a path or URI; runs in threads."""

    def __call__(self, src: str) -> PreparedAdapter: ...  # noqa: D102


class VllmLoop:
    """Handles the server's messages.

    `compile_structure` and its future raise ValueError for a structure that is refused.
    """

    def __init__(
        self,
        llm: Vllm,
        settings: EngineSettings,
        *,
        prepare: Prepare | None,
        compile_structure: Callable[[Structure], Future[Any]],
        send: Send,
        clock: Clock,
    ) -> None:
        self._llm = llm
        self._prepare = prepare
        self._compile = compile_structure
        self._send = send
        self._adapters = AdapterTable(self._drop)
        policies = TenantPolicies(default=settings.default_tenant, table=settings.tenants)
        self._admission = VllmAdmission(policies, settings.max_batch_size, settings.max_waiting)
        self._requests = VllmRequests(llm, self._adapters, self._admission, send, clock)
        self._reads = asyncio.Semaphore(MAX_READS)
        self._registering: dict[int, RegisterAdapter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancelled: set[str] = set()  # requests whose structures are being compiled
        self._compiling: set[str] = set()
        self._num_failed_loads = 0

    def take(self, message: ToEngine) -> None:
        """Handle one message."""
        match message:
            case Add():
                self._add(message)
            case Abort(request_ids):
                self._cancelled |= self._compiling & set(request_ids)
                self._requests.abort(request_ids)
            case RegisterAdapter():
                self._begin_registration(message)
            case CancelRegistration(call):
                late = self._registering.pop(call, None)
                if late is not None:
                    text = f"adapter {late.name} was not read from {late.src} in time"
                    self._send(Done(call, "adapter_refused", text))
            case StartEngine():
                raise ValueError("the engine was started already")
            case _:
                self._send(self._answer(message))

    async def load_first(self, name: str, folder: str) -> None:
        """Load an adapter of the model's own. Raises AdapterError naming it and its folder."""
        try:
            self._adapters.register(await self._loaded(name, folder))
        except (AdapterError, OSError, ValueError) as error:
            raise AdapterError(f"adapter {name} in {folder} cannot be loaded: {error}") from error

    async def beat(self) -> str:
        """Send heartbeats while vLLM makes steps; returns with the reason when it is lost."""
        last = -1
        while self._llm.failure is None:
            if self._requests.num_unfinished and self._llm.num_steps != last:
                last = self._llm.num_steps
                self._send(Stepped(()))
            await asyncio.sleep(BEAT_S)
        return self._llm.failure

    def close(self) -> None:
        """Cancel everything."""
        self._requests.close()
        for task in self._tasks:
            task.cancel()

    # Requests

    def _add(self, message: Add) -> None:
        structures = [it.sampling.structure for it in message.requests]
        wanted = list(dict.fromkeys(it for it in structures if it is not None))
        if wanted:
            self._spawn(self._add_compiled(message, wanted))
        else:
            self._requests.add(message)

    async def _add_compiled(self, message: Add, structures: list[Structure]) -> None:
        """Add the requests, once every structure was compiled within its limits."""
        ids = {it.id for it in message.requests}
        self._compiling |= ids
        try:
            for structure in structures:
                await asyncio.wrap_future(self._compile(structure))
        except ValueError as error:
            self._requests.refuse(message, error)
            return
        finally:
            self._compiling -= ids
            cancelled = self._cancelled & ids
            self._cancelled -= ids
        left = tuple(it for it in message.requests if it.id not in cancelled)
        self._requests.add(Add(left))

    # Adapters

    def _begin_registration(self, message: RegisterAdapter) -> None:
        fault = self._registration_fault(message)
        if fault is not None:
            self._send(fault)
            return
        self._registering[message.call] = message
        self._spawn(self._register(message))

    def _registration_fault(self, message: RegisterAdapter) -> Done | None:
        if not message.replace and message.name in self._adapters:
            text = f"adapter {message.name} is loaded already"
            return Done(message.call, "adapter_exists", text)
        if message.pin:
            return Done(message.call, "adapter_refused", NO_PINS)
        if len(self._registering) >= MAX_READS_WAITING:
            text = f"{MAX_READS_WAITING} adapters wait to be read already; try again in a moment"
            return Done(message.call, "full", text)
        return None

    async def _register(self, message: RegisterAdapter) -> None:
        fault: tuple[Fault, str] | None = None
        adapter = None
        try:
            adapter = await self._loaded(message.name, message.src)
        except (AdapterError, OSError, ValueError) as error:
            self._num_failed_loads += 1
            fault = ("adapter_refused", str(error))
        except MemoryError:
            fault = ("capacity", "there is no memory for the adapter")
        except EngineLostError as error:
            fault = ("failed", str(error))
        is_wanted = self._registering.pop(message.call, None) is not None
        if adapter is None:
            assert fault is not None, "what is not loaded failed"
            log.warning("adapter %s from %s: %s", message.name, message.src, fault[1])
            if is_wanted:
                self._send(Done(message.call, *fault))
            return
        if not is_wanted or (not message.replace and message.name in self._adapters):
            self._drop(adapter)
            if is_wanted:
                text = f"adapter {message.name} is loaded already"
                self._send(Done(message.call, "adapter_exists", text))
            return
        self._adapters.register(adapter)
        self._send(Done(message.call, adapter=adapter.view()))

    async def _loaded(self, name: str, src: str) -> VllmAdapter:
        """The adapter in vLLM, proven whole there. Raises AdapterError, OSError, ValueError."""
        if self._prepare is None:
            raise AdapterError(LORA_OFF)
        async with self._reads:
            prepared = await asyncio.to_thread(self._prepare, src)
        adapter = self._adapters.new(name, prepared)
        try:
            unused = await self._llm.add_adapter(adapter)
        except BaseException:
            await delete_files(prepared)
            raise
        if unused:
            self._drop(adapter)
            raise AdapterError(
                f"vLLM does not apply adapters to {unused[0]}"
                + (f" and {len(unused) - 1} more modules" if len(unused) > 1 else "")
            )
        return adapter

    def _drop(self, adapter: VllmAdapter) -> None:
        self._spawn(self._forget(adapter))

    async def _forget(self, adapter: VllmAdapter) -> None:
        await self._llm.remove_adapter(adapter)
        await delete_files(adapter.prepared)

    # Answers

    def _answer(
        self, message: UnloadAdapter | PinAdapter | AskAdapter | AskStats | AskCache
    ) -> Done:
        call = message.call
        try:
            match message:
                case UnloadAdapter():
                    self._adapters.unregister(message.name)
                case PinAdapter(_, name, pin):
                    self._adapters.of(name)
                    if pin:
                        return Done(call, "adapter_refused", NO_PINS)
                case AskAdapter():
                    return Done(call, adapter=self._adapters.of(message.name).view())
                case AskStats():
                    return Done(call, stats=self._stats())
                case AskCache(_, limit):
                    return Done(call, cache=self._adapters.cache(limit, self._stats()))
        except UnknownVersionError as error:
            return Done(call, "adapter_missing", str(error))
        return Done(call)

    def _stats(self) -> BackendStats:
        llm, requests = self._llm, self._requests
        return BackendStats(
            kernels="vllm",
            running_requests=self._admission.num_running,
            waiting_requests=self._admission.num_waiting + len(self._compiling),
            steps=llm.num_steps,
            free_pages=llm.num_pages - (llm.num_used_pages if requests.num_unfinished else 0),
            total_pages=llm.num_pages,
            prompt_tokens=requests.prompt_tokens,
            cached_tokens=llm.cached_tokens,
            generated_tokens=requests.generated_tokens,
            preemptions=llm.preemptions,
            expired_requests=requests.expired,
            adapter_loads_running=len(self._registering),
            adapter_loads_failed=self._num_failed_loads,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
