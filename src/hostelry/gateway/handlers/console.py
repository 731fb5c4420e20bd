"""Requests for the web console, which are passed on to the process of the console.

Only that process knows who has signed in. A stream of events ends when its browser or the console
goes away.
"""

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.http.exchange import Exchange
from hostelry.http1.heads import build_request_head
from hostelry.http1.reply import Reply, UpstreamError
from hostelry.http1.upstream import Timeouts, UpstreamPool

CONSOLE = "console"
MAX_BODY_BYTES = 1024 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024  # streams are not limited
TIMEOUTS = Timeouts(total_s=600.0, connect_s=1.0, first_byte_s=60.0)
# `up` kills a console that hangs. That ends its streams, so that they need no short time limit.
STREAM_TIMEOUTS = Timeouts(total_s=7 * 86400.0, connect_s=1.0, first_byte_s=60.0)
STREAM = "/console/live"
METHODS = ("GET", "POST")
EVENTS = "text/event-stream"
PASSED = (
    "accept",
    "content-type",
    "cookie",
    "if-none-match",
    "origin",
    "sec-fetch-site",
    "x-forwarded-proto",
    "x-hostelry-csrf",
)
ANSWERED = (
    "cache-control",
    "content-security-policy",
    "content-type",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "etag",
    "location",
    "permissions-policy",
    "referrer-policy",
    "retry-after",
    "set-cookie",
    "x-content-type-options",
    "x-frame-options",
)


class ConsoleHandler(msgspec.Struct, frozen=True, kw_only=True):
    """Serves ``/console``: passes requests on to the process at `address`.

    `internal_key` proves to that process that the gateway asks. `is_secure` means that browsers
    connect by HTTPS.
    """

    pool: UpstreamPool
    address: str
    internal_key: str
    is_secure: bool = False

    def admit(self, request: HttpRequest) -> bool:
        """False: only the console finds out who asks. Raises ServiceError 405 and 413."""
        _check(request, _length(request))
        return False

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Pass a request and its answer on. Raises ServiceError before the answer's first byte."""
        request = exchange.request
        _check(request, len(request.body))
        timeouts = STREAM_TIMEOUTS if request.path == STREAM else TIMEOUTS
        try:
            head = self._head(request)
            reply = await self.pool.send(self.address, (head, request.body), timeouts)
        except UpstreamError as error:
            raise _away(error) from error
        try:
            await _pass_on(exchange, reply)
        except UpstreamError as error:
            if not exchange.started:
                raise _away(error) from error
        finally:
            reply.close()

    def error_answer(
        self, error: ServiceError, request: HttpRequest, request_id: str
    ) -> HttpResponse:
        """Format `error` as text that no browser shows as a page."""
        headers = {
            "Content-Type": "text/plain; charset=utf-8",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return HttpResponse(error.http_status, headers, f"{error.message}\n".encode())

    def _head(self, request: HttpRequest) -> bytes:
        given = request.headers
        target = f"{request.path}?{request.query}" if request.query else request.path
        lines = {
            "Host": self.address.removeprefix("http://"),
            INTERNAL_KEY_HEADER: self.internal_key,
            "X-Forwarded-Host": given.get("host", ""),
            **({"x-forwarded-proto": "https"} if self.is_secure else {}),
            **{name: given[name] for name in PASSED if name in given},
        }
        return build_request_head(request.method, target, lines, len(request.body))


def _check(request: HttpRequest, num_bytes: int) -> None:
    if request.method not in METHODS:
        raise ServiceError("MethodNotAllowed", f"{request.method}: use GET or POST.", 405)
    if num_bytes > MAX_BODY_BYTES:
        text = f"A body of {num_bytes} bytes; the console takes {MAX_BODY_BYTES} at most."
        raise ServiceError("RequestEntityTooLarge", text, 413)


def _length(request: HttpRequest) -> int:
    text = request.headers.get("content-length", "0")
    return int(text) if text.isdecimal() else 0


async def _pass_on(exchange: Exchange, reply: Reply) -> None:
    given = reply.headers
    headers = {name: given[name] for name in ANSWERED if name in given}
    if not given.get("content-type", "").startswith(EVENTS):
        body = await reply.body(MAX_ANSWER_BYTES)
        exchange.respond(HttpResponse(reply.status, headers, body))
        return
    exchange.start(reply.status, headers)
    await reply.pass_on(exchange.send_now, exchange.wait_for_room)
    exchange.finish()


def _away(error: UpstreamError) -> ServiceError:
    return ServiceError(
        "ServiceUnavailable",
        f"The console's process does not answer ({error}). It is started again within seconds; "
        "reload then.",
        503,
    )
