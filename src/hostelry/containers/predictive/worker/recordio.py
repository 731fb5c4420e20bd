"""AWS's recordio-protobuf: framed records of tensors, read and written without a schema's code.

A frame: the magic number and the record's length, little-endian, the record, up to 3 bytes so that
the length is a multiple of 4. A record is a protobuf message:

    Record   1: features, 2: label; each a map of text to Value
    Value    2: 32-bit floats, 3: 64-bit floats, 7: 32-bit integers
    tensor   1: values, 2: keys (a sparse tensor has them), 3: shape

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
NUMBERS = {2: "<f4", 3: "<f8", 7: "<i4"}  # the tensors of a Value, and numpy's names
INTEGERS = 7
MAX_COLUMNS = 1 << 31


def features_of(body: bytes) -> Any:
    """The records' features, one row each: an array, or a CSR matrix if a record is sparse.

    Raises ValueError for anything that is no such body.
    """
    numpy = importlib.import_module("numpy")
    rows = [numbered_row(number, record) for number, record in enumerate(records(body), 1)]
    if not rows:
        raise ValueError("the body has no record with features")
    if all(keys is None for _, keys, _ in rows):
        return numpy.vstack([values.reshape(1, -1) for values, _, _ in rows])
    width, indices, starts = 0, [], [0]
    for values, keys, columns in rows:
        found = numpy.arange(len(values)) if keys is None else keys
        if len(found) != len(values):
            raise ValueError(f"a record has {len(found)} keys for {len(values)} values")
        width = max(width, columns, int(found.max()) + 1 if len(found) else 0)
        indices.append(found)
        starts.append(starts[-1] + len(found))
    if width > MAX_COLUMNS:
        raise ValueError(f"a record has a column {width - 1}; at most {MAX_COLUMNS - 1}")
    data = numpy.concatenate([values for values, _, _ in rows])
    sparse = importlib.import_module("scipy.sparse")
    parts = (data, numpy.concatenate(indices).astype("<i8"), starts)
    return sparse.csr_matrix(parts, shape=(len(rows), width))


def records(body: bytes) -> Iterator[bytes]:
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


def numbered_row(number: int, record: bytes) -> tuple[Any, Any, int]:
    """As `features_row`; the error names the record."""
    try:
        return features_row(record)
    except ValueError as error:
        raise ValueError(f"record {number}: {error}") from None


def features_row(record: bytes) -> tuple[Any, Any, int]:
    """Values, keys (None: dense) and declared columns of a record's `values`; ValueError."""
    for number, entry in fields(record):
        if number != FEATURES or not isinstance(entry, bytes):
            continue
        pair = dict(fields(entry))
        if pair.get(1) == b"values" and isinstance(pair.get(2), bytes):
            return tensor(pair[2])
    raise ValueError("it has no features with the name values")


def tensor(value: bytes) -> tuple[Any, Any, int]:
    """Values, keys (None: dense) and declared columns of a Value."""
    numpy = importlib.import_module("numpy")
    for number, content in fields(value):
        if number not in NUMBERS or not isinstance(content, bytes):
            continue
        parts: dict[int, list[Any]] = {VALUES: [], KEYS: [], SHAPE: []}
        for field, part in fields(content):
            if field in parts:
                parts[field].append(part)
        values = numbers(parts[VALUES], NUMBERS[number])
        keys, shape = integers(parts[KEYS]), integers(parts[SHAPE])
        columns = shape[-1] if shape else 0
        if shape and not keys and not len(values):
            keys_found: Any = numpy.zeros(0, "<i8")  # an empty sparse row
        else:
            keys_found = numpy.array(keys, "<u8") if keys else None
        return values, keys_found, columns
    raise ValueError("a record's values are no tensor of 32-bit or 64-bit numbers")


