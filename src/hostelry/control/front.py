"""The server on control's port. It keeps running while its application is exchanged."""

import asyncio
import signal
import socket
from collections.abc import Callable

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hostelry.base.asgi_server import asgi_server
from hostelry.home.heartbeat import answer_heartbeats

STARTING = PlainTextResponse("control is starting", status_code=503)


class ControlFront:
    """The server on control's port. `show` exchanges its application. The first call starts it.

    From then on it also answers heartbeats. On SIGTERM or SIGINT it calls `release`, which ends the
    long polls of other processes. Then the server ends without delay, and `ended` is done.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.release: Callable[[], None] = lambda: None
        self._listener = listener
        self._app: ASGIApp = STARTING
        self._server = asgi_server(self)
        self._tasks: tuple[asyncio.Task[None], asyncio.Task[None]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the current application."""
        await self._app(scope, receive, send)

    @property
    def ended(self) -> asyncio.Task[None]:
        """Done once the server has ended."""
        assert self._tasks is not None, "nothing was shown yet"
        return self._tasks[0]

    def show(self, app: ASGIApp) -> None:
        """Answer with `app` from now on."""
        self._app = app
        if self._tasks is not None:
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        self._tasks = (
            loop.create_task(self._server.serve(sockets=[self._listener])),
            loop.create_task(answer_heartbeats()),
        )

    def stop(self) -> None:
        """End the server after the requests in flight."""
        self._server.end()
        self.release()

    async def close(self) -> None:
        """Stop, and wait for the end."""
        if self._tasks is not None:
            self.stop()
            serving, heartbeats = self._tasks
            await serving
            heartbeats.cancel()
