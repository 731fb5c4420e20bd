"""Typed JSON decoding, safe for threads.

msgspec compiles a dataclass at first use, and crashes the process where two threads do so at once.
Here a type is compiled under a lock, once.
"""

import threading
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_COMPILING = threading.Lock()


def get_decoder(type: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder of a type, which is made once."""
    decoder = _DECODERS.get(type)
    if decoder is None:
        with _COMPILING:
            decoder = _DECODERS.get(type) or msgspec.json.Decoder(type)
            _DECODERS[type] = decoder
    return cast("msgspec.json.Decoder[T]", decoder)


def decode(body: bytes | bytearray | str, type: type[T]) -> T:
    """Decode `body` as a `type`. Raises as `msgspec.json.decode` does."""
    return get_decoder(type).decode(body)


def nests_deeper(value: Any, most: int) -> bool:
    """True if lists and dictionaries are nested more than `most` deep. Does not recurse."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(most):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return bool(level)


def convert(value: Any, type: type[T], *, strict: bool = True) -> T:
    """Convert plain dictionaries and lists to a `type`. Raises as `msgspec.convert` does."""
    get_decoder(type)
    return msgspec.convert(value, type, strict=strict)
