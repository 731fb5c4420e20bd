"""The routes of a framework model server."""

from collections.abc import Mapping

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hostelry.base.clock import Clock
from hostelry.base.copy_key import HEADER, NOT_SHOWN
from hostelry.base.key_guard import KeyGuard
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.containers.predictive.worker_pool import PoolBusyError, WorkerPool
from hostelry.containers.predictive.worker_process import Asked, WorkerLostError

SHOWN_PREFIX = "x-amzn-sagemaker-"
SHOWN = {"content-type": "Content-Type", "accept": "Accept", "x-request-id": "X-Request-Id"}
NOT_PASSED = frozenset(
    {"content-length", "content-type", "transfer-encoding", "connection", "date", "server"}
)
OK_TO_PASS = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")  # of RFC 9110's names


class PredictiveApp:
    """The application over a pool of workers."""

    def __init__(
        self, pool: WorkerPool, max_request_bytes: int, clock: Clock, metrics: PredictiveMetrics
    ) -> None:
        self._pool = pool
        self._max_bytes = max_request_bytes
        self._clock = clock
        self._metrics = metrics
        self.in_flight = 0
        self.is_draining = False
        metrics.watch_workers(lambda: len(pool.pids))

    def asgi(self, key: str | None) -> ASGIApp:
        """The ASGI application; with `key` a request without it gets 403."""
        app = Starlette(
            routes=[
                Route("/ping", self.ping, methods=["GET"]),
                Route("/invocations", self.invocations, methods=["POST"]),
                Route("/execution-parameters", self.execution_parameters, methods=["GET"]),
                Route("/metrics", self.metrics, methods=["GET"]),
            ]
        )
        return app if key is None else KeyGuard(app, HEADER, key, refuse_without_key)

    async def ping(self, _request: Request) -> Response:
        """200 while a worker serves, 503 with the cause otherwise."""
        fault = "the server ends" if self.is_draining else self._pool.fault
        return text_response(fault, 503) if fault else Response(status_code=200)

    async def metrics(self, _request: Request) -> Response:
        """The page for Prometheus."""
        return Response(self._metrics.page(), media_type="text/plain; version=0.0.4")

    async def execution_parameters(self, _request: Request) -> Response:
        """What the model's execution_parameters_fn gives; 404 without it."""
        found = self._pool.execution_parameters
        if found is None:
            return text_response("the model's code has no execution_parameters_fn", 404)
        return Response(msgspec.json.encode(found), media_type="application/json")

    async def invocations(self, request: Request) -> Response:
        """Answer one request by the model."""
        began = self._clock.now()
        self.in_flight += 1
        try:
            response = await self._invoked(request)
        finally:
            self.in_flight -= 1
        self._metrics.answered(response.status_code, self._clock.now() - began)
        return response

    async def _invoked(self, request: Request) -> Response:
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        try:
            answer = await self._pool.invoke(Asked(headers=shown(request.headers), body=body))
        except PoolBusyError as error:
            return text_response(str(error), 503)
        except WorkerLostError as error:
            return text_response(str(error), 504 if error.timed_out else 502)
        headers = {**passed(answer.headers), "content-type": one_line(answer.content_type)}
        return Response(answer.body, answer.status if 200 <= answer.status < 600 else 500, headers)

    async def _body(self, request: Request) -> bytes | Response:
        declared = request.headers.get("content-length", "0")
        refusal = text_response(
            f"the body has more than {self._max_bytes} bytes (SAGEMAKER_MAX_PAYLOAD_IN_MB)", 413
        )
        if declared.isdigit() and int(declared[:20]) > self._max_bytes:
            return refusal
        body = bytearray()
        try:
            async for piece in request.stream():
                body += piece
                if len(body) > self._max_bytes:
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
