"""Answers that end with their client: work stops when the connection does.

The status is sent with the first chunk, so that whatever fails before it has a proper status.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

from starlette.types import Receive, Scope, Send

Answering = Callable[[Send], Awaitable[None]]


class UntilDisconnect:
    """An ASGI answer that is cancelled when the client goes away."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the answer beside a watch on the connection."""
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
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_whole(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """One answer, not chunked."""
    await send_head(send, status, {**headers, "content-length": str(len(body))})
    await send({"type": "http.response.body", "body": body})


async def send_chunks(
    send: Send, headers: Mapping[str, str], first: bytes, rest: AsyncGenerator[bytes]
) -> None:
    """A chunked answer of status 200."""
    await send_head(send, 200, headers)
    await send({"type": "http.response.body", "body": first, "more_body": True})
    async with aclosing(rest):
        async for chunk in rest:
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def send_head(send: Send, status: int, headers: Mapping[str, str]) -> None:
    """Status and headers."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
