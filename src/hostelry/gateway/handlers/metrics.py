"""``GET /metrics`` and ``GET /metrics/copies``: Prometheus pages, read from control."""

from urllib.parse import parse_qsl, urlencode

from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.http.exchange import Exchange, header_lines
from hostelry.dataplane.http.reply import UpstreamError
from hostelry.dataplane.http.upstream import Timeouts, Upstream
from hostelry.gateway.handlers.callers import Callers

PATHS = {"/metrics": "/internal/metrics", "/metrics/copies": "/internal/copy-metrics"}
TIMEOUTS = Timeouts(total_s=10.0, connect_s=1.0)
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class MetricsHandler:
    """Serves the pages, which need the OpenAI key.

    Args:
        callers: identifies callers.
        pool: connections, to control among others.
        address: control's ``http://host:port``.
        internal_key: of calls between the platform's own processes.
    """

    def __init__(self, callers: Callers, pool: Upstream, address: str, internal_key: str) -> None:
        self._callers = callers
        self._pool = pool
        self._address = address
        ours = {"Host": address.removeprefix("http://"), "X-Hostelry-Key": internal_key}
        self._headers = header_lines(ours)

    def admit(self, request: HttpRequest) -> bool:
        """True; raises ServiceError 401 without the key."""
        if not self._callers.holds_openai_key(request):
            raise ServiceError(
                "Unauthorized",
                "Send `Authorization: Bearer KEY` with the key that `hostelry env` prints as "
                "OPENAI_API_KEY.",
                401,
            )
        return True

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Answer one scrape; raises ServiceError where control cannot be reached."""
        request = exchange.request
        self.admit(request)
        exchange.verified()
        if request.method not in ("GET", "HEAD"):
            raise ServiceError(
                "MethodNotAllowed", f"{request.method} {request.path}: use GET.", 405
            )
        # Encoded again: nothing but parameters comes from the caller.
        query = urlencode(parse_qsl(request.query, keep_blank_values=True))
        target = PATHS[request.path] + (f"?{query}" if query else "")
        exchange.respond(await self._ask(target.encode()))

    def error_answer(
        self, error: ServiceError, request: HttpRequest, request_id: str
    ) -> HttpResponse:
        """`error` as a line of text."""
        headers = {"Content-Type": "text/plain; charset=utf-8", "x-request-id": request_id}
        if error.http_status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return HttpResponse(error.http_status, headers, f"{error.message}\n".encode())

    async def _ask(self, target: bytes) -> HttpResponse:
        head = b"GET %b HTTP/1.1\r\n%b\r\n" % (target, self._headers)
        try:
            reply = await self._pool.send(self._address, (head, b""), TIMEOUTS, MAX_ANSWER_BYTES)
            try:
                content_type = reply.headers.get("content-type", "text/plain")
                body = await reply.body(MAX_ANSWER_BYTES)
                return HttpResponse(reply.status, {"Content-Type": content_type}, body)
            finally:
                reply.close()
        except UpstreamError:
            message = "The control plane is restarting; what it counts begins again from zero."
            raise ServiceError("ServiceUnavailable", message, 503) from None
