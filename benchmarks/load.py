"""A load generator in a separate process: requests made beforehand, sent in a closed loop.

``python -m benchmarks.load`` reads a `Load` (msgspec JSON) from standard input and prints a
`Measured`. Each connection sends a request, waits for its whole answer and sends the next.
"""

import asyncio
import struct
import sys
from typing import cast

import httptools
import msgspec
import uvloop

from benchmarks.echo_model import STAMP
from hostelry.base.clock import monotonic_s
from hostelry.loadtest.tally import percentile

EVENT_STREAM = b"application/vnd.amazon.eventstream"
PRELUDE = struct.Struct(">II")


class Load(msgspec.Struct, kw_only=True):
    """The load to send. `requests` are whole messages, dealt out to connections in turn.

    Measuring starts after `warm_up_s` and lasts `duration_s`. With `streams` the answers are
    streams of time-stamped chunks, and each chunk's age on arrival is measured.
    """

    port: int
    requests: list[bytes]
    num_connections: int
    duration_s: float
    warm_up_s: float = 0.5
    streams: bool = False


class Measured(msgspec.Struct, kw_only=True):
    """Answers, or chunks of streams, in the measured time, with latencies in milliseconds.

    `total` also counts the answers of the warm-up.
    """

    count: int
    total: int
    errors: int
    per_s: float
    p50_ms: float
    p99_ms: float


class Connection(asyncio.Protocol):
    """One connection's closed loop."""

    def __init__(self, request: bytes, samples_s: list[tuple[float, float]], streams: bool) -> None:
        self.errors = 0
        self.stopped = False
        self._request = request
        self._samples_s = samples_s
        self._streams = streams
        self._framed = False
        self._stream = b""
        self._sent_at_s = 0.0
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes."""
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count an unexpected end as an error."""
        self.errors += not self.stopped

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note whether chunks are framed."""
        if name.lower() == b"content-type":
            self._framed = value == EVENT_STREAM

    def on_body(self, part: bytes) -> None:
        """Look for whole chunks."""
        if self._streams:
            self._stream += part
            self._take_chunks()

    def on_message_complete(self) -> None:
        """Note the duration of the request, and send the next one."""
        now_s = monotonic_s()
        if self._parser.get_status_code() not in (200, 202):
            self.errors += 1
        elif not self._streams:
            self._samples_s.append((now_s, now_s - self._sent_at_s))
        if self.stopped:
            self._transport.abort()
        else:
            self._send()

    def stop(self) -> None:
        """Send no more."""
        self.stopped = True
        self._transport.abort()

    def _send(self) -> None:
        self._sent_at_s = monotonic_s()
        self._transport.write(self._request)

    def _take_chunks(self) -> None:
        now_s = monotonic_s()
        while True:
            if self._framed:
                if len(self._stream) < PRELUDE.size:
                    return
                total_bytes, head_bytes = PRELUDE.unpack_from(self._stream)
                start = 12 + head_bytes
            else:
                total_bytes, start = STAMP.size, 0
            if len(self._stream) < total_bytes:
                return
            sent_at_s, _ = STAMP.unpack_from(self._stream, start)
            self._samples_s.append((now_s, now_s - sent_at_s))
            self._stream = self._stream[total_bytes:]


async def measure(load: Load) -> Measured:
    """Send `load` and return its results."""
    loop = asyncio.get_running_loop()
    samples_s: list[tuple[float, float]] = []
    connections: list[Connection] = []
    for number in range(load.num_connections):
        request = load.requests[number % len(load.requests)]
        _, connection = await loop.create_connection(
            lambda request=request: Connection(request, samples_s, load.streams),  # type: ignore[misc]  # the default binds the loop's value
            "127.0.0.1",
            load.port,
        )
        connections.append(connection)
    start_s = monotonic_s() + load.warm_up_s
    await asyncio.sleep(load.warm_up_s + load.duration_s)
    end_s = monotonic_s()
    for connection in connections:
        connection.stop()
    ordered = sorted(took for at, took in samples_s if start_s <= at <= end_s)
    return Measured(
        count=len(ordered),
        total=len(samples_s),
        errors=sum(connection.errors for connection in connections),
        per_s=len(ordered) / (end_s - start_s),
        p50_ms=percentile(ordered, 0.50) * 1000,
        p99_ms=percentile(ordered, 0.99) * 1000,
    )


def main() -> None:
    """Entry point."""
    load = msgspec.json.decode(sys.stdin.buffer.read(), type=Load)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(measure(load))))


if __name__ == "__main__":
    main()
