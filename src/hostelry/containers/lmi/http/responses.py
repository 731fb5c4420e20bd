"""Responses that are cancelled when their client disconnects.

The status is sent with the first chunk, so that a failure before it has its own status.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

from starlette.types import Message, Receive, Scope, Send

Answering = Callable[[Send], Awaitable[None]]


class UntilDisconnect:
    """An ASGI response that is cancelled when the client disconnects."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the response while watching the connection."""
        answer = asyncio.ensure_future(self._answering(send))
        watch = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait((answer, watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            if not answer.done():
                answer.cancel()
            await asyncio.gather(answer, watch, return_exceptions=True)
        if not answer.cancelled():
            answer.result()


async def disconnected(receive: Receive) -> None:
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
    """The events in `data`, each with its `end`; all of it as one if there is no end."""
    if not end or not data:
        return [data] if data else []
    *whole, rest = data.split(end)
    return [*(event + end for event in whole), *([rest] if rest else [])]


def with_headers(send: Send, headers: Mapping[str, str]) -> Send:
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
