"""Bodies of requests, read within a limit, and responses that end when their client disconnects.

The status is sent with the first chunk, so that a failure before it has its own status.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from hostelry.containers.lmi.engine.backend import EngineFailedError
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface, bad_request

LOGGED = (Cause.ENGINE, Cause.TIMEOUT)  # the server's own failures, not the client's

Answering = Callable[[Send], Awaitable[None]]
PlainEndpoint = Callable[[Request], Awaitable[Response]]

LOG = logging.getLogger(__name__)


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body. Raises Refusal as soon as it is known to exceed `limit_bytes`."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit_bytes:
        raise too_large(int(declared), limit_bytes)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit_bytes:
                raise too_large(len(body), limit_bytes)
    except ClientDisconnect as error:
        raise bad_request("the client closed the connection before the end of its body") from error
    return bytes(body)


def too_large(size_bytes: int, limit_bytes: int) -> Refusal:
    """The refusal of a body that exceeds the configured limit."""
    return Refusal(
        Cause.TOO_LARGE,
        f"the body has {size_bytes} bytes or more; the limit is {limit_bytes} "
        "(SAGEMAKER_MAX_PAYLOAD_IN_MB, max_request_size)",
    )


class UntilDisconnect:
    """An ASGI response that is cancelled when the client disconnects."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the response while watching the connection."""
        answer = asyncio.ensure_future(self._answering(send))
        watch = asyncio.ensure_future(wait_for_disconnect(receive))
        try:
            await asyncio.wait((answer, watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            if not answer.done():
                answer.cancel()
            await asyncio.gather(answer, watch, return_exceptions=True)
        if not answer.cancelled():
            answer.result()


async def respond(
    server: LmiServer,
    request: Request,
    surface: Surface,
    handle: Callable[[Send, bytes], Awaitable[None]],
) -> UntilDisconnect:
    """Read the body. `handle` sends the response, or its Refusal is sent as on `surface`."""

    async def refuse(send: Send, refusal: Refusal) -> None:
        status, content = server.build_refusal(refusal, surface)
        server.measured.refused[status] += 1
        if refusal.cause in LOGGED:
            LOG.warning("%s %s: %d %s", request.method, request.url.path, status, refusal)
        headers = {"content-type": "application/json", **refusal.headers}
        await send_whole(send, status, headers, msgspec.json.encode(content))

    async def run(send: Send) -> None:
        try:
            await handle(send, body)
        except Refusal as refusal:
            await refuse(send, refusal)

    try:
        body = await read_body(request, server.config.max_request_bytes)
    except Refusal as error:
        refusal = error
        return UntilDisconnect(lambda send: refuse(send, refusal))
    return UntilDisconnect(run)


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_whole(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Send a response that is not chunked."""
    await send_head(send, status, {**headers, "content-length": str(len(body))})
    await send({"type": "http.response.body", "body": body})


async def send_chunks(
    send: Send,
    headers: Mapping[str, str],
    first: bytes,
    rest: AsyncGenerator[bytes],
    event_end: bytes = b"",
) -> None:
    """Send a chunked response of status 200, each event that ends with `event_end` by itself.

    A chunk becomes a part of the caller's stream, and clients parse a part as one event.
    """
    await send_head(send, 200, headers)
    for event in events_in(first, event_end) or [b""]:
        await send({"type": "http.response.body", "body": event, "more_body": True})
    async with aclosing(rest):
        async for chunk in rest:
            for event in events_in(chunk, event_end):
                await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def events_in(data: bytes, end: bytes) -> list[bytes]:
    """The events in `data`, each with its `end`. If `end` is empty, all of `data` is one event."""
    if not end or not data:
        return [data] if data else []
    *whole, rest = data.split(end)
    return [*(event + end for event in whole), *([rest] if rest else [])]


def add_headers(send: Send, headers: Mapping[str, str]) -> Send:
    """`send`, with `headers` in the response's head as well."""
    if not headers:
        return send
    more = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending


async def send_head(send: Send, status: int, headers: Mapping[str, str]) -> None:
    """Send status and headers."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON answer."""
    body = msgspec.json.encode(content)
    return Response(body, status, headers, media_type="application/json")


def answering(server: LmiServer, surface: Surface, operation: PlainEndpoint) -> PlainEndpoint:
    """The endpoint of `operation`, whose refusals have the form of `surface`."""

    async def answer(request: Request) -> Response:
        try:
            return await operation(request)
        except EngineFailedError as error:
            refusal = Refusal(Cause.ENGINE, str(error))
        except Refusal as error:
            refusal = error
        status, content = server.build_refusal(refusal, surface)
        return json_response(content, status, refusal.headers)

    return answer
