"""The ASGI application that model servers share: health, metrics, counted requests, the key."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Protocol

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hostelry.base.clock import Clock
from hostelry.base.copy_key import HEADER, NOT_SHOWN
from hostelry.base.key_guard import KeyGuard


class AnswerMetrics(Protocol):
    """Counts answers; `page` is for Prometheus."""

    def answered(self, status: int, whole_s: float) -> None:
        """Count an answer."""
        ...

    def page(self) -> bytes:
        """The page in Prometheus' text format."""
        ...


DRAIN_S = 8.0
log = logging.getLogger("hostelry.containers")


class ServingApp(ABC):
    """What every server here has: health, metrics, the count of its requests, the copy's key."""

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
        """Its own routes."""

    @abstractmethod
    def fault(self) -> str | None:
        """Why it does not serve; None while it does."""

    @abstractmethod
    async def invoked(self, request: Request) -> Response:
        """The answer to a request to a model."""

    def asgi(self, key: str | None) -> ASGIApp:
        """The ASGI application; with `key` a request without it gets 403."""
        common = [
            Route("/ping", self.ping, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        ]
        app = Starlette(routes=[*common, *self.routes()])
        return app if key is None else KeyGuard(app, HEADER, key, refuse_without_key)

    async def drain(self) -> None:
        """Be ill for /ping, and return once no request is in flight, after DRAIN_S at most."""
        self.is_draining = True
        log.info("draining %d requests", self.in_flight)
        try:
            await asyncio.wait_for(self.idle.wait(), DRAIN_S)
        except TimeoutError:
            log.warning("%d requests did not end within %g s", self.in_flight, DRAIN_S)

    async def ping(self, _request: Request) -> Response:
        """200 while it serves, 503 with the cause otherwise."""
        fault = "the server ends" if self.is_draining else self.fault()
        return text_response(fault, 503) if fault else Response(status_code=200)

    async def metrics(self, _request: Request) -> Response:
        """The page for Prometheus."""
        page = self._answers.page()
        if self.further_metrics is not None:
            page += await self.further_metrics()
        return Response(page, media_type="text/plain; version=0.0.4")

    async def counted(self, request: Request) -> Response:
        """`invoked`, counted and timed."""
        began = self._clock.now()
        self.in_flight += 1
        self.idle.clear()
        try:
            response = await self.invoked(request)
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self.idle.set()
        self._answers.answered(response.status_code, self._clock.now() - began)
        return response


async def body_of(request: Request, max_bytes: int) -> bytes | Response:
    """The request's body, or the answer to one that is too large or cut."""
    declared = request.headers.get("content-length", "0")
    refusal = text_response(
        f"the body has more than {max_bytes} bytes (SAGEMAKER_MAX_PAYLOAD_IN_MB)", 413
    )
    if declared.isdigit() and int(declared[:20]) > max_bytes:
        return refusal
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > max_bytes:
                return refusal
    except ClientDisconnect:
        return text_response("the client closed the connection before the end of its body", 400)
    return bytes(body)


def one_line(value: str) -> str:
    """A header's value without what would end it, in Latin-1."""
    kept = "".join(it if it.isprintable() else " " for it in str(value))
    return kept.encode("latin-1", "replace").decode("latin-1")[:4096]


def text_response(text: str, status: int) -> Response:
    """An answer in words."""
    return PlainTextResponse(text, status)


async def refuse_without_key(scope: Scope, receive: Receive, send: Send) -> None:
    """403; the rest of the body is not read."""
    refusal = PlainTextResponse(NOT_SHOWN, 403, headers={"Connection": "close"})
    await refusal(scope, receive, send)
