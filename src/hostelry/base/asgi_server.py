"""HTTP servers of the platform's own processes: a listening socket, and uvicorn over it."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from hostelry.base.errors import TerminalError

HOST = "127.0.0.1"


class QuietServer(uvicorn.Server):
    """uvicorn that sleeps until `should_exit` is set, instead of looking ten times a second.

    It is made in a running event loop. Its answers have no Date header.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        self._should_exit = False
        self._asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        super().__init__(config)

    @property
    def should_exit(self) -> bool:
        """True once the server was asked to end."""
        return self._should_exit

    @should_exit.setter
    def should_exit(self, should_exit: bool) -> None:
        self._should_exit = should_exit
        if should_exit:  # perhaps by the handler of a signal, which does not wake the loop
            self._loop.call_soon_threadsafe(self._asked.set)

    async def main_loop(self) -> None:
        """Wait until the server is asked to end."""
        self.server_state.default_headers = self.config.encoded_headers
        await self._asked.wait()


class AsgiServer(QuietServer):
    """A server without signal handlers: its process stops it, and cleans up after it."""

    def end(self) -> None:
        """Stop serving, in good order."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handler."""
        yield


@contextlib.contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """A listening socket on `port`.

    Raises TerminalError if another process has the port.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen()
        except OSError as error:
            raise TerminalError(f"port {port} cannot be listened on: {error}") from error
        yield listener


def asgi_server(app: ASGIApp) -> AsgiServer:
    """A server of `app`, which ends requests in progress a second after it was asked to end."""
    return AsgiServer(server_config(app))


def server_config(app: ASGIApp) -> uvicorn.Config:
    """The configuration of a server of `app`."""
    return uvicorn.Config(
        EndsWithServer(app),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
    )


def warm_up() -> None:
    """Import the protocols that a server imports when it starts, for the forks of this process."""
    server_config(Starlette()).load()


_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

ENDING = b"this server is ending; ask its successor"


class EndsWithServer:
    """ASGI: answers 503 if a stopping server cancels a request before its answer began.

    The cancellation is not logged as an error. An answer that has begun is cut off.
    """

    def __init__(self, app: _App) -> None:
        self._app = app

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Pass the request on."""
        has_begun = False

        async def send_and_note(message: MutableMapping[str, Any]) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
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
