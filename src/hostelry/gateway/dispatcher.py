"""The dispatcher: routes each request to the handler of its API, and answers every failure."""

import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from hostelry import __version__
from hostelry.aws.runtime import is_async_path
from hostelry.base.errors import ServiceError
from hostelry.base.guards import find_foreign_page
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.base.ids import new_request_id
from hostelry.base.logging import about_request, no_request
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import HttpRefusedError
from hostelry.dataplane.tracing.call_ring import CallRing
from hostelry.dataplane.tracing.call_trace import NO_TRACE
from hostelry.gateway.handlers.console import CONSOLE
from hostelry.gateway.handlers.metrics import PATHS as METRICS_PATHS
from hostelry.gateway.handlers.openai_batches import PATHS as BATCH_PATHS
from hostelry.gateway.handlers.traces import TRACES

LOG = logging.getLogger(__name__)
OWN_PATHS = frozenset({"/ping", "/health"})
UNREAD = HttpRequest("POST", "/")


class ApiHandler(Protocol):
    """One API of the gateway."""

    def admit(self, request: HttpRequest) -> bool:
        """True if the head of `request` proves who sends it, before its body is read.

        Raises ServiceError if no body can make the request acceptable.
        """
        ...

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Answer the exchange. Raises ServiceError before the first byte of the answer."""
        ...

    def error_answer(
        self, error: ServiceError, request: HttpRequest, request_id: str
    ) -> HttpResponse:
        """Format `error` as this API does."""
        ...


def drop_tracebacks(error: BaseException) -> None:
    """Drop the tracebacks of `error` and of its causes.

    Their frames hold the request and often refer to the error. Without this call, the body of the
    request would stay in memory until the garbage collector breaks the cycle.
    """
    at: BaseException | None = error
    while at is not None:
        at.__traceback__ = None
        at = at.__cause__ or at.__context__


class Dispatcher(msgspec.Struct, frozen=True, kw_only=True):
    """Sends requests to their handlers, by path, and keeps the traces of calls in `calls`.

    Load balancers ask /health. It answers 503 with the reason that `why_unhealthy` returns, and 200
    without a reason. `own_names` is set if no key is required. Requests with another Host are then
    refused, because a web page may have sent them. `note_invocation` gets each invocation that is
    over, with its request id, for the audit trail.
    """

    runtime: ApiHandler
    openai: ApiHandler
    openai_batches: ApiHandler
    control: ApiHandler
    async_runtime: ApiHandler
    calls: CallRing
    metrics: ApiHandler | None = None
    traces: ApiHandler | None = None
    console: ApiHandler | None = None
    own_names: frozenset[str] | None = None
    note_invocation: Callable[[Exchange, str], None] | None = None
    why_unhealthy: Callable[[], str | None] = lambda: None

    def admit(self, request: HttpRequest) -> bool:
        """True if the head proves who sends it. Raises HttpRefusedError to refuse the body."""
        if request.path in OWN_PATHS:
            raise HttpRefusedError(413, f"{request.path} takes no body.", request)
        try:
            if self.own_names is not None:
                self._check_page(request, self.own_names)
            return self._handler(request.path).admit(request)
        except ServiceError as error:
            raise HttpRefusedError(error.http_status, error.message, request, error) from None

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request. Raises nothing, except when it is cancelled."""
        request = exchange.request
        if request.path in OWN_PATHS:
            exchange.respond(answer_own_path(request, self.why_unhealthy))
            return
        handler = self._handler(request.path)
        request_id = new_request_id()
        token = about_request(request_id)
        try:
            if self.own_names is not None:
                self._check_page(request, self.own_names)
            await handler.serve(exchange, request_id)
        except ServiceError as error:
            self._fail(exchange, handler, error, request_id)
            drop_tracebacks(error)
        except Exception as defect:
            LOG.exception("request %s: %s %s", request_id, request.method, request.path)
            failure = ServiceError(
                "InternalFailure",
                f"The gateway failed on request {request_id}; its log has the cause.",
                500,
            )
            self._fail(exchange, handler, failure, request_id)
            drop_tracebacks(defect)
        finally:
            if exchange.trace is not NO_TRACE:
                self.calls.end(exchange.trace, is_whole=exchange.finished)
            if self.note_invocation is not None and exchange.caller is not None:
                self.note_invocation(exchange, request_id)
            no_request(token)

    def refusal_answer(self, refusal: HttpRefusedError) -> HttpResponse:
        """Build the answer to bytes that are not a valid request."""
        request = refusal.request or UNREAD
        code = (
            "ValidationError" if request.path.startswith("/endpoints/") else "ValidationException"
        )
        if refusal.status == 503:
            code = "ServiceUnavailable"
        error = refusal.error or ServiceError(code, refusal.reason, refusal.status)
        answer = self._handler(request.path).error_answer(error, request, new_request_id())
        later = {"Retry-After": "1"} if refusal.status == 503 else {}
        return HttpResponse(refusal.status, {**answer.headers, **later}, answer.body)

    @staticmethod
    def _check_page(request: HttpRequest, own_names: frozenset[str]) -> None:
        headers = request.headers
        reason = find_foreign_page(headers.get("host", ""), headers.get("origin"), own_names)
        if reason is not None:
            raise ServiceError("AccessDeniedException", reason, 403)

    def _handler(self, path: str) -> ApiHandler:
        if path.startswith("/endpoints/"):
            return self.async_runtime if is_async_path(path) else self.runtime
        if path in METRICS_PATHS and self.metrics is not None:
            return self.metrics
        first = path.partition("/")[2].partition("/")[0]
        if first == TRACES and self.traces is not None:
            return self.traces
        if first == CONSOLE and self.console is not None:
            return self.console
        if path.startswith(BATCH_PATHS):
            return self.openai_batches
        return self.openai if path.startswith("/v1/") else self.control

    @staticmethod
    def _fail(
        exchange: Exchange, handler: ApiHandler, error: ServiceError, request_id: str
    ) -> None:
        """Answer with `error`. If the answer has begun, it is cut off instead."""
        exchange.trace.fail(error.http_status, error.code, error.message)
        exchange.error = error
        if not exchange.started:
            exchange.respond(handler.error_answer(error, exchange.request, request_id))


def answer_own_path(
    request: HttpRequest, why_unhealthy: Callable[[], str | None] = lambda: None
) -> HttpResponse:
    """Answer /ping and /health, which need no key.

    /ping shows that the process lives, and /health that it can serve requests.
    """
    headers = {"Content-Type": "application/json"}
    if request.method not in ("GET", "HEAD"):
        body = {"message": f"{request.method} {request.path}: use GET."}
        return HttpResponse(405, headers, msgspec.json.encode(body))
    reason = why_unhealthy() if request.path == "/health" else None
    if reason is not None:
        unhealthy = {"status": "unavailable", "reason": reason, "version": __version__}
        return HttpResponse(503, {**headers, "Retry-After": "1"}, msgspec.json.encode(unhealthy))
    return HttpResponse(200, headers, msgspec.json.encode({"status": "ok", "version": __version__}))
