"""The server's state: what it serves, whether it is ready, and how much is in flight."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from hostelry.base.clock import Clock
from hostelry.containers.lmi.engine.backend import EngineBackend
from hostelry.containers.lmi.http.adapter_registry import AdapterRegistry
from hostelry.containers.lmi.refusal import Cause, Refusal
from hostelry.containers.lmi.request.chat_template import ChatTemplate
from hostelry.containers.lmi.settings.config import LmiConfig
from hostelry.containers.lmi.text_codec import TextCodec

QUEUE_RETRY_S = 1.0


class Phase(Enum):
    """Where the server is in its life."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """Everything that exists once the model is loaded."""

    backend: EngineBackend
    codec: TextCodec
    chat: ChatTemplate | None
    registry: AdapterRegistry


def idle_event() -> asyncio.Event:
    """An event that is set."""
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True, kw_only=True)
class Service:
    """One model server; `idle` is set while nothing is in flight."""

    config: LmiConfig
    clock: Clock
    model: LoadedModel | None = None
    phase: Phase = Phase.LOADING
    in_flight: int = field(default=0, init=False)
    idle: asyncio.Event = field(default_factory=idle_event, init=False)

    @property
    def ping_status(self) -> int:
        """200 only for a model that is loaded and whose engine is alive and stepping."""
        if self.phase is Phase.LOADING or self.phase is Phase.DRAINING:
            return 503
        healthy = self.phase is Phase.READY and self.model and self.model.backend.ready
        return 200 if healthy else 500

    def loaded(self) -> LoadedModel:
        """The model; raises Refusal while the server takes no requests."""
        if self.model is None or self.phase is Phase.LOADING:
            raise Refusal(Cause.NOT_READY, f"Model {self.config.model_name} is not ready")
        if self.phase is Phase.DRAINING:
            raise Refusal(Cause.NOT_READY, "the server is shutting down; try another copy")
        if self.phase is Phase.FAILED:
            raise Refusal(Cause.ENGINE, "Inference Engine Failure")
        return self.model

    @contextmanager
    def place(self) -> Iterator[None]:
        """Count a request until its last byte; raises Refusal when the queue is full."""
        limit = self.config.max_batch_size + self.config.job_queue_size
        if self.in_flight >= limit:
            raise Refusal(
                Cause.QUEUE_FULL,
                f"Worker queue capacity exceeded for model: {self.config.model_name} "
                f"({self.in_flight} requests in flight)",
                retry_after_s=QUEUE_RETRY_S,
            )
        self.in_flight += 1
        self.idle.clear()
        try:
            yield
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self.idle.set()
