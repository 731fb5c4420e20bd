"""Frames of InvokeEndpointWithResponseStream, as bytes without models or endpoints.

A frame, big-endian: total length u32, headers length u32, CRC-32 of those eight bytes, headers,
payload, CRC-32 of everything before it. A header: name length u8, name, type 7 (a string), value
length u16, value. Source: Smithy, Amazon event stream specification.
"""

import struct
from typing import Literal
from zlib import crc32

import msgspec

MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
_FRAME_OVERHEAD_BYTES = 16
_STRING_TYPE = 7
_LENGTHS = struct.Struct(">II")
_CHECKSUM = struct.Struct(">I")


def _header(name: str, value: str) -> bytes:
    return struct.pack(
        f">B{len(name)}sBH{len(value)}s",
        len(name),
        name.encode(),
        _STRING_TYPE,
        len(value),
        value.encode(),
    )


_PAYLOAD_PART = b"".join(
    (
        _header(":message-type", "event"),
        _header(":event-type", "PayloadPart"),
        _header(":content-type", "application/octet-stream"),
    )
)


def payload_part(data: bytes) -> bytes:
    """One frame with `data`, or several above `MAX_PAYLOAD_BYTES`."""
    if len(data) <= MAX_PAYLOAD_BYTES:
        return _frame(_PAYLOAD_PART, data)
    pieces = range(0, len(data), MAX_PAYLOAD_BYTES)
    return b"".join(_frame(_PAYLOAD_PART, data[at : at + MAX_PAYLOAD_BYTES]) for at in pieces)


def stream_exception(
    kind: Literal["ModelStreamError", "InternalStreamFailure"],
    message: str,
    error_code: str | None = None,
) -> bytes:
    """The frame that ends a stream with an error. ModelStreamError has the member `error_code`."""
    headers = b"".join(
        (
            _header(":message-type", "exception"),
            _header(":exception-type", kind),
            _header(":content-type", "application/json"),
        )
    )
    body = {"Message": message} | ({"ErrorCode": error_code} if error_code is not None else {})
    return _frame(headers, msgspec.json.encode(body))


def _frame(headers: bytes, payload: bytes) -> bytes:
    total_bytes = _FRAME_OVERHEAD_BYTES + len(headers) + len(payload)
    lengths = _LENGTHS.pack(total_bytes, len(headers))
    head = b"".join((lengths, _CHECKSUM.pack(crc32(lengths)), headers))
    return b"".join((head, payload, _CHECKSUM.pack(crc32(payload, crc32(head)))))
