"""Listening, and uvicorn as the model servers run it."""

import ipaddress
import socket
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from hostelry.base.errors import TerminalError
from hostelry.base.rebinding import OwnHostsOnly
from hostelry.containers.http.protocol import BoundedHeadProtocol

BACKLOG = 1024
KEEP_ALIVE_S = 300  # longer than the gateway's idle timeout, so that the gateway closes first


class DrainingServer(uvicorn.Server):
    """uvicorn without its signal handling: a model server drains before it stops listening."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture no signals."""
        yield


def http_server(app: ASGIApp) -> DrainingServer:
    """The HTTP server of `app`."""
    return DrainingServer(
        uvicorn.Config(
            app,
            loop="none",
            http=BoundedHeadProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
    )


def served_on(listener: socket.socket, app: ASGIApp) -> ASGIApp:
    """`app`, on loopback guarded against DNS rebinding; elsewhere its host names are unknown."""
    address = ipaddress.ip_address(listener.getsockname()[0])
    return OwnHostsOnly(app) if address.is_loopback else app


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises TerminalError when the address cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise TerminalError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another --port"
        ) from error
