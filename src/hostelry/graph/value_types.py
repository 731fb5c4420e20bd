"""Types of values between steps, as far as they are known before a call. Pure."""

from collections.abc import Iterable
from enum import Enum
from typing import Any


class ValueType(Enum):
    """The type of a value; ANY where only the call will show it."""

    ANY = "any value"
    NULL = "null"
    BOOLEAN = "a boolean"
    NUMBER = "a number"
    TEXT = "a text"
    BYTES = "bytes"
    LIST = "a list"
    OBJECT = "an object"


def type_of_value(value: Any) -> ValueType:
    """The type of a value that is there."""
    for kinds, found in (
        (bool, ValueType.BOOLEAN),
        ((int, float), ValueType.NUMBER),
        (str, ValueType.TEXT),
        ((bytes, bytearray, memoryview), ValueType.BYTES),
        (list, ValueType.LIST),
        (dict, ValueType.OBJECT),
    ):
        if isinstance(value, kinds):
            return found
    return ValueType.NULL if value is None else ValueType.ANY


def common_type(types: Iterable[ValueType]) -> ValueType:
    """The one type of all; ANY where they differ."""
    found = set(types)
    return found.pop() if len(found) == 1 else ValueType.ANY
