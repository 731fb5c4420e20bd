"""The part that all model servers share: the ASGI application, and the life of the process.

The application has health, metrics, counted requests, and the check of the copy's key.
"""

import asyncio
import logging
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hostelry.base.clock import Clock
from hostelry.base.concurrency import stop_event
from hostelry.base.errors import HostelryError, TerminalError
from hostelry.base.guards import COPY_KEY_HEADER, MISSING_COPY_KEY, KeyGuard
from hostelry.containers.http.listening import http_server, listen, served_on
from hostelry.containers.variables import whole

DRAIN_S = 8.0
EXIT_FAILURE, EXIT_CONFIGURATION = 1, 2

LOG = logging.getLogger("hostelry.containers")


class RefusedRequestError(HostelryError):
    """The request is answered with `status` and the message."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class AnswerMetrics(Protocol):
    """Counts of answers, as a page for Prometheus."""

    def count_answer(self, status: int, whole_s: float) -> None:
        """Count an answer."""
        ...

    def page(self) -> bytes:
        """The page in Prometheus' text format."""
        ...


class ServingApp(ABC):
    """The routes of a model server: its own routes, and the routes of all model servers."""

    def __init__(self, clock: Clock, metrics: AnswerMetrics) -> None:
        self._clock = clock
        self._answers = metrics
        self.in_flight = 0
        self.idle = asyncio.Event()
        self.idle.set()
        self.is_draining = False
        self.further_metrics: Callable[[], Awaitable[bytes]] | None = None

    @abstractmethod
    def routes(self) -> list[Route]:
        """The server's own routes."""

    @abstractmethod
    def fault(self) -> str | None:
        """The reason why it does not serve. None while it serves."""

    @abstractmethod
    async def invoke(self, request: Request) -> Response:
        """Answer a request to a model. A HostelryError is answered by `refuse`."""

    def asgi(self, key: str | None) -> ASGIApp:
        """The ASGI application. With `key` it answers 403 to a request without the key."""
        common = [
            Route("/ping", self.ping, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        ]
        handlers = {HostelryError: lambda _request, error: refuse(error)}
        app = Starlette(routes=[*common, *self.routes()], exception_handlers=handlers)
        return app if key is None else KeyGuard(app, COPY_KEY_HEADER, key, refuse_without_key)

    async def drain(self) -> None:
        """Fail /ping, and return once no request is in flight, after at most DRAIN_S."""
        self.is_draining = True
        LOG.info("draining %d requests", self.in_flight)
        try:
            await asyncio.wait_for(self.idle.wait(), DRAIN_S)
        except TimeoutError:
            LOG.warning("%d requests did not end within %g s", self.in_flight, DRAIN_S)

    async def ping(self, _request: Request) -> Response:
        """200 while it serves, otherwise 503 with the cause."""
        fault = "the server ends" if self.is_draining else self.fault()
        return text_response(fault, 503) if fault else Response(status_code=200)

    async def metrics(self, _request: Request) -> Response:
        """The page for Prometheus."""
        page = self._answers.page()
        if self.further_metrics is not None:
            page += await self.further_metrics()
        return Response(page, media_type="text/plain; version=0.0.4")

    async def invoke_counted(self, request: Request) -> Response:
        """Call `invoke`, and count and time the answer."""
        began = self._clock.now()
        self.in_flight += 1
        self.idle.clear()
        try:
            response = await self.invoke(request)
        except HostelryError as error:
            response = refuse(error)
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self.idle.set()
        self._answers.count_answer(response.status_code, self._clock.now() - began)
        return response


async def read_request(request: Request, max_bytes: int) -> bytes:
    """The request's body. Raises RefusedRequestError if the body is too large or incomplete."""
    declared = request.headers.get("content-length", "0")
    too_large = f"the body has more than {max_bytes} bytes (SAGEMAKER_MAX_PAYLOAD_IN_MB)"
    if declared.isdigit() and int(declared[:20]) > max_bytes:
        raise RefusedRequestError(too_large, 413)
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > max_bytes:
                raise RefusedRequestError(too_large, 413)
    except ClientDisconnect:
        cause = "the client closed the connection before the end of its body"
        raise RefusedRequestError(cause, 400) from None
    return bytes(body)


def refuse(error: Exception) -> Response:
    """The answer to a request that failed: the error's status, or 500."""
    return text_response(
        str(error), error.status if isinstance(error, RefusedRequestError) else 500
    )


def to_header_value(value: str) -> str:
    """The text in Latin-1, without characters that would end a header, cut to 4096."""
    printable = "".join(it if it.isprintable() else " " for it in str(value))
    return printable.encode("latin-1", "replace").decode("latin-1")[:4096]


def text_response(text: str, status: int) -> Response:
    """An answer in plain text."""
    return PlainTextResponse(text, status)


async def refuse_without_key(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 403 without reading the rest of the body."""
    refusal = PlainTextResponse(MISSING_COPY_KEY, 403, headers={"Connection": "close"})
    await refusal(scope, receive, send)


def listen_by_variables() -> socket.socket:
    """Listen on SAGEMAKER_BIND_HOST and SAGEMAKER_BIND_TO_PORT. Raises TerminalError."""
    port = whole(os.environ, "SAGEMAKER_BIND_TO_PORT", 8080, 1, 65535)
    return listen(os.environ.get("SAGEMAKER_BIND_HOST") or "127.0.0.1", port)


@asynccontextmanager
async def serve_http(
    app: ServingApp, listener: socket.socket, key: str | None
) -> AsyncIterator[None]:
    """Answer requests on `listener` inside the context."""
    http = http_server(served_on(listener, app.asgi(key)))
    serving = asyncio.create_task(http.serve(sockets=[listener]))
    try:
        yield
    finally:
        http.should_exit = True
        await serving


async def run_app(
    app: ServingApp,
    start: Coroutine[Any, Any, None],
    wait_for_failure: Callable[[], Awaitable[str]] | None = None,
) -> str | None:
    """Await `start`, serve until SIGTERM or SIGINT, and drain.

    Returns the reason if the start fails, or if `wait_for_failure` returns a reason before the
    signal.
    """
    stopping = asyncio.create_task(stop_event().wait())
    starting = asyncio.create_task(start)
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return None
    try:
        starting.result()
    except HostelryError as error:
        stopping.cancel()
        return str(error)
    if wait_for_failure is not None:
        failing = asyncio.ensure_future(wait_for_failure())
        await asyncio.wait((failing, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            stopping.cancel()
            return failing.result()
        failing.cancel()
    await stopping
    await app.drain()
    return None


def run_server(serve: Callable[[], str | None]) -> int:
    """Call `serve`, which returns the reason of a failure. Returns the exit status.

    0 after a drain, 1 after a failure, 2 for a wrong configuration (TerminalError).
    """
    try:
        failure = serve()
    except TerminalError as error:
        LOG.error("%s", error)  # noqa: TRY400 - the message needs no traceback
        return EXIT_CONFIGURATION
    if failure:
        LOG.error("the server ends: %s", " ".join(failure.split()))
    return EXIT_FAILURE if failure else 0
