"""Guards of HTTP servers: secret keys of requests, and protection against DNS rebinding.

Standard library only, so that a model server in any environment can import it.
"""

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping, Sequence
from typing import Any

INTERNAL_KEY_HEADER = "X-Hostelry-Key"  # of every call between the platform's own processes
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


def has_key(key: str, given: Sequence[str]) -> bool:
    """True if the header's values `given` are the key exactly once. Takes constant time.

    given              result
    no value           False
    one value, equal   True
    one value, other   False
    two or more        False, even if one of them is the key
    """
    if len(given) != 1:
        return False
    return hmac.compare_digest(given[0].encode("utf-8", "replace"), key.encode())


class KeyGuard:
    """ASGI: answers with `refusal`, before the body is read, unless `header` has the key."""

    def __init__(self, app: _App, header: str, key: str, refusal: _App) -> None:
        self._app = app
        self._name = header.lower().encode()
        self._key = key
        self._refusal = refusal

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Pass the request on, or refuse it."""
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == self._name]
        app = self._app if has_key(self._key, given) else self._refusal
        await app(scope, receive, send)


# A copy's key proves to its model server that the platform sent a request. The agent draws the key
# each time it starts the copy. The model server, the gateways and the agent's successor get it.
COPY_KEY_HEADER = "X-Hostelry-Copy-Key"
COPY_KEY_VARIABLE = "HOSTELRY_COPY_KEY"
MISSING_COPY_KEY = (
    f"this copy answers its own platform only, and the request has no {COPY_KEY_HEADER} of it; "
    "invoke the endpoint through hostelry's gateway"
)


def take_key(environment: MutableMapping[str, str]) -> str | None:
    """Remove and return this server's key. None if requests need no key.

    It is removed so that no child process inherits it.
    """
    return environment.pop(COPY_KEY_VARIABLE, None)


# DNS rebinding: once a page is loaded, its name can resolve to 127.0.0.1, so that the page reads
# the answers of a server on loopback. A page cannot change the Host and Origin headers.
MAX_NAME_CHARACTERS = 64


def find_foreign_page(host: str, origin: str | None, own: Collection[str] = ()) -> str | None:
    """Say why a foreign page may have sent these headers, or None.

    Host                                 Origin             result
    loopback, ``localhost`` or in `own`  none, or of Host   None
    the same                             any other          reason
    any other                            any                reason

    The port is not compared, because a tunnel may have another one.
    """
    name = _name(host)
    if name != "localhost" and name not in own and not _is_loopback(name):
        return f"Host '{host:.100}' is not a name of this server. Use 127.0.0.1 or localhost."
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
            reason = find_foreign_page(given.get(b"host", ""), given.get(b"origin"))
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
