"""The root key of a home: a file that encrypts the material of every other key."""

import os
from pathlib import Path

from hostelry.base.aes_gcm import KEY_BYTES
from hostelry.base.errors import TerminalError
from hostelry.base.private_file import write_whole


class RootKey:
    """A key of 32 random bytes at `path`, mode 0600; in memory where there is no path."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._key: bytes | None = None

    def read(self, *, may_make: bool) -> bytes:
        """The key; it is made, synced to disk, where there is none and `may_make`.

        Raises TerminalError where the file is missing or is no key.
        """
        if self._key is None:
            self._key = self._stored(may_make)
        return self._key

    def _stored(self, may_make: bool) -> bytes:
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
