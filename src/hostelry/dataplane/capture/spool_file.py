"""The format of a spool file: a head, then records. Pure.

part      bytes
-------   ----------------------------------------------------------------------------
head      length (4), `SpoolHead` in JSON
record    lengths of the three parts (4 each), `RecordHead` in JSON, input, output

Lengths are big-endian. Bodies are kept as they came. The process that uploads encodes them. Only
the last record can be cut off by a kill, and it ends the file.
"""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from hostelry.base.json import decode
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.load import LoadKey

HEAD_LENGTH = struct.Struct(">I")
LENGTHS = struct.Struct(">III")
MAX_HEAD_BYTES = 64 * 1024


class SpoolError(ValueError):
    """The file has no readable head."""


class SpoolHead(msgspec.Struct, frozen=True, kw_only=True):
    """The key and the object of all records of a file."""

    key: LoadKey
    capture: DataCapture
    object_uri: str
    opened_at: float


class RecordHead(msgspec.Struct, frozen=True, kw_only=True):
    """A captured request without its bodies. Types are the values of Content-Type.

    `event_id` is a UUID. Files of earlier releases have none.
    """

    at: float
    event_id: str | None = None
    inference_id: str | None = None
    custom_attributes: str | None = None
    input_type: str | None = None
    output_type: str | None = None


class CapturedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A captured request. A side that is not captured is empty."""

    head: RecordHead
    input: bytes
    output: bytes


_encode = msgspec.json.Encoder().encode


def head_bytes(head: SpoolHead) -> bytes:
    """Build the beginning of a file."""
    text = _encode(head)
    return HEAD_LENGTH.pack(len(text)) + text


def record_prefix(head: RecordHead, input_bytes: int, output_bytes: int) -> bytes:
    """Build a record without its bodies, which follow: input, then output."""
    text = _encode(head)
    return LENGTHS.pack(len(text), input_bytes, output_bytes) + text


def object_uri(capture: DataCapture, key: LoadKey, at: float, unique: str) -> str:
    """Build the URI of the object for records from `at` on. `unique` is a UUID.

    Source: "Capture data from real-time endpoint" in the SageMaker developer guide.
    """
    when = datetime.fromtimestamp(at, UTC)
    name = f"{when:%M-%S}-{when.microsecond // 1000:03}-{unique}.jsonl"
    return f"{capture.uri}/{key.endpoint_name}/{key.variant_name}/{when:%Y/%m/%d/%H}/{name}"


def read_head(data: bytes) -> tuple[SpoolHead, int]:
    """Read the head of `data`, and return it with the offset of the records. Raises SpoolError."""
    if len(data) < HEAD_LENGTH.size:
        raise SpoolError("it ends before its head")
    (length,) = HEAD_LENGTH.unpack_from(data)
    end = HEAD_LENGTH.size + length
    if length > MAX_HEAD_BYTES or len(data) < end:
        raise SpoolError("it ends before its head")
    try:
        return decode(data[HEAD_LENGTH.size : end], SpoolHead), end
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SpoolError(f"its head cannot be read: {error}") from error


def read_records(data: bytes, start: int) -> Iterator[CapturedRecord]:
    """Read the records from `start` on, up to the first incomplete record."""
    while start + LENGTHS.size <= len(data):
        head_length, input_length, output_length = LENGTHS.unpack_from(data, start)
        head_end = start + LENGTHS.size + head_length
        input_end = head_end + input_length
        end = input_end + output_length
        if not head_length or end > len(data):
            return
        try:
            head = decode(data[start + LENGTHS.size : head_end], RecordHead)
        except (msgspec.MsgspecError, UnicodeDecodeError):  # the disk lost bytes in a crash
            return
        yield CapturedRecord(head=head, input=data[head_end:input_end], output=data[input_end:end])
        start = end
