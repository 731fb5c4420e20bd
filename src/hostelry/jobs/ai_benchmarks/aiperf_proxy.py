"""The address on loopback at which AIPerf finds the copies of a job's targets."""

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.guards import has_key
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import HttpLimits, HttpRefusedError
from hostelry.dataplane.http.server import HttpServer
from hostelry.home.ports import bind
from hostelry.http1.reply import UpstreamError
from hostelry.jobs.ai_benchmarks.llm_load import CountedReply, TargetCalls

HOST = "127.0.0.1"
BEARER = "Bearer "
JSON_LINES, EVENTS = "application/jsonlines", "text/event-stream"


class ProxyAddress(msgspec.Struct, frozen=True):
    """The address of an open proxy, and the key that its requests must have."""

    url: str
    key: str


@asynccontextmanager
async def open_proxy(calls: TargetCalls, clock: Clock) -> AsyncIterator[ProxyAddress]:
    """Pass requests on loopback to the copies during the block."""
    proxy = _Proxy(calls, f"proxy-{secrets.token_urlsafe(32)}")
    server = HttpServer(proxy.handle, answer_refusal, HttpLimits(), clock, admit=proxy.admit)
    listening = bind(HOST, 0)
    port = listening.getsockname()[1]
    await server.start(listening)
    sweeps = asyncio.create_task(server.sweep_forever())
    try:
        yield ProxyAddress(f"http://{HOST}:{port}", proxy.key)
    finally:
        sweeps.cancel()
        await asyncio.gather(sweeps, return_exceptions=True)
        await server.stop(0.0)


class _Proxy:
    """Passes the bodies of requests to the targets in turn."""

    def __init__(self, calls: TargetCalls, key: str) -> None:
        self.key = key
        self._calls = calls
        self._numbers = itertools.count()

    def admit(self, request: HttpRequest) -> bool:
        """Return True if the head has the key. Raises HttpRefusedError if it does not."""
        given = request.headers.get("authorization", "")
        if not has_key(BEARER + self.key, [given]):
            raise HttpRefusedError(401, "The key of this benchmark is missing or wrong.", request)
        return True

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request with the answer of a copy."""
        try:
            self.admit(exchange.request)
        except HttpRefusedError as refusal:
            exchange.respond(answer_refusal(refusal))
            return
        exchange.verified()
        try:
            async with self._calls.open(next(self._numbers), exchange.request.body) as reply:
                await _pass_on(reply, exchange)
        except UpstreamError as error:
            if not exchange.started:  # else the connection is cut
                exchange.respond(_text(502, f"The model gave no whole answer: {error}"))
            return
        exchange.finish()


async def _pass_on(reply: CountedReply, exchange: Exchange) -> None:
    """Pass an answer on. AIPerf reads events only, so JSON lines of a model become events."""
    has_lines = reply.content_type.partition(";")[0] == JSON_LINES
    content_type = EVENTS if has_lines else reply.content_type
    exchange.start(reply.status, {"Content-Type": content_type})
    rest = b""
    while (chunk := await reply.next_chunk()) is not None:
        if has_lines:
            *lines, rest = (rest + chunk).split(b"\n")
            chunk = b"".join(b"data: %b\n\n" % it for it in lines)
        await exchange.send(chunk)
    if rest:
        await exchange.send(b"data: %b\n\n" % rest)


def answer_refusal(refusal: HttpRefusedError) -> HttpResponse:
    """The answer to a request that is refused."""
    return _text(refusal.status, refusal.reason)


def _text(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, {"Content-Type": "text/plain"}, text.encode())
