"""ASGI: a request that the server's end cancels is answered, and no fault in the log.

The standard library only. A server that stops gives requests in progress a moment, then cancels
them: a program asked it to end, so that is no error of the application.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

ENDING = b"this server is ending; ask its successor"


class EndsWithServer:
    """ASGI: 503 for a request that is cancelled before its answer began; what began is cut off."""

    def __init__(self, app: _App) -> None:
        self._app = app

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Pass the request on."""
        has_begun = False

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            if not has_begun:
                await _refuse(send)


async def _refuse(send: _Send) -> None:
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(ENDING)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": ENDING})
