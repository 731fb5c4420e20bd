"""vLLM as the engine that `MessageLoop` serves: requests, adapters, load."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

from hostelry.base.clock import Clock
from hostelry.containers.lmi.engine.backend import AdapterView, BackendStats, CacheView
from hostelry.containers.lmi.engine.loop import Send
from hostelry.containers.lmi.engine.messages import Stepped
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.containers.lmi.vllm.adapters import (
    AdapterTable,
    PreparedAdapter,
    VllmAdapter,
    delete_files,
)
from hostelry.containers.lmi.vllm.interface import Vllm
from hostelry.containers.lmi.vllm.requests import VllmAdmission, VllmRequests
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.request import Request, Structure

BEAT_S = 5.0  # an empty `Stepped` that often, as long as vLLM makes steps
NO_PINS = (
    "pin is not done with vLLM, which chooses itself which adapters are in memory; leave it out, "
    "or use option.backend=hostelry"
)
LORA_OFF = "option.enable_lora is false"


class VllmEngine:
    """vLLM as `HostedEngine`. It is made in a running event loop, whose thread is the engine's.

    `prepare` reads and checks the adapter at a path or URI. Without it, LoRA is off. The function
    `compile_structure` and its future raise ValueError for an invalid structure.
    """

    pin_refusal = NO_PINS

    def __init__(
        self,
        llm: Vllm,
        settings: EngineSettings,
        *,
        prepare: Callable[[str], PreparedAdapter] | None,
        compile_structure: Callable[[Structure], Future[Any]],
        send: Send,
        clock: Clock,
    ) -> None:
        self._llm = llm
        self._prepare = prepare
        self._compile = compile_structure
        self._send = send
        self._event_loop = asyncio.get_running_loop()
        self._adapters = AdapterTable(self.discard_adapter)
        self._admission = VllmAdmission(
            settings.tenants, settings.max_batch_size, settings.max_waiting
        )
        self._requests = VllmRequests(llm, self._adapters, self._admission, send, clock)
        self._compiling: set[Future[Any]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._counting = threading.Lock()
        self._num_loading = 0
        self._num_failed_loads = 0

    async def beat(self) -> str:
        """Send heartbeats while vLLM makes steps. Returns the reason once vLLM is lost."""
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

    def add(self, requests: Sequence[Request]) -> None:
        """Queue all `requests`, or none (see HostedEngine)."""
        self._requests.add(requests)

    def abort(self, request_ids: Sequence[str]) -> None:
        """End these requests (see HostedEngine)."""
        self._requests.abort(request_ids)

    def compile_structure(self, structure: Structure) -> Future[Any]:
        """Compile in another process (see HostedEngine)."""
        compiling = self._compile(structure)
        self._compiling.add(compiling)
        compiling.add_done_callback(self._compiling.discard)
        return compiling

    def prepare_adapter(self, name: str, src: str) -> VllmAdapter:
        """Load the adapter at `src` into vLLM, and prove that vLLM applies all of it.

        For other threads than the event loop's. Raises AdapterError, OSError, EngineFailedError.
        """
        if self._prepare is None:
            raise AdapterError(LORA_OFF)
        with self._counting:
            self._num_loading += 1
        try:
            prepared = self._prepare(src)
            return asyncio.run_coroutine_threadsafe(
                self._load(name, prepared), self._event_loop
            ).result()
        except BaseException:
            with self._counting:
                self._num_failed_loads += 1
            raise
        finally:
            with self._counting:
                self._num_loading -= 1

    async def _load(self, name: str, prepared: PreparedAdapter) -> VllmAdapter:
        adapter = self._adapters.new(name, prepared)
        try:
            unused = await self._llm.add_adapter(adapter)
        except BaseException:
            await delete_files(prepared)
            raise
        if unused:
            self.discard_adapter(adapter)
            raise AdapterError(
                f"vLLM does not apply adapters to {unused[0]}"
                + (f" and {len(unused) - 1} more modules" if len(unused) > 1 else "")
            )
        return adapter

    def register_adapter(
        self, name: str, prepared: VllmAdapter, *, pin: bool, replace: bool
    ) -> None:
        """Register a loaded adapter (see HostedEngine)."""
        self._adapters.register(prepared)

    def discard_adapter(self, prepared: VllmAdapter) -> None:
        """Remove the adapter from vLLM, and its files."""

        async def discard() -> None:
            await self._llm.remove_adapter(prepared)
            await delete_files(prepared.prepared)

        self._spawn(discard())

    def unload_adapter(self, name: str) -> None:
        """Unregister it (see HostedEngine)."""
        self._adapters.unregister(name)

    def pin_adapter(self, name: str, pin: bool) -> None:
        """Raise AdapterError to pin: vLLM chooses itself (see HostedEngine)."""
        self._adapters.of(name)
        if pin:
            raise AdapterError(NO_PINS)

    def has_adapter(self, name: str) -> bool:
        """True if it is registered."""
        return name in self._adapters

    def adapter(self, name: str) -> AdapterView:
        """Its state (see HostedEngine)."""
        return self._adapters.of(name).view()

    def cache(self, limit: int) -> CacheView:
        """The adapters alone: vLLM does not show its pages."""
        return self._adapters.cache(limit, self.stats())

    def stats(self) -> BackendStats:
        """The present load."""
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
            adapter_loads_running=self._num_loading,
            adapter_loads_failed=self._num_failed_loads,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._event_loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
