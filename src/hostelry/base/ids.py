"""New identifiers; the only place that draws them at random."""

import secrets
import uuid


def new_request_id() -> str:
    """A request id as AWS forms it: a random UUID."""
    return str(uuid.uuid4())


def new_instance_id() -> str:
    """An ML instance's id: ``i-`` and 17 hexadecimal digits."""
    return "i-" + secrets.token_hex(9)[:17]


def new_copy_id() -> str:
    """A copy's id: ``c-`` and 17 hexadecimal digits."""
    return "c-" + secrets.token_hex(9)[:17]
