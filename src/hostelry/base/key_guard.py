"""The one comparison of a secret key with what a request carries, and the ASGI guard around it.

The standard library only, so that every server can read it at once.
"""

import hmac
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

INTERNAL_KEY_HEADER = "X-Hostelry-Key"  # of every call between the platform's own processes
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


def is_shown(key: str, given: Sequence[str]) -> bool:
    """Whether the values `given` of a header are the key, once; in constant time.

    given              result
    no value           False
    one value, equal   True
    one value, other   False
    two or more        False, even where one is the key: which one counts is a guess
    """
    if len(given) != 1:
        return False
    return hmac.compare_digest(given[0].encode("utf-8", "replace"), key.encode())


class KeyGuard:
    """ASGI: answers by `refusal`, before the body is read, unless `header` carries the key."""

    def __init__(self, app: _App, header: str, key: str, refusal: _App) -> None:
        self._app = app
        self._name = header.lower().encode()
        self._key = key
        self._refusal = refusal

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Pass the request on, or refuse it."""
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == self._name]
        app = self._app if is_shown(self._key, given) else self._refusal
        await app(scope, receive, send)
