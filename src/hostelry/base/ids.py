"""New identifiers. Only this module draws them at random."""

import base64
import os
import secrets

UUID_VARIANTS = "89ab"
IAM_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
ACCOUNT_SHIFT = 39  # of the account in the 80 bits of an access key id, below the highest bit
MAX_ACCOUNT = 999_999_999_999


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


def new_account_id() -> str:
    """An account id: 12 digits, of which the first is not 0."""
    return str(10**11 + secrets.randbelow(9 * 10**11))


def new_access_key_id(account: str) -> str:
    """The id of a permanent access key: ``AKIA`` and 16 characters, which hold the account."""
    return _new_key_id("AKIA", account)


def new_temporary_key_id(account: str = "0") -> str:
    """The access key id of temporary keys: ``ASIA`` and 16 characters, which hold the account."""
    return _new_key_id("ASIA", account)


def _new_key_id(prefix: str, account: str) -> str:
    """An access key id with AWS's bits: 1 random, 40 of the account, 39 random. 5 per letter."""
    bits = (
        int(account) << ACCOUNT_SHIFT | secrets.randbits(ACCOUNT_SHIFT) | secrets.randbits(1) << 79
    )
    return prefix + base64.b32encode(bits.to_bytes(10, "big")).decode()


def read_key_account(access_key_id: str) -> str | None:
    """The account that an access key id holds, or None. The key may not exist."""
    letters = access_key_id[4:]
    if len(letters) != 16 or any(it not in IAM_LETTERS for it in letters):
        return None
    bits = int.from_bytes(base64.b32decode(letters), "big")
    account = bits >> ACCOUNT_SHIFT & (1 << 40) - 1
    return f"{account:012}" if account <= MAX_ACCOUNT else None


def new_openai_key() -> str:
    """A bearer key of the OpenAI routes: ``sk-`` and 43 characters."""
    return "sk-" + secrets.token_urlsafe(32)
