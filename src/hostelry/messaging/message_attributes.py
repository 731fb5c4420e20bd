"""Message attributes: read from a request, measured and digested. PURE."""

import base64
import hashlib
import json
import re
import struct
from collections.abc import Mapping
from typing import Any

from hostelry.domain.messaging import AttributeValue

NAME = re.compile(r"(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)")
KIND = re.compile(r"(String|Number|Binary)(\.[^\x00-\x1f]{1,249})?")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?")
RESERVED = ("aws.", "amazon.")


class MessageAttributeError(ValueError):
    """An attribute is invalid. The message names it and the reason."""


def read_attributes(given: Mapping[str, Mapping[str, Any]] | None) -> dict[str, AttributeValue]:
    """Parse the attributes of a request. Raises MessageAttributeError."""
    return {name: _read_value(name, it) for name, it in (given or {}).items()}


def size_bytes(attributes: Mapping[str, AttributeValue]) -> int:
    """The part of a message's size that its attributes add: names, types and values."""
    return sum(
        len(name.encode()) + len(it.kind.encode()) + len(get_content(it))
        for name, it in attributes.items()
    )


def get_content(value: AttributeValue) -> bytes:
    """Return the bytes of a value."""
    return base64.b64decode(value.value) if value.is_binary else value.value.encode()


def get_members(value: AttributeValue) -> dict[str, Any]:
    """Return the value in AWS's form."""
    if value.is_binary:
        return {"DataType": value.kind, "BinaryValue": get_content(value)}
    return {"DataType": value.kind, "StringValue": value.value}


def digest_attributes(attributes: Mapping[str, AttributeValue]) -> str:
    """Return the MD5 that SQS answers and clients check.

    Source: Amazon SQS Developer Guide, "Calculating the MD5 message digest for message attributes".
    """
    encoded = bytearray()
    for name, it in sorted(attributes.items()):
        for part in (name.encode(), it.kind.encode()):
            encoded += struct.pack("!I", len(part)) + part
        content = get_content(it)
        encoded += (b"\x02" if it.is_binary else b"\x01") + struct.pack("!I", len(content))
        encoded += content
    return hashlib.md5(bytes(encoded), usedforsecurity=False).hexdigest()


def _read_value(name: str, given: Mapping[str, Any]) -> AttributeValue:
    if not NAME.fullmatch(name) or name.lower().startswith(RESERVED):
        raise MessageAttributeError(f"The message attribute name '{name:.256}' is invalid.")
    kind = given.get("DataType") or ""
    if not KIND.fullmatch(kind):
        raise MessageAttributeError(
            f"The message attribute '{name}' has an invalid message attribute type, the set of"
            " supported type prefixes is Binary, Number, and String."
        )
    for refused in ("StringListValues", "BinaryListValues"):
        if given.get(refused):
            raise MessageAttributeError(f"{refused} of '{name}': not implemented, as in SQS itself")
    member = "BinaryValue" if kind.startswith("Binary") else "StringValue"
    value = given.get(member)
    if not value:
        raise MessageAttributeError(
            f"The message attribute '{name}' must contain a non-empty {member} for the message"
            f" attribute type '{kind}'."
        )
    if isinstance(value, bytes):
        return AttributeValue(kind=kind, value=base64.b64encode(value).decode())
    if kind.startswith("Number") and not NUMBER.fullmatch(value):
        raise MessageAttributeError(f"Could not cast message attribute '{name}' value to number.")
    if kind == "String.Array":
        _check_array(name, value)
    return AttributeValue(kind=kind, value=str(value))


def _check_array(name: str, value: str) -> None:
    try:
        content = json.loads(value)
    except (ValueError, RecursionError):
        content = None
    plain = str | int | float | bool | None
    if not isinstance(content, list) or not all(isinstance(it, plain) for it in content):
        raise MessageAttributeError(
            f"The message attribute '{name}' of type String.Array must be a JSON array of strings,"
            " numbers, booleans or null."
        )
