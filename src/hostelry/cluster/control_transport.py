"""Control for httpx clients of this host's processes: another one while own control is away."""

import httpx

from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream

MAX_ANSWER_BYTES = 64 * 1024 * 1024
NO_LIMIT_S = 60.0  # of a client without a time limit
CONNECT_S = 2.0
ENCODED = frozenset({"connection", "keep-alive", "transfer-encoding"})


class ControlTransport(httpx.AsyncBaseTransport):
    """Sends whole requests by `upstream` to own control at `address`."""

    def __init__(self, upstream: Upstream, address: str) -> None:
        self._upstream = upstream
        self._address = address

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """One request's answer, whole. Raises httpx.ConnectError if no control answers."""
        body = await request.aread()
        limit_s = request.extensions.get("timeout", {}).get("read") or NO_LIMIT_S
        head = b"%b %b HTTP/1.1\r\n" % (request.method.encode(), request.url.raw_path)
        head += b"".join(b"%b: %b\r\n" % field for field in request.headers.raw) + b"\r\n"
        timeouts = Timeouts(total_s=limit_s, connect_s=min(CONNECT_S, limit_s))
        try:
            reply = await self._upstream.send(
                self._address, (head, body), timeouts, MAX_ANSWER_BYTES
            )
            try:
                content = await reply.body(MAX_ANSWER_BYTES)
            finally:
                reply.close()
        except UpstreamError as error:
            raise httpx.ConnectError(str(error), request=request) from None
        headers = {name: it for name, it in reply.headers.items() if name not in ENCODED}
        return httpx.Response(reply.status, headers=headers, content=content, request=request)
