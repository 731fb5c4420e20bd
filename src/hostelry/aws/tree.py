"""JSON and CBOR trees <-> values, walked along a shape, without constraints and HTTP.

Operations work with values: dicts by member name, lists, str, int, float, bool, bytes, and
timestamps as float epoch seconds. A JSON or CBOR library decodes and encodes trees.
"""

import base64
import binascii
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from hostelry.base.errors import ServiceError

Reader = Callable[[Any], Any]
"""A scalar of a tree -> its value; raises ValueError for a scalar of another type."""

INTEGER_BITS = {"integer": 32, "long": 64}
VALUE_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "boolean": (bool,),
    "blob": (bytes,),
    "timestamp": (int, float),
}
"""Python types that a scalar of each shape type may have as a value."""


def serialization_error(message: str) -> ServiceError:
    """The answer to a body that cannot be read."""
    return ServiceError("SerializationException", message, 400)


def read_tree(shape: Shape, node: Any, path: str, readers: Mapping[str, Reader]) -> Any:
    """The value of `node`. Unknown members and nulls of structures and maps are left out.

    Raises ServiceError SerializationException for a node of another type than `shape`'s.
    """
    if isinstance(shape, StructureShape):
        members = shape.members
        return {
            name: read_tree(members[name], item, f"{path}.{name}", readers)
            for name, item in _expect(node, dict, path).items()
            if name in members and item is not None
        }
    if isinstance(shape, ListShape):
        items = enumerate(_expect(node, list, path), 1)
        return [read_tree(shape.member, item, f"{path}.{at}", readers) for at, item in items]
    if isinstance(shape, MapShape):
        return {
            _text(key): read_tree(shape.value, item, f"{path}.{key}", readers)
            for key, item in _expect(node, dict, path).items()
            if item is not None
        }
    try:
        return readers[shape.type_name](node)
    except (ValueError, OverflowError) as error:
        raise serialization_error(f"{error} at '{path.lstrip('.')}'") from None


def _expect(node: Any, kind: type, path: str) -> Any:
    if not isinstance(node, kind):
        wanted = "a list" if kind is list else "a structure"
        where = path.lstrip(".") or "the top of the body"
        raise serialization_error(
            f"{type_word(node)} can not be converted to {wanted} at '{where}'"
        )
    return node


def type_word(node: object) -> str:
    """What AWS calls the type of a JSON value in its messages."""
    if node is None:
        return "NULL_VALUE"
    if isinstance(node, bool):
        return f"{str(node).upper()}_VALUE"
    words = {str: "STRING_VALUE", int: "NUMBER_VALUE", float: "NUMBER_VALUE", dict: "START_OBJECT"}
    return words.get(type(node), "START_ARRAY" if isinstance(node, list) else "VALUE")


def _build_type_error(node: object, wanted: str) -> ValueError:
    return ValueError(f"{type_word(node)} can not be converted to {wanted}")


def _text(node: Any) -> str:
    if isinstance(node, str):
        return node
    raise _build_type_error(node, "a String")


def _truth(node: Any) -> bool:
    if isinstance(node, bool):
        return node
    raise _build_type_error(node, "a Boolean")


def _whole(node: Any) -> int:
    if isinstance(node, int) and not isinstance(node, bool):
        return node
    if isinstance(node, float) and node.is_integer():
        return int(node)
    raise _build_type_error(node, "an Integer")


def integer_reader(type_name: str, parse: Callable[[Any], int] = _whole) -> Reader:
    """A reader of integers that refuses those outside the 32 or 64 bits of `type_name`."""
    limit = 1 << (INTEGER_BITS[type_name] - 1)

    def read(node: Any) -> int:
        value = parse(node)
        if not -limit <= value < limit:
            raise ValueError(f"{value} does not fit {INTEGER_BITS[type_name]} bits")
        return value

    return read


def finite(node: Any) -> float:
    """A number as a float. Raises ValueError for NaN, infinities and other types."""
    if isinstance(node, bool) or not isinstance(node, int | float):
        raise _build_type_error(node, "a Number")
    value = float(node)
    if not math.isfinite(value):
        raise ValueError(f"{node} is not a finite number")
    return value


def from_base64(node: Any) -> bytes:
    """The bytes behind a base64 text."""
    try:
        return base64.b64decode(_text(node), validate=True)
    except binascii.Error:
        raise ValueError("STRING_VALUE is not valid base64") from None


JSON_READERS: Mapping[str, Reader] = {
    "string": _text,
    "integer": integer_reader("integer"),
    "long": integer_reader("long"),
    "float": finite,
    "double": finite,
    "boolean": _truth,
    "blob": from_base64,
    "timestamp": finite,
}


def write_tree(shape: Shape, value: Any, path: str, writers: Mapping[str, Reader]) -> Any:
    """The tree of `value`, for an encoder. `writers` converts scalars by shape type, if needed.

    Raises TypeError or ValueError if `value` breaks `shape`, which is a defect of the platform.
    """
    if isinstance(shape, StructureShape):
        members = present_members(shape, value, path)
        return {
            name: write_tree(member, item, f"{path}.{name}", writers)
            for name, member, item in members
        }
    check_type(shape, value, path)
    if isinstance(shape, ListShape):
        return [write_tree(shape.member, item, f"{path}[]", writers) for item in value]
    if isinstance(shape, MapShape):
        return {
            key: write_tree(shape.value, item, f"{path}.{key}", writers)
            for key, item in value.items()
        }
    write = writers.get(shape.type_name)
    return write(value) if write else value


def present_members(
    shape: StructureShape, value: Any, path: str
) -> Iterator[tuple[str, Shape, Any]]:
    """Name, shape and value of every member that is not None, in the model's order.

    Raises TypeError unless the value is a mapping, ValueError for unknown and missing members.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{path}: {shape.name} is a structure, got {type(value).__name__}")
    unknown = sorted(value.keys() - shape.members.keys())
    missing = [name for name in shape.required_members if value.get(name) is None]
    if unknown or missing:
        raise ValueError(f"{path}: {shape.name} has unknown {unknown} and lacks {missing}")
    for name, member in shape.members.items():
        if value.get(name) is not None:
            yield name, member, value[name]


def check_type(shape: Shape, value: Any, path: str) -> None:
    """Raise TypeError where `value` cannot be a value of `shape`, ValueError where out of range."""
    kinds: tuple[type, ...]
    if isinstance(shape, ListShape):
        kinds = (list, tuple)
    elif isinstance(shape, MapShape):
        kinds = (Mapping,)
    else:
        kinds = VALUE_TYPES[shape.type_name]
    odd_boolean = isinstance(value, bool) and bool not in kinds
    if not isinstance(value, kinds) or odd_boolean:
        raise TypeError(f"{path}: {shape.name} is a {shape.type_name}, got {value!r:.100}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path}: {shape.name} must be finite, got {value}")
