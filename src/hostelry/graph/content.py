"""Bodies as values by content type, and types of values as far as known before a call. Pure.

application/json          any value but bytes
application/jsonlines     a list
text/csv                  rows: lists of numbers and texts
text/...                  a text
any other                 bytes
"""

import csv
import io
import math
import sys
from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec

from hostelry.base.errors import HostelryError

csv.field_size_limit(sys.maxsize)  # the limit of the body also limits a cell
JSON, JSON_LINES, CSV, OCTETS = (
    "application/json", "application/jsonlines", "text/csv", "application/octet-stream",
)  # fmt: skip
_JSON_NAMES = frozenset({JSON, "text/json"})


class ValueType(Enum):
    """The type of a value. ANY if it is unknown before the call."""

    ANY = "any value"
    NULL = "null"
    BOOLEAN = "a boolean"
    NUMBER = "a number"
    TEXT = "a text"
    BYTES = "bytes"
    LIST = "a list"
    OBJECT = "an object"


def find_type(value: Any) -> ValueType:
    """The type of a value."""
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
    """The type of all, or ANY if they differ."""
    distinct = set(types)
    return distinct.pop() if len(distinct) == 1 else ValueType.ANY


class ContentError(HostelryError):
    """A body does not have its content type, or a value cannot have that content type."""


def media_type(content_type: str) -> str:
    """The content type without parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def find_content_type(content_type: str) -> ValueType:
    """The type of the values of bodies with this content type."""
    kind = media_type(content_type)
    if kind in _JSON_NAMES or kind.endswith("+json"):
        return ValueType.ANY
    if kind in (CSV, JSON_LINES):
        return ValueType.LIST
    return ValueType.TEXT if kind.startswith("text/") else ValueType.BYTES


def can_be_written(type: ValueType, content_type: str) -> bool:
    """True if a value of that type may have the content type."""
    if type is ValueType.ANY:
        return True
    wanted = find_content_type(content_type)
    if wanted is ValueType.ANY:
        return type is not ValueType.BYTES
    if media_type(content_type) == CSV:
        return type in (ValueType.LIST, ValueType.NUMBER, ValueType.TEXT)
    return type is wanted


def read_body(body: bytes, content_type: str) -> Any:
    """The value of a body. Raises ContentError."""
    kind = media_type(content_type)
    wanted = find_content_type(kind)
    try:
        if kind == JSON_LINES:
            return msgspec.json.decode(b"[" + b",".join(_split_lines(body)) + b"]")
        if wanted is ValueType.ANY:
            return msgspec.json.decode(body)
        if kind == CSV:
            rows = csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""), strict=True)
            return [[_parse_cell(cell) for cell in row] for row in rows if row]
        return body.decode() if wanted is ValueType.TEXT else body
    except (msgspec.DecodeError, UnicodeDecodeError, csv.Error, RecursionError) as error:
        raise ContentError(f"the body is not {kind}: {error}") from None


def write_body(value: Any, content_type: str) -> bytes:
    """The body of a value. Raises ContentError."""
    kind, type = media_type(content_type), find_type(value)
    if not can_be_written(type, kind):
        raise ContentError(f"{type.value} cannot be sent as {kind}")
    try:
        return _encode(value, kind)
    except UnicodeEncodeError as error:
        raise ContentError(f"a text of the value is not Unicode: {error}") from None


def _encode(value: Any, kind: str) -> bytes:
    wanted = find_content_type(kind)
    if kind == JSON_LINES:
        return b"".join(_encode_json(row) + b"\n" for row in value)
    if kind == CSV:
        return _encode_csv(value)
    if wanted is ValueType.ANY:
        return _encode_json(value)
    return str(value).encode() if wanted is ValueType.TEXT else bytes(value)


def _encode_json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, RecursionError) as error:
        raise ContentError(f"the value is not JSON: {error}") from None


def _encode_csv(value: Any) -> bytes:
    rows = value if isinstance(value, list) else [[value]]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for row in rows:
        cells = row if isinstance(row, list) else [row]
        if any(isinstance(cell, (list, dict)) for cell in cells):
            raise ContentError("a list of more than two dimensions, or of objects, is not CSV")
        writer.writerow(cells)
    return written.getvalue().encode()


def _split_lines(body: bytes) -> list[bytes]:
    return [line for line in body.splitlines() if line.strip()]


def _parse_cell(text: str) -> float | int | str:
    try:
        return int(text) if len(text) < 19 else float(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text
