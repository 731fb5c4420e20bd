"""The root key of a home, and AES-256-GCM, with which it encrypts the material of other keys."""

import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16


class NotAuthenticError(ValueError):
    """The sealed bytes are not authentic for this key and context."""


def seal(key: bytes, plaintext: bytes, context: bytes) -> bytes:
    """Encrypt `plaintext` under a new nonce. `context` is authenticated but not stored."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher(key).encrypt(nonce, plaintext, context)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Decrypt `sealed`. Raises NotAuthenticError if anything was changed."""
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


class RootKey:
    """A key of 32 random bytes at `path`, mode 0600, or in memory without `path`."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._key: bytes | None = None

    def read(self, *, may_make: bool) -> bytes:
        """Return the key. If it does not exist and `may_make`, it is made and synced to disk.

        Raises TerminalError if the file is missing or is not a valid key.
        """
        if self._key is None:
            self._key = self._load(may_make)
        return self._key

    def _load(self, may_make: bool) -> bytes:
        if self._path is None:
            return os.urandom(KEY_BYTES)
        try:
            key = bytes.fromhex(self._path.read_text(encoding="ascii"))
        except FileNotFoundError:
            if not may_make:
                raise TerminalError(
                    f"{self._path} is missing: without it no key can be used. Restore it from a "
                    "backup of the home."
                ) from None
            key = os.urandom(KEY_BYTES)
            write_whole(self._path, key.hex().encode())
        except (OSError, ValueError) as error:
            raise TerminalError(f"{self._path} cannot be read as a key: {error}") from error
        if len(key) != KEY_BYTES:
            raise TerminalError(f"{self._path} holds {len(key)} bytes; a key has {KEY_BYTES}")
        return key
