"""The OpenAI routes: the same models, for OpenAI's clients.

Source: OpenAI API reference, Models, Chat, Completions, Error codes.
"""

from typing import Any
from urllib.parse import unquote

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.base.json import decode
from hostelry.domain.at_zero import AtZero
from hostelry.gateway.balancing.destination import NoCopyError
from hostelry.gateway.balancing.load_balancer import InFlightRequest, LoadBalancer
from hostelry.gateway.handlers.admission import Admitted, admit
from hostelry.gateway.handlers.callers import Callers
from hostelry.gateway.handlers.invocation_head import (
    ADAPTER_ALIAS,
    ADAPTER_IDENTIFIER,
    noted,
    post_head,
    terms,
)
from hostelry.gateway.handlers.openai_model import find_model
from hostelry.gateway.http.exchange import Exchange
from hostelry.gateway.http.reply import ConnectError, DeadlineError, UpstreamError
from hostelry.gateway.http.upstream import Timeouts
from hostelry.gateway.metering.meter import Measurement
from hostelry.gateway.queueing.decisions import NotServedError
from hostelry.gateway.queueing.pending_queue import PendingQueue
from hostelry.gateway.route_table import Destination
from hostelry.gateway.routes import RouteSource

COMPLETION_PATHS = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank",
    "/v1/score",
)  # fmt: skip
EVENT_STREAM = "text/event-stream"


class _Asked(msgspec.Struct):
    """The only member of a completion request that the gateway reads."""

    model: str


class OpenAiHandler:
    """Serves ``/v1/models``, the generating routes and those for vectors."""

    def __init__(
        self,
        callers: Callers,
        routes: RouteSource,
        copies: LoadBalancer,
        pending_queue: PendingQueue,
        timeout_s: float,
        max_answer_bytes: int,
    ) -> None:
        self._callers = callers
        self._routes = routes
        self._copies = copies
        self._pending_queue = pending_queue
        self._timeouts = Timeouts(total_s=timeout_s)
        self._max_answer_bytes = max_answer_bytes

    def admit(self, request: HttpRequest) -> bool:
        """True; raises ServiceError 401 without the key."""
        if not self._callers.holds_openai_key(request):
            raise ServiceError(
                "invalid_api_key",
                "Incorrect API key provided. Send `Authorization: Bearer KEY` with the key that "
                "`hostelry env` prints as OPENAI_API_KEY.",
                401,
            )
        return True

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Answer one request; raises ServiceError before the answer's first byte."""
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
        """`error` in OpenAI's format."""
        body = msgspec.json.encode({"error": _error_object(error)})
        headers = {"Content-Type": "application/json", "x-request-id": request_id}
        return HttpResponse(error.http_status, headers, body)

    def _models(self, request: HttpRequest, request_id: str) -> HttpResponse:
        table, owner = self._routes.table, self._callers.owner
        if request.path == "/v1/models":
            _check_method(request, "GET")
            models = [_model_object(it.component_name or "") for it in table.llms(owner.account)]
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
        name = asked_model(exchange.request.body)
        admitted = await self._admit(exchange.request, name, request_id)
        try:
            await self._pass_on(exchange, admitted, request_id)
        finally:
            admitted.in_flight.close()
            admitted.measured.end()

    async def _admit(self, request: HttpRequest, name: str, request_id: str) -> Admitted:
        """The request on a copy, after a wait if none was ready."""

        def find() -> Destination:
            destination = find_model(self._routes.table, self._callers.owner, name)
            if not destination.copies:
                raise NoCopyError(destination)
            return destination

        async def send(destination: Destination, measured: Measurement) -> InFlightRequest:
            head = completion_head(request, name, destination, request_id)
            return await self._send(head, request.body, destination, measured)

        limit_s = self._timeouts.total_s
        pending = self._pending_queue.arrived(find, len(request.body), limit_s)
        try:
            return await admit(self._pending_queue, pending, send)
        except NotServedError as error:
            raise ServiceError("no_capacity", error.message, 503) from None
        except (NoCopyError, ConnectError):
            raise ServiceError(
                "no_capacity", f"No copy of model `{name}` can take the request now.", 503
            ) from None

    async def _send(
        self, head: bytes, body: bytes, destination: Destination, measured: Measurement
    ) -> InFlightRequest:
        try:
            return await self._copies.send(
                destination.copies,
                destination.routing,
                (head, body),
                self._timeouts,
                adapter=destination.adapter_id,
                chosen=measured.chosen,
            )
        except ConnectError:
            if destination.at_zero is AtZero.COMPAT:
                measured.got_no_answer()
            raise
        except UpstreamError as error:
            measured.got_no_answer()
            raise _failure(error) from error

    async def _pass_on(self, exchange: Exchange, admitted: Admitted, request_id: str) -> None:
        reply, measured = admitted.in_flight.reply, admitted.measured
        content_type = reply.headers.get("content-type", "application/json")
        headers = {"Content-Type": content_type, "x-request-id": request_id, **noted(reply.headers)}
        if "retry-after" in reply.headers:
            headers["Retry-After"] = reply.headers["retry-after"]
        try:
            if not content_type.startswith(EVENT_STREAM):
                body = await reply.body(self._max_answer_bytes)
                measured.answered()
                if not 200 <= reply.status < 300:
                    measured.refused_by_model(reply.status)
                exchange.respond(HttpResponse(reply.status, headers, body))
                return
            chunk = await reply.next_chunk()
        except UpstreamError as error:
            measured.got_no_answer()
            raise _failure(error) from error
        measured.first_chunk()
        exchange.start(reply.status, headers | {"Cache-Control": "no-cache"})
        try:
            while chunk is not None:
                await exchange.send(chunk)
                chunk = await reply.next_chunk()
            measured.answered()
        except UpstreamError as error:
            measured.stream_broke()
            event = msgspec.json.encode({"error": _error_object(_failure(error))})
            await exchange.send(b"data: %b\n\n" % event)
        exchange.finish()


