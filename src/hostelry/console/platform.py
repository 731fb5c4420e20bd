"""The platform and its models as the console sees them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from hostelry.base.errors import HostelryError


class NoModelAnswerError(HostelryError):
    """The gateway gives no answer; the message says why."""


class ModelAnswer(Protocol):
    """An answer in pieces. `chunks` raises NoModelAnswerError if it breaks off."""

    @property
    def status(self) -> int:
        """The answer's status."""
        ...

    @property
    def content_type(self) -> str:
        """Its media type, or ""."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessQuery:
    """A GET of an internal route of a process: control, gateway or jobs.

    `home` answers at `/processes`: for how many seconds each process of the platform runs.
    `holds_s`: so long its answer is taken to hold while control's records do not change; 0 where it
    may change without them.
    """

    process: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    holds_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiQuery:
    """A call of a public API, as boto3 names it: ("cloudwatch", "GetMetricData", {...})."""

    service: str
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCommand:
    """A POST to an internal route of a process, for calls that no public API has."""

    process: str
    path: str
    body: Mapping[str, Any] = field(default_factory=dict)


Query = ProcessQuery | ApiQuery


class PlatformError(HostelryError):
    """What was asked has no answer, or was refused; the message says why."""


class PlatformPort(Protocol):
    """The running platform. Every method raises PlatformError."""

    async def ask(
        self, process: str, path: str, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The JSON object at an internal route of `process`: control, gateway or jobs."""
        ...

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The result of an operation of a public API, without its metadata."""
        ...

    async def post(self, process: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON object that an internal route answers to `body`."""
        ...


async def answer_to(port: PlatformPort, query: Query) -> dict[str, Any]:
    """The answer to `query`; raises PlatformError."""
    if isinstance(query, ProcessQuery):
        return await port.ask(query.process, query.path, query.query)
    return await port.call(query.service, query.operation, query.parameters)
