"""The seam between the HTTP process and whatever generates tokens."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hostelry.base.errors import HostelryError
from hostelry.engine.request import Output, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the HTTP process must know of the loaded model; `warnings` are the engine's own.

    `max_model_len` is the most tokens one request can have, prompt and answer together.
    """

    vocab_size: int
    max_model_len: int
    eos_token_ids: tuple[int, ...]
    dtype: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendStats:
    """Load of the engine at its last step; pages are of the KV cache."""

    running_requests: int = 0
    waiting_requests: int = 0
    free_pages: int = 0
    total_pages: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    adapter_bytes: int = 0
    kv_cache_bytes: int = 0


class BackendError(HostelryError):
    """Base of what a backend refuses or fails at."""


class RequestRefusedError(BackendError):
    """The engine cannot run this request; the message names the value and the limit."""


class AdapterMissingError(BackendError):
    """The request names an adapter that is not loaded."""


class AdapterRefusedError(BackendError):
    """The adapter cannot be applied exactly; the message names the offending field."""


class AdapterExistsError(BackendError):
    """An adapter of this name is loaded already."""


class AdapterCapacityError(BackendError):
    """There is no memory or no place for one more adapter."""


class EngineFailedError(BackendError):
    """The engine is dead or never came up; the request cannot be answered by this process."""


class EngineBackend(Protocol):
    """Generates tokens and holds adapters. Every call may raise EngineFailedError."""

    @property
    def ready(self) -> bool:
        """Whether the model is loaded and the engine is alive and stepping."""
        ...

    @property
    def facts(self) -> ModelFacts:
        """The loaded model; raises EngineFailedError before it is loaded."""
        ...

    def generate(self, requests: Sequence[Request]) -> AsyncGenerator[tuple[Output, ...]]:
        """Run `requests` together; each item holds what one step gave, in no promised order.

        Ends after the last output of the last request. Closing the iterator early aborts what is
        unfinished. Raises RequestRefusedError or AdapterMissingError before any output, and then
        none of `requests` runs.
        """
        ...

    async def abort(self, request_ids: Sequence[str]) -> None:
        """End these requests with FinishReason.ABORT; unknown ids are no error."""
        ...

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Make `name` usable.

        Raises AdapterExistsError, AdapterRefusedError or AdapterCapacityError, and then nothing
        is loaded.
        """
        ...

    async def unload_adapter(self, name: str) -> None:
        """Forget `name`; running requests finish. Raises AdapterMissingError."""
        ...

    async def stats(self) -> BackendStats:
        """The engine's present load."""
        ...