def numbers(parts: list[Any], kind: str) -> Any:
    """The numbers of a repeated field, packed or not."""
    numpy = importlib.import_module("numpy")
    if kind == "<i4":
        found = [each - (1 << 64) if each >> 63 else each for each in integers(parts)]
        return numpy.array(found, "<i8").astype("<i4")
    if not all(isinstance(each, bytes) for each in parts):
        raise ValueError("a tensor's values have another type than its name says")
    return numpy.frombuffer(b"".join(parts), kind)


def integers(parts: list[Any]) -> list[int]:
    """The whole numbers of a repeated field, packed or not."""
    found: list[int] = []
    for part in parts:
        if isinstance(part, int):
            found.append(part)
            continue
        at = 0
        while at < len(part):
            number, at = varint(part, at)
            found.append(number)
    return found


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value (bytes, or an integer) of each field of a protobuf message."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind == VARINT:
            number, at = varint(message, at)
            yield key >> 3, number
            continue
        if kind == COUNTED:
            length, at = varint(message, at)
        elif kind in (EIGHT_BYTES, FOUR_BYTES):
            length = 8 if kind == EIGHT_BYTES else 4
        else:
            raise ValueError(f"a record has a field of the unknown kind {kind}")
        if at + length > len(message):
            raise ValueError("a record has a field that is longer than the record")
        yield key >> 3, message[at : at + length]
        at += length


def varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and where the next thing begins."""
    number = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & ((1 << 64) - 1), at
        shift += 7
    raise ValueError("a record is cut in a number")


def labels_body(rows: list[dict[str, list[float]]]) -> bytes:
    """A record for each row, whose labels are 32-bit float tensors under their names."""
    return b"".join(framed(b"".join(label(*pair) for pair in row.items())) for row in rows)


def features_body(array_like: Any, labels: Any = None) -> bytes:
    """A record for each row of an array or sparse matrix, with the row's label if there are labels.

    Raises TypeError for other values than 32- and 64-bit floats and 32-bit integers.
    """
    rows = array_like.reshape(1, -1) if len(array_like.shape) == 1 else array_like
    found = []
    for at in range(rows.shape[0]):
        if hasattr(rows, "tocsr"):
            row = rows[at].tocsr()
            record = tensor_field(FEATURES, row.data, row.indices.tolist(), [rows.shape[1]])
        else:
            record = tensor_field(FEATURES, rows[at])
        found.append(framed(record + (b"" if labels is None else tensor_field(LABEL, labels[at]))))
    return b"".join(found)


def tensor_field(field: int, values: Any, keys: Any = (), shape: Any = ()) -> bytes:
    """The tensor `values` of a record's features or label."""
    numpy = importlib.import_module("numpy")
    array = numpy.asarray(values).reshape(-1)
    kinds = [number for number, name in NUMBERS.items() if array.dtype == numpy.dtype(name)]
    if not kinds:
        raise TypeError(f"the values are {array.dtype}; a record has float32, float64 or int32")
    content = counted(VALUES, packed(array.tolist()) if kinds[0] == INTEGERS else array.tobytes())
    content += counted(KEYS, packed(keys)) if keys else b""
    content += counted(SHAPE, packed(shape)) if shape else b""
    return counted(field, counted(1, b"values") + counted(2, counted(kinds[0], content)))


def packed(values: Any) -> bytes:
    """Integers one after the other, as protobuf packs them."""
    return b"".join(encoded(each & ((1 << 64) - 1)) for each in values)


def framed(record: bytes) -> bytes:
    """A record in its frame."""
    return FRAME.pack(MAGIC, len(record)) + record + b"\0" * (-len(record) % 4)


def label(name: str, values: list[float]) -> bytes:
    """One label of a record."""
    floats = struct.pack(f"<{len(values)}f", *values)
    value = counted(2, counted(VALUES, floats))
    return counted(LABEL, counted(1, name.encode()) + counted(2, value))


def counted(number: int, content: bytes) -> bytes:
    """A field with its length."""
    return encoded(number << 3 | COUNTED) + encoded(len(content)) + content


def encoded(number: int) -> bytes:
    """A number as protobuf writes it."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
