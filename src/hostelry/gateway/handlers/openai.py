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
from hostelry.dataplane.route_table import RouteTable
from hostelry.dataplane.routes import RouteSource
from hostelry.dataplane.tracing.call_ring import CallRing
from hostelry.dataplane.tracing.call_trace import MAX_ERROR_CHARACTERS, CallTrace
from hostelry.domain.scope import Scope
from hostelry.gateway.handlers.admission import SentRequest
from hostelry.gateway.handlers.callers import Callers, bind_principal
from hostelry.gateway.handlers.completions import (
    Completions,
    build_no_answer_error,
    parse_model_name,
)
from hostelry.gateway.quota_gate import QuotaGate, describe_completion, name_principal
from hostelry.http1.reply import UpstreamError
from hostelry.permissions.needs.invocation import STREAMED, WHOLE, InvokedTarget

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
        quotas: QuotaGate,
    ) -> None:
        self._calls = calls
        self._quotas = quotas
        self._callers = callers
        self._routes = routes
        self._completions = completions
        self._max_answer_bytes = max_answer_bytes

    def admit(self, request: HttpRequest) -> bool:
        """Return True. Raises ServiceError 401 without a valid key."""
        self._callers.find_bearer(request)
        return True

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Answer one request. Raises ServiceError before the first byte of the answer."""
        request = exchange.request
        asker = Asker(self._callers, exchange, self._routes.table)
        exchange.verified()
        if request.path in COMPLETION_PATHS:
            _check_method(request, "POST")
            await self._complete(exchange, asker, request_id)
        else:
            exchange.respond(self._models(request, asker, request_id))

    def error_answer(
        self, error: ServiceError, request: HttpRequest, request_id: str
    ) -> HttpResponse:
        """Format `error` as OpenAI's API does."""
        return error_response(error, request_id)

    def _models(self, request: HttpRequest, asker: "Asker", request_id: str) -> HttpResponse:
        if request.path == "/v1/models":
            _check_method(request, "GET")
            models = [_model_object(name) for name in asker.list_models()]
            return _json({"object": "list", "data": models}, request_id)
        if not request.path.startswith("/v1/models/"):
            raise ServiceError(
                "unknown_url", f"Unknown request URL: {request.method} {request.path:.200}.", 404
            )
        _check_method(request, "GET")
        name = unquote(request.path.removeprefix("/v1/models/"))
        asker.check_model(name)
        find_model(self._routes.table, asker.scope, name)
        return _json(_model_object(name), request_id)

    async def _complete(self, exchange: Exchange, asker: "Asker", request_id: str) -> None:
        owner = asker.scope
        exchange.request = request = bind_principal(exchange.request, asker.caller.principal)
        trace = exchange.trace = self._calls.begin(request_id, owner.account, request)
        trace.operation = request.path
        name, streams = parse_model_name(request.body)
        trace.endpoint = name
        asker.check_model(name, streams=streams)
        if self._quotas.index is None:
            await self._send(exchange, owner, name, request_id)
            return
        caller = asker.caller
        principal, key = name_principal(caller), caller.access_key_id
        call = describe_completion(self._routes.table, owner, principal, name, key)
        with self._quotas.admit(call, exchange, is_openai=True):
            await self._send(exchange, owner, name, request_id)

    async def _send(self, exchange: Exchange, owner: Scope, name: str, request_id: str) -> None:
        request, trace = exchange.request, exchange.trace
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


class Asker:
    """The caller of one request with an OpenAI key, and the models that it may call.

    Raises ServiceError 401 without a valid key.
    """

    def __init__(self, callers: Callers, exchange: Exchange, table: RouteTable) -> None:
        found = callers.find_bearer(exchange.request)
        self.caller = found.caller
        exchange.note_caller(found.caller, callers.owner.region)
        self.scope = Scope(found.caller.account, callers.owner.region)
        self._models = found.models
        self._permits = callers.permits
        self._exchange = exchange
        self._table = table

    def list_models(self) -> list[str]:
        """The names of the LLMs that the caller may call, sorted."""
        return [it for it in self._table.llms(self.scope.account) if self.may_call(it)]

    def check_model(self, name: str, *, streams: bool = False) -> None:
        """Raise ServiceError model_not_found (404) unless the caller may call the model.

        The answer is the same if the model does not exist.
        """
        if not self.may_call(name, STREAMED if streams else WHOLE):
            raise ServiceError(
                "model_not_found",
                f"The model `{name:.300}` does not exist, or this key may not call it. GET"
                " /v1/models lists the models that it may call.",
                404,
                {"param": "model"},
            )

    def may_call(self, name: str, operation: str = WHOLE) -> bool:
        """Whether the caller's policies and the key allow an operation on a model."""
        if self._models and name not in self._models:
            return False
        component = name.partition(":")[0]
        found = self._table.llm(self.scope, name) or self._table.llm(self.scope, component)
        scope = self.scope if found is None else found.scope
        target = InvokedTarget(
            endpoint="" if found is None else found.endpoint_name,
            component=component if found is None else found.component_name or "",
        )
        permits, exchange = self._permits, self._exchange
        return permits.find_refusal(self.caller, exchange, scope, operation, target) is None


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
