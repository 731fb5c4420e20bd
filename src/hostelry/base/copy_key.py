"""A copy's key: proves to its model server that the platform sent a request.

The copy's agent draws it at each start; that agent, its successor, the gateways and the server know
it. The standard library only, so that every server can read it at once.
"""

from collections.abc import MutableMapping

HEADER = "X-Hostelry-Copy-Key"
VARIABLE = "HOSTELRY_COPY_KEY"
NOT_SHOWN = (
    f"this copy answers its own platform only, and the request has no {HEADER} of it; "
    "invoke the endpoint through hostelry's gateway"
)


def take_key(environment: MutableMapping[str, str]) -> str | None:
    """This server's key, removed so that no child inherits it; None: requests need no key."""
    return environment.pop(VARIABLE, None)
