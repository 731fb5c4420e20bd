"""The platform as the console sees it: what may be asked, and by which calls it is changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from hostelry.base.errors import HostelryError


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
    """A POST to an internal route of a process: what no public API has a call for."""

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
