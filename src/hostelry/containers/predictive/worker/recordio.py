"""AWS's recordio-protobuf: framed records of tensors, read and written without generated code.

A frame has the magic number, the record's length (both little-endian), the record, and up to 3
bytes of padding to a multiple of 4. A record is a protobuf message:

    Record   1: features, 2: label, each a map of text to Value
    Value    2: 32-bit floats, 3: 64-bit floats, 7: 32-bit integers
    tensor   1: values, 2: keys (of a sparse tensor), 3: shape

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/cdf-training.html (the record's schema).
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator
from typing import Any

FRAME = struct.Struct("<II")
MAGIC = 0xCED7230A
VARINT, EIGHT_BYTES, COUNTED, FOUR_BYTES = 0, 1, 2, 5
FEATURES, LABEL = 1, 2
VALUES, KEYS, SHAPE = 1, 2, 3
NUMBERS = {2: "<f4", 3: "<f8", 7: "<i4"}  # the tensors of a Value, with numpy's names
INTEGERS = 7
MAX_COLUMNS = 1 << 31


def decode_features(body: bytes) -> Any:
    """The records' features, one row each: an array, or a CSR matrix if a record is sparse.

    Raises ValueError if the body is invalid.
    """
    numpy = importlib.import_module("numpy")
    rows = [
        read_numbered_row(number, record) for number, record in enumerate(read_records(body), 1)
    ]
    if not rows:
        raise ValueError("the body has no record with features")
    if all(keys is None for _, keys, _ in rows):
        return numpy.vstack([values.reshape(1, -1) for values, _, _ in rows])
    width, indices, starts = 0, [], [0]
    for values, keys, columns in rows:
        keys = numpy.arange(len(values)) if keys is None else keys
        if len(keys) != len(values):
            raise ValueError(f"a record has {len(keys)} keys for {len(values)} values")
        width = max(width, columns, int(keys.max()) + 1 if len(keys) else 0)
        indices.append(keys)
        starts.append(starts[-1] + len(keys))
    if width > MAX_COLUMNS:
        raise ValueError(f"a record has a column {width - 1}; at most {MAX_COLUMNS - 1}")
    data = numpy.concatenate([values for values, _, _ in rows])
    sparse = importlib.import_module("scipy.sparse")
    parts = (data, numpy.concatenate(indices).astype("<i8"), starts)
    return sparse.csr_matrix(parts, shape=(len(rows), width))


def read_records(body: bytes) -> Iterator[bytes]:
    """Each record's bytes. Raises ValueError for a damaged frame."""
    at = 0
    while at < len(body):
        if at + FRAME.size > len(body):
            raise ValueError(f"the frame at byte {at} is cut")
        magic, length = FRAME.unpack_from(body, at)
        if magic != MAGIC:
            raise ValueError(f"the frame at byte {at} has no magic number of recordio")
        at += FRAME.size
        if at + length > len(body):
            raise ValueError(f"the record at byte {at} has {length} bytes, beyond the body")
        yield body[at : at + length]
        at += length + (-length % 4)


def read_numbered_row(number: int, record: bytes) -> tuple[Any, Any, int]:
    """Like `read_features`. The error names the record."""
    try:
        return read_features(record)
    except ValueError as error:
        raise ValueError(f"record {number}: {error}") from None


def read_features(record: bytes) -> tuple[Any, Any, int]:
    """Values, keys (None: dense) and declared columns of a record. Raises ValueError."""
    for number, entry in read_fields(record):
        if number != FEATURES or not isinstance(entry, bytes):
            continue
        pair = dict(read_fields(entry))
        if pair.get(1) == b"values" and isinstance(pair.get(2), bytes):
            return read_tensor(pair[2])
    raise ValueError("it has no features with the name values")


def read_tensor(value: bytes) -> tuple[Any, Any, int]:
    """Values, keys (None: dense) and declared columns of a Value."""
    numpy = importlib.import_module("numpy")
    for number, content in read_fields(value):
        if number not in NUMBERS or not isinstance(content, bytes):
            continue
        parts: dict[int, list[Any]] = {VALUES: [], KEYS: [], SHAPE: []}
        for field, part in read_fields(content):
            if field in parts:
                parts[field].append(part)
        values = read_numbers(parts[VALUES], NUMBERS[number])
        keys, shape = read_integers(parts[KEYS]), read_integers(parts[SHAPE])
        columns = shape[-1] if shape else 0
        if shape and not keys and not len(values):
            return values, numpy.zeros(0, "<i8"), columns  # an empty sparse row
        return values, numpy.array(keys, "<u8") if keys else None, columns
    raise ValueError("a record's values are no tensor of 32-bit or 64-bit numbers")


