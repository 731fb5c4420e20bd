"""A model server without a model: it echoes, streams, stalls and dies on request.

``python -m benchmarks.echo_model`` prints ``ready PORT`` and serves until it is killed. With
``--json`` it reads bodies as JSON and writes them again, as servers for Python models do.
X-Amzn-SageMaker-Custom-Attributes has its commands, ``name=value`` pairs separated by ``;``:

- nothing: the body comes back with its Content-Type
- ``show``: a JSON object of the headers and path it received
- ``status=N``: that status, with the body
- ``retry_after=N``: that number of seconds in Retry-After
- ``session``: opens session ``s-1`` and closes session ``s-0``
- ``sleep_ms=N``: waits. ``/asleep`` counts waiting requests, ``/most-asleep`` the most at once,
  ``/cancelled`` callers that went away
- ``chunks=N;interval_ms=M``: N chunks of 16 bytes, M apart, each with the time it was sent at
- ``die=start|middle``: exits before the first byte of an answer, or after a first chunk
- ``close=start|middle``: closes the connection at that point, and continues to run

The OpenAI routes answer with the request's headers as the text, streamed if the body asks for it. A
stream for the prompt ``break off`` ends after its first part.
"""

import argparse
import asyncio
import json
import os
import socket
import struct

import msgspec
import uvloop

from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import HttpLimits, HttpRefusedError
from hostelry.dataplane.http.server import HttpServer

ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"
BREAK_OFF = "break off"
STAMP = struct.Struct(">dQ")  # the time at which a chunk was sent, and its number


class EchoModel:
    """The handler. It counts the events that a test asks about."""

    def __init__(self, *, reads_json: bool = False) -> None:
        self._reads_json = reads_json
        self.num_served = self.num_asleep = self.most_asleep = 0
        self.num_cancelled = 0

    async def handle(self, exchange: Exchange) -> None:
        """Answer as the request's commands ask."""
        self.num_served += 1
        commands = parse_commands(exchange.request)
        try:
            if "sleep_ms" in commands:
                await self._sleep(commands["sleep_ms"] / 1000)
            await self._answer(exchange, commands)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise

    async def _sleep(self, seconds: float) -> None:
        self.num_asleep += 1
        self.most_asleep = max(self.most_asleep, self.num_asleep)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.num_asleep -= 1

    async def _answer(self, exchange: Exchange, commands: dict[str, int]) -> None:
        request = exchange.request
        if request.path == "/cancelled":
            exchange.respond(HttpResponse(200, {}, str(self.num_cancelled).encode()))
        elif request.path == "/asleep":
            exchange.respond(HttpResponse(200, {}, str(self.num_asleep).encode()))
        elif request.path == "/most-asleep":
            exchange.respond(HttpResponse(200, {}, str(self.most_asleep).encode()))
        elif request.path == "/served":
            exchange.respond(HttpResponse(200, {}, str(self.num_served).encode()))
        elif request.path.startswith("/v1/"):
            await complete(exchange)
        elif "die" in commands or "close" in commands:
            await end_early(exchange, commands)
        elif "chunks" in commands:
            await stream(exchange, commands["chunks"], commands.get("interval_ms", 0) / 1000)
        elif self._reads_json:
            body = json.dumps(json.loads(request.body)).encode()
            exchange.respond(HttpResponse(200, {"Content-Type": "application/json"}, body))
        else:
            exchange.respond(echo(request, commands))


def parse_commands(request: HttpRequest) -> dict[str, int]:
    """The commands in the custom attributes. A word becomes the number of its first letter."""
    commands: dict[str, int] = {}
    given = request.headers.get(ATTRIBUTES)
    for pair in given.split(";") if given else ():
        name, _, value = pair.partition("=")
        commands[name] = int(value) if value.isdigit() else ord((value or "-")[0])
    return commands


