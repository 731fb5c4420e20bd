"""Interface of the engine process to vLLM: `async_llm.py` has it, tests have a fake."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Protocol

from hostelry.containers.lmi.engine.backend import ModelFacts
from hostelry.containers.lmi.vllm.outputs import Generated
from hostelry.engine.request import Request

MAX_FAILURE_CHARACTERS = 300  # a FailureReason has room for it


class EngineLostError(Exception):
    """vLLM's engine died; no request can be computed any more."""


class Vllm(Protocol):
    """vLLM's asynchronous engine over token ids."""

    num_steps: int  # so far
    cached_tokens: int
    preemptions: int

    @property
    def facts(self) -> ModelFacts:
        """The loaded model."""
        ...

    @property
    def failure(self) -> str | None:
        """Why nothing can be computed any more; None while it can."""
        ...

    @property
    def num_pages(self) -> int:
        """Blocks of the KV cache."""
        ...

    @property
    def num_used_pages(self) -> int:
        """Blocks in use at the last step."""
        ...

    def generate(
        self, request: Request, arguments: Mapping[str, Any], adapter: "LoadedAdapter | None"
    ) -> AsyncGenerator[Generated]:
        """The request's outputs; closing the generator ends the request.

        Raises ValueError for a request that vLLM refuses, EngineLostError.
        """
        ...

    async def add_adapter(self, adapter: "LoadedAdapter") -> list[str]:
        """Load the adapter; the modules of it that no layer takes. Raises ValueError."""
        ...

    async def remove_adapter(self, adapter: "LoadedAdapter") -> None:
        """Forget the adapter; no effect where it is not in memory."""
        ...


class LoadedAdapter(Protocol):
    """An adapter as vLLM knows it: `number` and `key` are of this version of it alone."""

    @property
    def number(self) -> int: ...  # noqa: D102
    @property
    def key(self) -> str: ...  # noqa: D102
    @property
    def folder(self) -> Path: ...  # noqa: D102


def failure_text(error: Exception, first: str | None = None) -> str:
    """VLLM's error on one line of bounded length, without the frame that pydantic gives it.

    `first` is the first error of its processes, which takes the error's place.
    """
    if first is not None:
        return f"vLLM: {' '.join(first.split())[:MAX_FAILURE_CHARACTERS]}"
    text = " ".join(str(error).split())
    text = text.partition("Value error, ")[2] or text
    text = text.partition(" [type=")[0].partition(" For further information visit")[0]
    return f"vLLM: {type(error).__name__}: {text[:MAX_FAILURE_CHARACTERS]}"
