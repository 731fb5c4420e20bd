"""Calls between the platform's processes: a whole request, and its whole answer."""

from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.http1.heads import build_request_head
from hostelry.http1.upstream import Timeouts, Upstream


async def call(
    pool: Upstream, address: str, request: HttpRequest, timeouts: Timeouts, max_answer_bytes: int
) -> HttpResponse:
    """Send `request` to the server at `address`, and return its answer. Raises UpstreamError."""
    target = f"{request.path}?{request.query}" if request.query else request.path
    headers = {"Host": "localhost", **request.headers}  # servers at an address do not check it
    head = build_request_head(request.method, target, headers, len(request.body))
    reply = await pool.send(address, (head, request.body), timeouts, max_answer_bytes)
    try:
        body = await reply.body(max_answer_bytes)
        return HttpResponse(reply.status, reply.headers, body)
    finally:
        reply.close()
