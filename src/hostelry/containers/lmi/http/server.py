"""State of the server: its model, phase and requests in flight."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from random import Random, SystemRandom
from typing import Any

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.shown_paths import AFTER
from hostelry.containers.lmi.artifact_path import CONTAINER_MODEL_DIR
from hostelry.containers.lmi.code.author_code import AuthorCode
from hostelry.containers.lmi.engine.backend import EngineBackend
from hostelry.containers.lmi.http.adapter_registry import AdapterRecord, AdapterRegistry
from hostelry.containers.lmi.metrics.measurements import Measurements
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface
from hostelry.containers.lmi.request.chat_template import ChatTemplate
from hostelry.containers.lmi.request.images import NO_IMAGES, ImageLimits
from hostelry.containers.lmi.request.sampling import NEUTRAL, SamplingDefaults
from hostelry.containers.lmi.response.forms import error_answer
from hostelry.containers.lmi.sessions import OpenSessions
from hostelry.containers.lmi.settings.config import LmiConfig
from hostelry.containers.lmi.settings.engine_terms import Backend
from hostelry.containers.lmi.text_codec import TextCodec
from hostelry.containers.lmi.tools.families import Conventions

BEFORE = r"(?<![\w.~-])(?<!:/)"  # begins a path, also after file://
QUEUE_RETRY_S = 1.0


def without_host_paths(text: str, config: LmiConfig, adapters: Iterable[AdapterRecord]) -> str:
    """Replace the folders of the model and the adapters in `text` by names that callers know.

    The model's folders get the container's path, and an adapter's folder gets its alias.
    """
    if "/" not in text:
        return text
    model = str(CONTAINER_MODEL_DIR)
    own = (config.model_dir, *config.artifact_folders, config.hub_folder)
    names = {str(folder): model for folder in own if folder is not None}
    names |= (
        {str(config.engine.adapter_cache_folder): "the adapter cache"}
        if config.engine.adapter_cache_folder
        else {}
    )
    sources = {it.src.rstrip("/"): it.alias for it in adapters}
    names |= {source: f"adapter {alias}" for source, alias in sources.items()}
    known = [path for path in names if path.startswith("/") and path != "/"]
    folders = sorted(known, key=len)
    if not folders:
        return text
    whole = re.compile(f"{BEFORE}(?:{'|'.join(map(re.escape, reversed(folders)))}){AFTER}")
    return whole.sub(lambda found: names[found[0]], text)


class ServerPhase(Enum):
    """Phase of the server's life."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that exist once the model is loaded. `why_engine` says why `engine` serves."""

    backend: EngineBackend
    codec: TextCodec
    chat: ChatTemplate | None
    registry: AdapterRegistry
    defaults: SamplingDefaults = NEUTRAL
    conventions: Conventions = msgspec.field(default_factory=Conventions)
    images: ImageLimits = NO_IMAGES
    engine: Backend = Backend.HOSTELRY
    why_engine: str = ""


def idle_event() -> asyncio.Event:
    """An event that is set."""
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True, kw_only=True)
class LmiServer:
    """The LLM server's state. `idle` is set while no request is in flight.

    `ready_at` is the time, since the epoch, at which the model was loaded. `code` is the
    author's, `environment` the server's own. `noted_fields` are the unknown fields of requests
    that have been logged.
    """

    config: LmiConfig
    clock: Clock
    environment: Mapping[str, str] = field(default_factory=dict)
    model: LoadedModel | None = None
    code: AuthorCode | None = None
    phase: ServerPhase = ServerPhase.LOADING
    ready_at: float | None = None
    measured: Measurements = field(default_factory=Measurements)
    in_flight: int = field(default=0, init=False)
    seeds: Random = field(init=False, repr=False)
    noted_fields: set[str] = field(default_factory=set, init=False)
    idle: asyncio.Event = field(default_factory=idle_event, init=False)
    sessions: OpenSessions = field(init=False)

    def __post_init__(self) -> None:
        """Draw seeds from the configured one, else from the system's."""
        self.sessions = OpenSessions(self.config.code.sessions_expiration_s)
        seed = self.config.seed
        self.seeds = SystemRandom() if seed is None else Random(seed)

    @property
    def ping_status(self) -> int:
        """Status of /ping.

        loading, draining                          -> 503
        ready, and the engine is alive and stepping -> 200
        otherwise                                  -> 500
        """
        if self.phase is ServerPhase.LOADING or self.phase is ServerPhase.DRAINING:
            return 503
        healthy = self.phase is ServerPhase.READY and self.model and self.model.backend.ready
        return 200 if healthy else 500

    @property
    def batch_size(self) -> int:
        """The most requests of a step."""
        own = self.model.backend.facts.max_batch_size if self.model else None
        return own or self.config.engine.max_batch_size

    def get_model(self) -> LoadedModel:
        """The model. Raises Refusal while the server accepts no requests."""
        if self.model is None or self.phase is ServerPhase.LOADING:
            raise Refusal(Cause.NOT_READY, f"Model {self.config.model_name} is not ready")
        if self.phase is ServerPhase.DRAINING:
            raise Refusal(Cause.NOT_READY, "the server is shutting down; try another copy")
        if self.phase is ServerPhase.FAILED:
            raise Refusal(Cause.ENGINE, "Inference Engine Failure")
        return self.model

    def hide_paths(self, text: str) -> str:
        """Format `text` for callers, without paths of this machine."""
        records = self.model.registry.records.values() if self.model else ()
        return without_host_paths(text, self.config, records)

    def build_refusal(self, refusal: Refusal, surface: Surface) -> tuple[int, Any]:
        """Status and JSON body of a refused request."""
        return error_answer(refusal, self.hide_paths(refusal.message), surface, self.config.codes)

    @contextmanager
    def admission(self) -> Iterator[None]:
        """Count a request until its last byte. Raises Refusal if the queue is full."""
        limit = self.batch_size + self.config.job_queue_size
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