def echo(request: HttpRequest, commands: dict[str, int]) -> HttpResponse:
    """The request's body, or a description of the request as the server received it."""
    headers = {"Content-Type": request.headers.get("content-type", "application/octet-stream")}
    if ATTRIBUTES in request.headers:
        headers["X-Amzn-SageMaker-Custom-Attributes"] = request.headers[ATTRIBUTES]
    if "session" in commands:
        headers["X-Amzn-SageMaker-New-Session-Id"] = "s-1; Expires=2030-01-01T00:00:00Z"
        headers["X-Amzn-SageMaker-Closed-Session-Id"] = "s-0"
    if "retry_after" in commands:
        headers["Retry-After"] = str(commands["retry_after"])
    body = request.body
    if "show" in commands:
        seen = {"path": request.path, "headers": dict(request.headers), "pid": os.getpid()}
        body = msgspec.json.encode(seen)
    return HttpResponse(commands.get("status", 200), headers, body)


async def stream(exchange: Exchange, num_chunks: int, interval_s: float) -> None:
    """Send time-stamped chunks at a steady pace, whatever time sending takes."""
    exchange.start(200, {"Content-Type": "application/jsonlines"})
    next_at_s = monotonic_s()
    for number in range(num_chunks):
        next_at_s += interval_s
        await asyncio.sleep(max(0.0, next_at_s - monotonic_s()))
        await exchange.send(STAMP.pack(monotonic_s(), number))
    exchange.finish()


async def end_early(exchange: Exchange, commands: dict[str, int]) -> None:
    """Die, or close the connection, before or in the middle of an answer."""
    if ord("m") in (commands.get("die"), commands.get("close")):
        exchange.start(200, {"Content-Type": "text/plain"})
        await exchange.send(b"first")
        await asyncio.sleep(0.05)
    if "die" in commands:
        os._exit(9)


async def complete(exchange: Exchange) -> None:
    """A completion whose text is the headers that came with the request."""
    request = exchange.request
    asked = msgspec.json.decode(request.body)
    seen = {name: value for name, value in request.headers.items() if name.startswith("x-")}
    text = msgspec.json.encode(seen).decode()
    model = request.headers.get("x-hostelry-model", asked["model"])
    chat = request.path.startswith("/v1/chat/")
    if not asked.get("stream"):
        answer = completion_object(model, text, chat=chat, part=False)
        body = msgspec.json.encode(answer)
        exchange.respond(HttpResponse(200, {"Content-Type": "application/json"}, body))
        return
    exchange.start(200, {"Content-Type": "text/event-stream"})
    for word in (text[:5], text[5:]):
        part = completion_object(model, word, chat=chat, part=True)
        await exchange.send(b"data: " + msgspec.json.encode(part) + b"\n\n")
        if asked.get("prompt") == BREAK_OFF:
            await asyncio.sleep(0.05)
            return
    await exchange.send(b"data: [DONE]\n\n")
    exchange.finish()


def completion_object(model: str, text: str, *, chat: bool, part: bool) -> dict[str, object]:
    """An OpenAI completion, or one part of a streamed one."""
    choice: dict[str, object] = {"index": 0, "finish_reason": None if part else "stop"}
    if chat:
        choice["delta" if part else "message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    kind = ("chat.completion" + (".chunk" if part else "")) if chat else "text_completion"
    return {"id": "echo-1", "object": kind, "created": 0, "model": model, "choices": [choice]}


def build_refusal(refusal: HttpRefusedError) -> HttpResponse:
    """The answer to invalid HTTP."""
    return HttpResponse(refusal.status, {}, refusal.reason.encode())


async def serve(port: int, model: EchoModel) -> None:
    """Serve on `port` (0: any free one) until killed."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    bound.listen(2048)
    bound.setblocking(False)
    limits = HttpLimits(max_body_bytes=64 * 1024 * 1024)
    server = HttpServer(model.handle, build_refusal, limits, SystemClock(), admit=lambda _: True)
    await server.start(bound)
    print(f"ready {bound.getsockname()[1]}", flush=True)
    await server.sweep_forever()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="read and write JSON bodies")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, EchoModel(reads_json=arguments.json)))


if __name__ == "__main__":
    main()
