"""The handler of a cell router: each request goes unchanged to the cell that serves it.

Signatures cover Host and the path as they came, so both are passed on as they are. A cell that is
dead or hangs costs its own requests alone: each cell has its own connections, and a limit of
requests under way.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from hostelry.aws.call import serialize_error
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.base.ids import new_request_id
from hostelry.cells.assignment import Assignment, Cell
from hostelry.cells.request_claims import read_claims
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import HttpRefusedError
from hostelry.dataplane.openai import error_response
from hostelry.gateway.dispatcher import OWN_PATHS, UNREAD, answer_own_path
from hostelry.http1.heads import build_request_head
from hostelry.http1.reply import ConnectError, Reply, UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream

LOG = logging.getLogger(__name__)
# Cells have time limits. These limits end requests to a cell that hangs.
TIMEOUTS: Final = Timeouts(total_s=3900.0, connect_s=2.0, first_byte_s=900.0)
WHOLE_BELOW_BYTES = 1024 * 1024
MAX_IN_FLIGHT = 4096  # of each cell
HOP_HEADERS = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
OWN_HEADERS = HOP_HEADERS | {"date", "server"}  # which the router's server writes itself


class CellRouter:
    """Passes requests on to cells.

    Args:
        assignment: returns the current assignment.
        pool: connections to cells.
        max_in_flight: limit of requests under way to each cell. More are answered with 503.
    """

    def __init__(
        self,
        assignment: Callable[[], Assignment],
        pool: Upstream,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._assignment = assignment
        self._pool = pool
        self._max_in_flight = max_in_flight
        self.in_flight: Counter[str] = Counter()

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request. Never raises, except when cancelled."""
        request = exchange.request
        if request.path in OWN_PATHS:
            exchange.respond(answer_own_path(request))
            return
        try:
            cell = self._assignment().find_cell(read_claims(request))
            await self._pass_on(exchange, cell)
        except ServiceError as error:
            if not exchange.started:
                exchange.respond(error_answer(error, request))
        except Exception:
            LOG.exception("%s %s", request.method, request.path)
            if not exchange.started:
                failure = ServiceError(
                    "InternalFailure", "The cell router failed; see its log.", 500
                )
                exchange.respond(error_answer(failure, request))

    def refusal_answer(self, refusal: HttpRefusedError) -> HttpResponse:
        """The answer to bytes that did not become a request."""
        error = ServiceError("ValidationException", refusal.reason, refusal.status)
        return error_answer(error, refusal.request or UNREAD)

    async def _pass_on(self, exchange: Exchange, cell: Cell) -> None:
        if self.in_flight[cell.name] >= self._max_in_flight:
            raise unavailable(f"{self._max_in_flight} requests to the cell are under way")
        self.in_flight[cell.name] += 1
        try:
            reply = await self._send(exchange.request, cell)
            try:
                await pass_answer_on(exchange, reply)
            finally:
                reply.close()
        except ConnectError as error:
            LOG.warning("cell %s: %s", cell.name, error)
            raise unavailable("its cell cannot be reached") from error
        except UpstreamError as error:
            LOG.warning(
                "cell %s: %s %s: %s",
                cell.name,
                exchange.request.method,
                exchange.request.path,
                error,
            )
            raise unavailable(
                "its cell did not answer; the request may have been executed"
            ) from error
        finally:
            self.in_flight[cell.name] -= 1

    async def _send(self, request: HttpRequest, cell: Cell) -> Reply:
        target = f"{request.path}?{request.query}" if request.query else request.path
        given = {name: value for name, value in request.headers.items() if name not in HOP_HEADERS}
        head = build_request_head(request.method, target, given, len(request.body))
        return await self._pool.send(cell.url, (head, request.body), TIMEOUTS)


async def pass_answer_on(exchange: Exchange, reply: Reply) -> None:
    """Answer with `reply`: small answers whole, others as they come. Raises UpstreamError."""
    headers = {name: value for name, value in reply.headers.items() if name not in OWN_HEADERS}
    length = reply.headers.get("content-length", "")
    if (
        length.isdecimal() and int(length) < WHOLE_BELOW_BYTES
    ) or exchange.request.method == "HEAD":
        body = await reply.body(WHOLE_BELOW_BYTES)
        exchange.respond(HttpResponse(reply.status, headers, body))
        return
    exchange.start(reply.status, headers)
    await reply.pass_on(exchange.send_now, exchange.wait_for_room)
    exchange.finish()


def unavailable(why: str) -> ServiceError:
    """The error of a request whose cell does not serve it now."""
    return ServiceError("ServiceUnavailable", f"The request is not served now: {why}.", 503)


def error_answer(error: ServiceError, request: HttpRequest) -> HttpResponse:
    """`error` in the format of the API that the request was for."""
    request_id = new_request_id()
    if request.path.startswith("/v1/"):
        answer = error_response(error, request_id)
    else:
        answer = serialize_error(error, None, request_id, request)
    later = {"Retry-After": "1"} if answer.status == 503 else {}
    return HttpResponse(answer.status, {**answer.headers, **later}, answer.body)
