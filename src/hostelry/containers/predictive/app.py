"""The routes of a framework model server."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hostelry.base.clock import Clock
from hostelry.base.copy_key import HEADER, NOT_SHOWN
from hostelry.base.errors import HostelryError
from hostelry.base.key_guard import KeyGuard
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.containers.predictive.worker_pool import PoolBusyError, WorkerPool
from hostelry.containers.predictive.worker_process import Answered, Asked, WorkerLostError

SHOWN_PREFIX = "x-amzn-sagemaker-"
SHOWN = {"content-type": "Content-Type", "accept": "Accept", "x-request-id": "X-Request-Id"}
NOT_PASSED = frozenset(
    {"content-length", "content-type", "transfer-encoding", "connection", "date", "server"}
)
OK_TO_PASS = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")  # of RFC 9110's names


class ServingApp(ABC):
    """What every server here has: health, metrics, the count of its requests, the copy's key."""

    def __init__(self, clock: Clock, metrics: PredictiveMetrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self.in_flight = 0
        self.idle = asyncio.Event()
        self.idle.set()
        self.is_draining = False

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

    async def ping(self, _request: Request) -> Response:
        """200 while it serves, 503 with the cause otherwise."""
        fault = "the server ends" if self.is_draining else self.fault()
        return text_response(fault, 503) if fault else Response(status_code=200)

    async def metrics(self, _request: Request) -> Response:
        """The page for Prometheus."""
        return Response(self._metrics.page(), media_type="text/plain; version=0.0.4")

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
        self._metrics.answered(response.status_code, self._clock.now() - began)
        return response


class PredictiveApp(ServingApp):
    """The application over the workers of one model."""

    def __init__(
        self, pool: WorkerPool, max_request_bytes: int, clock: Clock, metrics: PredictiveMetrics
    ) -> None:
        super().__init__(clock, metrics)
        self._pool = pool
        self._max_bytes = max_request_bytes
        metrics.watch_workers(lambda: len(pool.pids))

    def routes(self) -> list[Route]:
        """Its own routes."""
        return [
            Route("/invocations", self.counted, methods=["POST"]),
            Route("/execution-parameters", self.execution_parameters, methods=["GET"]),
        ]

    def fault(self) -> str | None:
        """Why no worker serves."""
        return self._pool.fault

    async def execution_parameters(self, _request: Request) -> Response:
        """What the model's execution_parameters_fn gives; 404 without it."""
        found = self._pool.execution_parameters
        if found is None:
            return text_response("the model's code has no execution_parameters_fn", 404)
        return Response(msgspec.json.encode(found), media_type="application/json")

    async def invoked(self, request: Request) -> Response:
        """The model's answer to one request."""
        body = await body_of(request, self._max_bytes)
        if isinstance(body, Response):
            return body
        try:
            return answer_of(
                await self._pool.invoke(Asked(headers=shown(request.headers), body=body))
            )
        except HostelryError as error:
            return refusal_of(error)


def answer_of(answer: Answered) -> Response:
    """A model's answer as the client's."""
    headers = {**passed(answer.headers), "content-type": one_line(answer.content_type)}
    return Response(answer.body, answer.status if 200 <= answer.status < 600 else 500, headers)


def refusal_of(error: HostelryError) -> Response:
    """The answer to a request that no worker answered."""
    if isinstance(error, PoolBusyError):
        return text_response(str(error), 503)
    if isinstance(error, WorkerLostError):
        return text_response(str(error), 504 if error.timed_out else 502)
    return text_response(str(error), 500)


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


def shown(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that the model's functions see: SageMaker's, and those of the content."""
    found = {}
    for name, value in headers.items():
        lowered = name.lower()
        if lowered in SHOWN:
            found[SHOWN[lowered]] = value
        elif lowered.startswith(SHOWN_PREFIX):
            found[name] = value
    return found


def passed(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a model's answer that reach the client; those that frame it do not."""
    return {
        name: one_line(value)
        for name, value in headers.items()
        if name.lower() not in NOT_PASSED and name and set(name.lower()) <= OK_TO_PASS
    }


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
