"""Bodies of the JSON and CBOR protocols: bytes <-> trees, with limits on hostile input."""

import base64
from collections.abc import Mapping
from io import BytesIO
from typing import Any, NoReturn

import cbor2
import msgspec

from hostelry.aws.tree import JSON_READERS, Reader, finite, serialization_error

MAX_DEPTH = 100
_EPOCH_TAG = 1
# Every tag the library would act on by itself: shared values, big numbers, patterns, dates, sets.
_ACTIVE_TAGS = (0, 2, 3, 4, 5, 21, 22, 23, 24, 25, 28, 29, 30, 32, 33, 34, 35, 36, 37, 52, 54)
_MORE_ACTIVE_TAGS = (100, 256, 258, 260, 261, 1004, 43000, 55799)


def decode_json(body: bytes) -> Any:
    """The tree of a JSON body. An empty body is an empty structure."""
    if not body:
        return {}
    try:
        tree = msgspec.json.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except (ValueError, msgspec.DecodeError) as error:
        raise serialization_error(f"The body is not JSON: {error}") from None
    _check_depth(tree)
    return tree


def encode_json(tree: Any) -> bytes:
    """A tree as JSON."""
    return msgspec.json.encode(tree)


def decode_cbor(body: bytes) -> Any:
    """The tree of a CBOR body: no tag but an epoch timestamp, text or byte keys, one item."""
    if not body:
        return {}
    stream = BytesIO(body)
    decoder = cbor2.CBORDecoder(
        stream,
        tag_hook=_refuse_tag,
        semantic_decoders=_TAGS,
        max_depth=MAX_DEPTH,
        strict_hashable_types=True,
        read_size=1,
    )
    try:
        tree = decoder.decode()
    except (cbor2.CBORDecodeError, ValueError) as error:
        cause = error.__cause__ or error
        raise serialization_error(f"The body is not CBOR: {cause}") from None
    if stream.tell() != len(body):
        raise serialization_error("The body is not CBOR: bytes are left after the first item")
    return tree


def encode_cbor(tree: Any) -> bytes:
    """A tree as CBOR."""
    return cbor2.dumps(tree)


def _refuse_tag(*_: object) -> NoReturn:
    raise ValueError("only tag 1, an epoch timestamp, is understood")


def _read_epoch(value: Any, *_: object) -> float:
    return finite(value)


_TAGS: Mapping[int, Any] = dict.fromkeys(_ACTIVE_TAGS + _MORE_ACTIVE_TAGS, _refuse_tag) | {
    _EPOCH_TAG: _read_epoch
}


def _too_deep() -> Exception:
    return serialization_error(f"The body is nested deeper than {MAX_DEPTH} levels")


def _check_depth(tree: Any) -> None:
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise _too_deep()


def _cbor_blob(node: Any) -> bytes:
    if not isinstance(node, bytes):
        raise ValueError("a blob must be a byte string")  # noqa: TRY004 - the Reader's promise
    return node


CBOR_READERS: Mapping[str, Reader] = {**JSON_READERS, "blob": _cbor_blob}
JSON_WRITERS: Mapping[str, Reader] = {"blob": lambda value: base64.b64encode(value).decode()}
CBOR_WRITERS: Mapping[str, Reader] = {
    "timestamp": lambda value: cbor2.CBORTag(_EPOCH_TAG, value),
    "double": float,
    "float": float,
}
