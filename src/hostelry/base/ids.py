"""New identifiers. Only this module draws them at random."""

import os
import secrets

UUID_VARIANTS = "89ab"
IAM_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


def new_request_id() -> str:
    """A request id as AWS forms it: a random UUID."""
    return new_uuid()


def new_uuid() -> str:
    """A random UUID (version 4)."""
    text = os.urandom(16).hex()
    variant = UUID_VARIANTS[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


def new_instance_id() -> str:
    """An ML instance's id: ``i-`` and 17 hexadecimal digits."""
    return "i-" + secrets.token_hex(9)[:17]


def new_copy_id() -> str:
    """A copy's id: ``c-`` and 17 hexadecimal digits."""
    return "c-" + secrets.token_hex(9)[:17]


def new_iam_id(prefix: str) -> str:
    """A unique id of IAM, of 21 characters: ``AROA`` for roles, ``ANPA`` for policies."""
    return prefix + "".join(secrets.choice(IAM_LETTERS) for _ in range(21 - len(prefix)))


def new_temporary_key_id() -> str:
    """The access key id of temporary keys: ``ASIA`` and 16 characters."""
    return new_iam_id("ASIA")[:20]