def completion_head(
    request: HttpRequest, name: str, destination: Destination, request_id: str
) -> bytes:
    """The head of `request`, for the model `name`, to a copy of `destination`."""
    return post_head(
        request.path,
        len(request.body),
        (
            ("Content-Type", request.headers.get("content-type", "application/json")),
            ("Accept", request.headers.get("accept")),
            ("X-Hostelry-Model", name),
            (ADAPTER_IDENTIFIER, destination.adapter_id),
            (ADAPTER_ALIAS, destination.adapter_alias),
            ("x-request-id", request_id),
            *terms(request),
        ),
    )


def asked_model(body: bytes) -> str:
    """The `model` of a completion request; raises ServiceError 400."""
    try:
        return decode(body, _Asked).model
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ServiceError(
            "invalid_request_body",
            f"The body must be a JSON object whose `model` is a string: {error}.",
            400,
            {"param": "model"},
        ) from None


def _check_method(request: HttpRequest, method: str) -> None:
    if request.method != method:
        raise ServiceError(
            "method_not_allowed", f"{request.method} {request.path:.200}: use {method}.", 405
        )


def _failure(error: UpstreamError) -> ServiceError:
    if isinstance(error, DeadlineError):
        return ServiceError("timeout", "The model did not finish its answer in time.", 504)
    return ServiceError("model_failed", "The model server broke off before its answer ended.", 502)


def _error_object(error: ServiceError) -> dict[str, Any]:
    kind = "invalid_request_error" if error.http_status < 500 else "server_error"
    return {
        "message": error.message,
        "type": kind,
        "param": error.members.get("param"),
        "code": error.code,
    }


def _model_object(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "hostelry"}


def _json(value: Any, request_id: str) -> HttpResponse:
    headers = {"Content-Type": "application/json", "x-request-id": request_id}
    return HttpResponse(200, headers, msgspec.json.encode(value))
