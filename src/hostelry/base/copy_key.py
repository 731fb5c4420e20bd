"""A copy's key: what shows its model server that the platform asks, and nobody else.

The copy's agent draws it at each start. Who knows it: that agent and its successor, the gateways,
and the server. The standard library only, so that every server can read it at once.
"""

import hmac
from collections.abc import MutableMapping, Sequence

HEADER = "X-Hostelry-Copy-Key"
VARIABLE = "HOSTELRY_COPY_KEY"
NOT_SHOWN = (
    f"this copy answers its own platform only, and the request has no {HEADER} of it; "
    "invoke the endpoint through hostelry's door"
)


def take_key(environment: MutableMapping[str, str]) -> str | None:
    """The key this server was given, taken out so that no child inherits it; None: ask for none."""
    return environment.pop(VARIABLE, None)


def is_shown(key: str, given: Sequence[str]) -> bool:
    """Whether the values `given` of the header are the key, once; takes the same time for all."""
    return len(given) == 1 and hmac.compare_digest(given[0].encode(), key.encode())
