"""Batches over HTTP: OpenAI's completion route, streamed or not, one connection per request.

Each received part is noted with its time and parsed only after the batch, so that parsing takes no
time from any contestant.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
import msgspec
import uvloop

from benchmarks.peers.contestant import Answer, Ask, Outcome
from hostelry.base.clock import monotonic_s

PATH = "/v1/completions"
TIMEOUT_S = 600.0

Body = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBatches:
    """A server on a loopback port. `body_of` builds a request's body in that server's format.

    `headers` are sent with each request.
    """

    port: int
    body_of: Callable[[Ask], Body]
    headers: Mapping[str, str] = field(default_factory=dict)

    def run(self, asks: Sequence[Ask], *, streamed: bool) -> Outcome:
        """Send all at once and wait for all."""
        options: Body = {"stream": True, "stream_options": {"include_usage": True}}
        bodies = [self.body_of(ask) | (options if streamed else {}) for ask in asks]
        messages = [_message(body, self.headers) for body in bodies]
        return uvloop.run(_exchange(self.port, messages, streamed))


def openai_body(ask: Ask, base: str) -> Body:
    """A completion request whose model is the adapter, or `base`."""
    return {
        "model": ask.adapter or base,
        "prompt": list(ask.prompt),
        "max_tokens": ask.max_tokens,
        "temperature": ask.temperature,
        "ignore_eos": True,
    }


class _Exchange(asyncio.Protocol):
    """One request and the parts of its answer, each with the time it came."""

    def __init__(self) -> None:
        self.parts: list[tuple[float, bytes]] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status = 0
        self._arrived_at_s = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, over which the request is sent."""
        self._transport = cast(asyncio.Transport, transport)

    def send(self, message: bytes) -> None:
        """Send the request."""
        self._transport.write(message)

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes."""
        self._arrived_at_s = monotonic_s()
        self._parser.feed_data(data)

    def on_body(self, part: bytes) -> None:
        """Note a part and its time."""
        self.parts.append((self._arrived_at_s, part))

    def on_message_complete(self) -> None:
        """Note that the answer is complete."""
        self.status = self._parser.get_status_code()
        if not self.ended.done():
            self.ended.set_result(None)
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail if the connection ends before the answer."""
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionResetError("closed before the answer's end"))


async def _exchange(port: int, messages: Sequence[bytes], streamed: bool) -> Outcome:
    loop = asyncio.get_running_loop()
    exchanges: list[_Exchange] = []
    for _ in messages:
        _, exchange = await loop.create_connection(_Exchange, "127.0.0.1", port)
        exchanges.append(exchange)
    start_s = monotonic_s()
    for exchange, message in zip(exchanges, messages, strict=True):
        exchange.send(message)
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*(exchange.ended for exchange in exchanges))
    wall_s = monotonic_s() - start_s
    read = _streamed_answer if streamed else _whole_answer
    return Outcome(wall_s=wall_s, answers=tuple(read(it, start_s) for it in exchanges))


def _message(body: Body, headers: Mapping[str, str]) -> bytes:
    content = msgspec.json.encode(body)
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"{more}Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def _whole_answer(exchange: _Exchange, start_s: float) -> Answer:
    content = b"".join(part for _, part in exchange.parts)
    _check(exchange.status, content)
    answer = msgspec.json.decode(content)
    return Answer(
        num_tokens=answer["usage"]["completion_tokens"],
        arrivals_s=(),
        text=answer["choices"][0]["text"],
    )


def _streamed_answer(exchange: _Exchange, start_s: float) -> Answer:
    _check(exchange.status, b"".join(part for _, part in exchange.parts))
    arrivals_s: list[float] = []
    texts: list[str] = []
    num_tokens = 0
    rest = b""
    for at_s, part in exchange.parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if not line.startswith(b"data: {"):
                continue
            event = msgspec.json.decode(line.removeprefix(b"data: "))
            if event.get("error"):
                raise RuntimeError(f"the stream broke off: {event['error']}")
            num_tokens = (event.get("usage") or {}).get("completion_tokens", num_tokens)
            for choice in event["choices"]:
                texts.append(choice["text"])
                if choice["text"] or not choice.get("finish_reason"):
                    arrivals_s.append(at_s - start_s)
    return Answer(num_tokens=num_tokens, arrivals_s=tuple(arrivals_s), text="".join(texts))


def _check(status: int, content: bytes) -> None:
    if status != 200:
        raise RuntimeError(f"status {status}: {content[:300].decode(errors='replace')}")
