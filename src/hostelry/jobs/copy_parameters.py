"""A copy's answer to GET /execution-parameters: how many requests it wants at once, and of what."""

from hostelry.dataplane.balancing.load_balancer import head_end
from hostelry.dataplane.http.reply import UpstreamError
from hostelry.dataplane.http.upstream import Timeouts, UpstreamPool
from hostelry.domain.routes import CopyRoute

TIMEOUTS = Timeouts(total_s=4.0, connect_s=1.0)
MAX_BYTES = 16 * 1024


async def execution_parameters(pool: UpstreamPool, copy: CopyRoute) -> bytes | None:
    """The body of the answer; None where the copy has none."""
    head = b"GET /execution-parameters HTTP/1.1\r\nHost: localhost\r\n" + head_end(copy.key)
    try:
        reply = await pool.send(copy.address, (head, b""), TIMEOUTS)
        try:
            body = await reply.body(MAX_BYTES)
        finally:
            reply.close()
    except UpstreamError:
        return None
    return body if reply.status == 200 else None
