"""Listening sockets, and errors that name a taken port and its flag."""

import errno
import ipaddress
import socket

from hostelry.base.errors import TerminalError, UsageError

BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """Create a listening socket. The address can be bound again at once after its end.

    Raises OSError naming the address if it cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise OSError(
            error.errno, f"{host}:{port} cannot be listened on: {error.strerror}"
        ) from None
    bound.setblocking(False)
    return bound


def require_free_port(host: str, port: int, flag: str, purpose: str) -> None:
    """Raise TerminalError naming the port and the flag that changes it, if it cannot be bound."""
    try:
        _try_to_listen(host, port)
    except OSError as error:
        raise TerminalError(
            f"port {port} on {host} cannot be used for the {purpose} ({error.strerror}); "
            f"stop what listens there or choose another with {flag}"
        ) from None


def require_address(host: str) -> None:
    """Raise UsageError if this machine has no address `host`."""
    try:
        _try_to_listen(host, 0)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise UsageError(
                f"--host {host}: this machine has no such address. Name one of its own, 127.0.0.1 "
                "for this machine alone, or 0.0.0.0 for all"
            ) from None


def is_free(host: str, port: int) -> bool:
    """Whether the port can be listened on now."""
    try:
        _try_to_listen(host, port)
    except OSError:
        return False
    return True


def _try_to_listen(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen(1)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url_host(host: str) -> str:
    """`host` for a URL that programs on this machine use."""
    reachable = reachable_host(host)
    return f"[{reachable}]" if ":" in reachable else reachable


def reachable_host(host: str) -> str:
    """The host a program on this machine connects to when a server is bound to `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