def read_numbers(parts: list[Any], kind: str) -> Any:
    """The numbers of a repeated field, packed or not."""
    numpy = importlib.import_module("numpy")
    if kind == "<i4":
        signed = [it - (1 << 64) if it >> 63 else it for it in read_integers(parts)]
        return numpy.array(signed, "<i8").astype("<i4")
    if not all(isinstance(part, bytes) for part in parts):
        raise ValueError("a tensor's values have another type than its name says")
    return numpy.frombuffer(b"".join(parts), kind)


def read_integers(parts: list[Any]) -> list[int]:
    """The whole numbers of a repeated field, packed or not."""
    numbers: list[int] = []
    for part in parts:
        if isinstance(part, int):
            numbers.append(part)
            continue
        at = 0
        while at < len(part):
            number, at = read_varint(part, at)
            numbers.append(number)
    return numbers


def read_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value (bytes, or an integer) of each field of a protobuf message."""
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        kind = key & 7
        if kind == VARINT:
            number, at = read_varint(message, at)
            yield key >> 3, number
            continue
        if kind == COUNTED:
            length, at = read_varint(message, at)
        elif kind in (EIGHT_BYTES, FOUR_BYTES):
            length = 8 if kind == EIGHT_BYTES else 4
        else:
            raise ValueError(f"a record has a field of the unknown kind {kind}")
        if at + length > len(message):
            raise ValueError("a record has a field that is longer than the record")
        yield key >> 3, message[at : at + length]
        at += length


def read_varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and the position after it."""
    number = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & ((1 << 64) - 1), at
        shift += 7
    raise ValueError("a record is cut in a number")


def encode_labels(rows: list[dict[str, list[float]]]) -> bytes:
    """One record per row. Its labels are 32-bit float tensors by name."""
    return b"".join(frame(b"".join(encode_label(*pair) for pair in row.items())) for row in rows)


def encode_features(array_like: Any, labels: Any = None) -> bytes:
    """One record per row of an array or sparse matrix, with the row's label if labels are given.

    Raises TypeError if the values are not 32- or 64-bit floats or 32-bit integers.
    """
    rows = array_like.reshape(1, -1) if len(array_like.shape) == 1 else array_like
    records = []
    for at in range(rows.shape[0]):
        if hasattr(rows, "tocsr"):
            row = rows[at].tocsr()
            record = encode_tensor(FEATURES, row.data, row.indices.tolist(), [rows.shape[1]])
        else:
            record = encode_tensor(FEATURES, rows[at])
        records.append(
            frame(record + (b"" if labels is None else encode_tensor(LABEL, labels[at])))
        )
    return b"".join(records)


def encode_tensor(field: int, values: Any, keys: Any = (), shape: Any = ()) -> bytes:
    """The tensor named `values` of a record's features or label."""
    numpy = importlib.import_module("numpy")
    array = numpy.asarray(values).reshape(-1)
    kinds = [number for number, name in NUMBERS.items() if array.dtype == numpy.dtype(name)]
    if not kinds:
        raise TypeError(f"the values are {array.dtype}; a record has float32, float64 or int32")
    content = pack_field(
        VALUES, pack_integers(array.tolist()) if kinds[0] == INTEGERS else array.tobytes()
    )
    content += pack_field(KEYS, pack_integers(keys)) if keys else b""
    content += pack_field(SHAPE, pack_integers(shape)) if shape else b""
    return pack_field(
        field, pack_field(1, b"values") + pack_field(2, pack_field(kinds[0], content))
    )


def pack_integers(values: Any) -> bytes:
    """The integers in protobuf's packed form."""
    return b"".join(pack_varint(each & ((1 << 64) - 1)) for each in values)


def frame(record: bytes) -> bytes:
    """Put the record into a frame."""
    return FRAME.pack(MAGIC, len(record)) + record + b"\0" * (-len(record) % 4)


def encode_label(name: str, values: list[float]) -> bytes:
    """One label of a record."""
    floats = struct.pack(f"<{len(values)}f", *values)
    value = pack_field(2, pack_field(VALUES, floats))
    return pack_field(LABEL, pack_field(1, name.encode()) + pack_field(2, value))


def pack_field(number: int, content: bytes) -> bytes:
    """A field with its number and length."""
    return pack_varint(number << 3 | COUNTED) + pack_varint(len(content)) + content


def pack_varint(number: int) -> bytes:
    """The number as a protobuf varint."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
