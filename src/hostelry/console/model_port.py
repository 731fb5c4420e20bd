"""Models as the playground asks them: by the gateway's public routes."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from hostelry.base.errors import HostelryError


class NoModelAnswerError(HostelryError):
    """The gateway gives no answer; the message says why."""


class ModelAnswer(Protocol):
    """An answer as it comes; `chunks` raises NoModelAnswerError where it breaks off."""

    @property
    def status(self) -> int:
        """The answer's status."""
        ...

    @property
    def content_type(self) -> str:
        """Its media type; empty where it has none."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, piece by piece."""
        ...


class ModelPort(Protocol):
    """The gateway. Every method raises NoModelAnswerError; leaving a block ends its call."""

    async def models(self) -> list[str]:
        """The names that a chat may have as its model."""
        ...

    def chat(self, content: bytes) -> AbstractAsyncContextManager[ModelAnswer]:
        """POST /v1/chat/completions with that body."""
        ...

    def invoke(
        self, parameters: Mapping[str, str], body: bytes
    ) -> AbstractAsyncContextManager[ModelAnswer]:
        """InvokeEndpoint, with its parameters by name."""
        ...
