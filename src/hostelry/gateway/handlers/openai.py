"""The OpenAI routes: the same models, for OpenAI's clients.

Source: OpenAI API reference, Models, Chat, Completions, Error codes.
"""

from typing import Any
from urllib.parse import unquote

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.invocation_head import STEPS, find_note_headers
from hostelry.dataplane.openai import error_object, error_response, find_model
from hostelry.dataplane.routes import RouteSource
from hostelry.dataplane.tracing.call_ring import CallRing
from hostelry.dataplane.tracing.call_trace import MAX_ERROR_CHARACTERS, CallTrace
from hostelry.gateway.handlers.admission import SentRequest
from hostelry.gateway.handlers.callers import Callers, bind_principal
from hostelry.gateway.handlers.completions import (
    Completions,
    build_no_answer_error,
    parse_model_name,
)
from hostelry.http1.reply import UpstreamError

COMPLETION_PATHS = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank",
    "/v1/score",
)  # fmt: skip
EVENT_STREAM = "text/event-stream"


class OpenAiHandler:
    """Serves ``/v1/models``, and the routes that generate text, vectors and scores."""

    def __init__(
        self,
        callers: Callers,
        routes: RouteSource,
        completions: Completions,
        max_answer_bytes: int,
        calls: CallRing,
    ) -> None:
        self._calls = calls
        self._callers = callers
        self._routes = routes
        self._completions = completions
        self._max_answer_bytes = max_answer_bytes

    def admit(self, request: HttpRequest) -> bool:
        """Return True. Raises ServiceError 401 without the key."""
        check_openai_key(self._callers, request)
        return True

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Answer one request. Raises ServiceError before the first byte of the answer."""
        request = exchange.request
        self.admit(request)
        exchange.verified()
        if request.path in COMPLETION_PATHS:
            _check_method(request, "POST")
            await self._complete(exchange, request_id)
        else:
            exchange.respond(self._models(request, request_id))

    def error_answer(
        self, error: ServiceError, request: HttpRequest, request_id: str
    ) -> HttpResponse:
        """Format `error` as OpenAI's API does."""
        return error_response(error, request_id)

    def _models(self, request: HttpRequest, request_id: str) -> HttpResponse:
        table, owner = self._routes.table, self._callers.owner
        if request.path == "/v1/models":
            _check_method(request, "GET")
            models = [_model_object(name) for name in table.llms(owner.account)]
            return _json({"object": "list", "data": models}, request_id)
        if not request.path.startswith("/v1/models/"):
            raise ServiceError(
                "unknown_url", f"Unknown request URL: {request.method} {request.path:.200}.", 404
            )
        _check_method(request, "GET")
        name = unquote(request.path.removeprefix("/v1/models/"))
        find_model(table, owner, name)
        return _json(_model_object(name), request_id)

    async def _complete(self, exchange: Exchange, request_id: str) -> None:
        exchange.request = request = bind_principal(exchange.request, None)
        owner = self._callers.owner
        trace = exchange.trace = self._calls.begin(request_id, owner.account, request)
        trace.operation = request.path
        trace.endpoint = name = parse_model_name(request.body)
        sent = await self._completions.send_when_ready(request, owner, name, request_id, trace)
        try:
            await self._pass_on(exchange, sent, trace)
        finally:
            sent.in_flight.close()
            sent.measured.end()

    async def _pass_on(self, exchange: Exchange, sent: SentRequest, trace: CallTrace) -> None:
        reply, measured = sent.in_flight.reply, sent.measured
        if STEPS in reply.headers:
            trace.set_steps(reply.headers[STEPS])
        content_type = reply.headers.get("content-type", "application/json")
        headers = {"Content-Type": content_type, "x-request-id": trace.request_id}
        headers |= find_note_headers(reply.headers)
        if "retry-after" in reply.headers:
            headers["Retry-After"] = reply.headers["retry-after"]
        try:
            if not content_type.startswith(EVENT_STREAM):
                body = await reply.body(self._max_answer_bytes)
                measured.record_answer(body, reply.head_ns)
                if not 200 <= reply.status < 300:
                    measured.record_model_error(reply.status)
                    text = body[:MAX_ERROR_CHARACTERS].decode("utf-8", "replace")
                    trace.fail(reply.status, "ModelError", text)
                exchange.respond(HttpResponse(reply.status, headers, body))
                return
            await reply.arrive()
        except UpstreamError as error:
            measured.record_no_answer()
            raise build_no_answer_error(error) from error
        measured.record_first_chunk()
        exchange.start(reply.status, headers | {"Cache-Control": "no-cache"})

        def take(chunk: bytes) -> bool:
            measured.record_chunk(chunk)
            return exchange.send_now(chunk)

        try:
            await reply.pass_on(take, exchange.wait_for_room)
            measured.record_answer()
        except UpstreamError as error:
            measured.record_broken_stream()
            event = msgspec.json.encode({"error": error_object(build_no_answer_error(error))})
            await exchange.send(b"data: %b\n\n" % event)
        exchange.finish()


def check_openai_key(callers: Callers, request: HttpRequest) -> None:
    """Raise ServiceError 401 without the key."""
    if not callers.holds_openai_key(request):
        raise ServiceError(
            "invalid_api_key",
            "Incorrect API key provided. Send `Authorization: Bearer KEY` with the key that "
            "`hostelry env` prints as OPENAI_API_KEY.",
            401,
        )


def _check_method(request: HttpRequest, method: str) -> None:
    if request.method != method:
        raise ServiceError(
            "method_not_allowed", f"{request.method} {request.path:.200}: use {method}.", 405
        )


def _model_object(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "hostelry"}


def _json(value: Any, request_id: str) -> HttpResponse:
    headers = {"Content-Type": "application/json", "x-request-id": request_id}
    return HttpResponse(200, headers, msgspec.json.encode(value))
