"""The interfaces through which the console reaches the platform and its models."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from hostelry.base.errors import HostelryError

TOKEN = "NextToken"


class NoModelAnswerError(HostelryError):
    """The gateway gives no answer. The message says why."""


class ModelAnswer(Protocol):
    """An answer in pieces. `chunks` raises NoModelAnswerError if it breaks off."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def content_type(self) -> str:
        """The media type, or ""."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body piece by piece."""
        ...


class ModelPort(Protocol):
    """The gateway. Every method raises NoModelAnswerError. Leaving a block ends its call."""

    async def models(self) -> list[str]:
        """List the models that a chat may name."""
        ...

    def chat(self, content: bytes) -> AbstractAsyncContextManager[ModelAnswer]:
        """POST `content` to /v1/chat/completions."""
        ...

    def invoke(
        self, parameters: Mapping[str, str], body: bytes
    ) -> AbstractAsyncContextManager[ModelAnswer]:
        """Call InvokeEndpoint with `parameters` by name."""
        ...


class ProcessQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A GET of an internal route of a process: control, gateway or jobs.

    The process `home` answers `/processes` with the seconds that each process of the platform has
    run, and `/costs` with the reports on the last 24 hours. While control's records do not change,
    the answer is used again for `holds_s`. It is 0 if the answer may change without them.
    """

    process: str
    path: str
    query: Mapping[str, str] = msgspec.field(default_factory=dict)
    holds_s: float = 0.0


class ApiQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a public API, as boto3 names it: ("cloudwatch", "GetMetricData", {...}).

    With `max_pages`, the lists of that number of pages are joined at most.
    """

    service: str
    operation: str
    parameters: Mapping[str, Any] = msgspec.field(default_factory=dict)
    max_pages: int = 1


class ProcessCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A POST to an internal route of a process, for calls that no public API has."""

    process: str
    path: str
    body: Mapping[str, Any] = msgspec.field(default_factory=dict)


Query = ProcessQuery | ApiQuery


class PlatformError(HostelryError):
    """A query has no answer, or was refused. The message says why."""


class PlatformPort(Protocol):
    """The running platform. Every method raises PlatformError."""

    async def ask(
        self, process: str, path: str, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """GET the JSON object at an internal route of `process`: control, gateway or jobs."""
        ...

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Call an operation of a public API. The result lacks its metadata."""
        ...

    async def post(self, process: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST `body` to an internal route, which answers a JSON object."""
        ...


async def answer_to(port: PlatformPort, query: Query) -> dict[str, Any]:
    """Ask `query` of the platform. Raises PlatformError."""
    if isinstance(query, ProcessQuery):
        return await port.ask(query.process, query.path, query.query)
    page = await port.call(query.service, query.operation, query.parameters)
    answer = dict(page)
    for _ in range(query.max_pages - 1):
        if TOKEN not in page:
            break
        parameters = {**query.parameters, TOKEN: page[TOKEN]}
        page = await port.call(query.service, query.operation, parameters)
        for name in page.keys() - {TOKEN}:
            answer[name] = [*answer.get(name, ()), *page[name]]
    return answer
