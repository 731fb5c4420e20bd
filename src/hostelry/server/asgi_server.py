"""HTTP servers of the platform's own processes: a listening socket, and uvicorn over it."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from hostelry.base.errors import TerminalError
from hostelry.base.server_end import EndsWithServer

DATE_EVERY_S = 1.0
HOST = "127.0.0.1"


class AsgiServer(uvicorn.Server):
    """uvicorn without signal handlers: its process stops it by `end`, and cleans up after it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Stop serving, in good order."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Serve until `end`. uvicorn's own loop looks ten times a second, and so ends later."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATE_EVERY_S):
                    await self._ending.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handler."""
        yield


@contextlib.contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """A listening socket on `port`; bound first, so that a second process changes nothing.

    Raises TerminalError when another process has the port.
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
    return AsgiServer(
        uvicorn.Config(
            EndsWithServer(app),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=75,
            timeout_graceful_shutdown=1,
        )
    )
