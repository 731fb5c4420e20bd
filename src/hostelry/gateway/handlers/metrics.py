"""``GET /metrics`` and ``GET /metrics/copies``: Prometheus pages, read from control."""

from urllib.parse import parse_qsl, urlencode

from hostelry.base.errors import ServiceError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.http.exchange import Exchange
from hostelry.gateway.handlers.callers import Callers
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream

PATHS = {"/metrics": "/internal/metrics", "/metrics/copies": "/internal/copy-metrics"}
TIMEOUTS = Timeouts(total_s=10.0, connect_s=1.0)
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class MetricsHandler:
    """Serves the pages to callers with the OpenAI key.

    Args:
        callers: identifies callers.
        pool: connections, to control among others.
        address: control's ``http://host:port``.
        internal_key: the key of calls between the platform's processes.
    """

    def __init__(self, callers: Callers, pool: Upstream, address: str, internal_key: str) -> None:
        self._callers = callers
        self._pool = pool
        self._address = address
        self._headers = {INTERNAL_KEY_HEADER: internal_key}

    def admit(self, request: HttpRequest) -> bool:
        """Return True. Raises ServiceError 401 without the key."""
        if not self._callers.holds_openai_key(request):
            raise ServiceError(
                "Unauthorized",
                "Send `Authorization: Bearer KEY` with the key that `hostelry env` prints as "
                "OPENAI_API_KEY.",
                401,
            )
        return True

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Answer one scrape. Raises ServiceError if control cannot be reached."""
        request = exchange.request
        self.admit(request)
        exchange.verified()
        if request.method not in ("GET", "HEAD"):
            raise ServiceError(
                "MethodNotAllowed", f"{request.method} {request.path}: use GET.", 405
            )
        # The query is parsed and encoded again, so that the caller can pass on only parameters.
        query = urlencode(parse_qsl(request.query, keep_blank_values=True))
        path = PATHS[request.path]
        exchange.respond(await self._ask(HttpRequest("GET", path, query, self._headers)))

    def error_answer(
        self, error: ServiceError, request: HttpRequest, request_id: str
    ) -> HttpResponse:
        """Format `error` as a line of text."""
        headers = {"Content-Type": "text/plain; charset=utf-8", "x-request-id": request_id}
        if error.http_status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return HttpResponse(error.http_status, headers, f"{error.message}\n".encode())

    async def _ask(self, request: HttpRequest) -> HttpResponse:
        try:
            answer = await call(self._pool, self._address, request, TIMEOUTS, MAX_ANSWER_BYTES)
            content_type = answer.headers.get("content-type", "text/plain")
            return HttpResponse(answer.status, {"Content-Type": content_type}, answer.body)
        except UpstreamError:
            message = "The control plane is restarting; what it counts begins again from zero."
            raise ServiceError("ServiceUnavailable", message, 503) from None
