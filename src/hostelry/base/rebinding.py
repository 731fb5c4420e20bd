"""Protection against DNS rebinding: refuses requests that a foreign web page may have sent.

A page can have its own name resolve to 127.0.0.1 once it is loaded (DNS rebinding), and then reads
what a server on loopback answers. It cannot change the Host and Origin that the browser sends.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from typing import Any

MAX_NAME_CHARACTERS = 64
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


def foreign_page(host: str, origin: str | None, own: Collection[str] = ()) -> str | None:
    """The reason why a foreign page may have sent these headers, or None.

    Host                                 Origin             result
    loopback, ``localhost`` or in `own`  none, or of Host   None
    the same                             any other          reason
    any other                            any                reason

    Loopback addresses and ``localhost`` are this server's names, and those in `own`. Its port is
    not compared: a tunnel may have another one.
    """
    name = _name(host)
    if name != "localhost" and name not in own and not _is_loopback(name):
        return f"Host '{host:.100}' is no name of this server; use 127.0.0.1 or localhost."
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        return f"Origin '{origin:.100}' is not this server; web pages may not use it."
    return None


class OwnHostsOnly:
    """ASGI: answers 403 to requests that a foreign page may have sent."""

    def __init__(self, app: _App) -> None:
        self._app = app

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
            given = {name: value.decode("latin-1") for name, value in headers}
            reason = foreign_page(given.get(b"host", ""), given.get(b"origin"))
            if reason is not None:
                await send({"type": "http.response.start", "status": 403, "headers": []})
                await send({"type": "http.response.body", "body": f"{reason}\n".encode()})
                return
        await self._app(scope, receive, send)


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_loopback(name: str) -> bool:
    try:
        return len(name) <= MAX_NAME_CHARACTERS and ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
