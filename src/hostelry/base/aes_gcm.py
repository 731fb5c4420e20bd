"""AES-256-GCM, with the nonce before the ciphertext and the tag behind it."""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16


class NotAuthenticError(ValueError):
    """The sealed bytes, their key or their context are not those of the sealing."""


def seal(key: bytes, plaintext: bytes, context: bytes) -> bytes:
    """`plaintext` encrypted under a new nonce; `context` is authenticated with it, not stored."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher(key).encrypt(nonce, plaintext, context)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """The plaintext of `sealed`; raises NotAuthenticError where anything was changed."""
    if len(sealed) < NONCE_BYTES + TAG_BYTES:
        raise NotAuthenticError("the sealed bytes are too short")
    try:
        return _cipher(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context)
    except InvalidTag:
        raise NotAuthenticError("the sealed bytes are not authentic") from None


def _cipher(key: bytes) -> AESGCM:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
    return AESGCM(key)
