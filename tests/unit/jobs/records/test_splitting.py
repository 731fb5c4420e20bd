import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.domain.transform_job import SplitType
from hostelry.jobs.records.splitting import (
    MAGIC_BYTES,
    RecordError,
    SplitRecord,
    build_splitter,
    crc32c,
    masked_crc32c,
)

URI = "s3://b/in/x"
LINE, RECORD_IO, TF_RECORD = SplitType.LINE, SplitType.RECORD_IO, SplitType.TF_RECORD


def split(kind: SplitType, body: bytes, step: int = 1, limit: int = 1000) -> list[SplitRecord]:
    """The records of a body that arrives in pieces of `step` bytes."""
    splitter = build_splitter(kind, URI, limit)
    found = []
    for begin in range(0, len(body), step):
        found += splitter.add_bytes(body[begin : begin + step])
    return found + splitter.finish()


def record_io(content: bytes, kind: int = 0) -> bytes:
    padding = bytes(-len(content) % 4)
    return MAGIC_BYTES + struct.pack("<I", kind << 29 | len(content)) + content + padding


def tf_record(content: bytes) -> bytes:
    return tf_head(len(content)) + content + struct.pack("<I", masked_crc32c(content))


def tf_head(num_bytes: int) -> bytes:
    length = struct.pack("<Q", num_bytes)
    return length + struct.pack("<I", masked_crc32c(length))


@cases(
    "kind, body, contents",
    case("none keeps the object whole", SplitType.NONE, b"a\nb\n", [b"a\nb\n"]),
    case("an empty object is one record", SplitType.NONE, b"", [b""]),
    case("lines", LINE, b"a\nb\n", [b"a", b"b"]),
    case("lines of DOS", LINE, b"a\r\nb\r\n", [b"a", b"b"]),
    case("a last line without its ending", LINE, b"a\nb", [b"a", b"b"]),
    case("an empty line is a record", LINE, b"a\n\nb\n", [b"a", b"", b"b"]),
    case("no line", LINE, b"", []),
    case("RecordIO without padding", RECORD_IO, record_io(b"abcde"), [b"abcde"]),
    case(
        "parts of one RecordIO record are joined",
        RECORD_IO,
        record_io(b"ab", 1) + record_io(b"c", 2) + record_io(b"d", 3) + record_io(b""),
        [b"ab" + MAGIC_BYTES + b"c" + MAGIC_BYTES + b"d", b""],
    ),
    case("TFRecord, also empty", TF_RECORD, tf_record(b"abc") + tf_record(b""), [b"abc", b""]),
)
def test_records_are_split_wherever_the_pieces_end(
    kind: SplitType, body: bytes, contents: list[bytes]
) -> None:
    for step in (1, 3, 1000):
        found = split(kind, body, step)
        assert [it.content for it in found] == contents
        assert b"".join(it.raw for it in found) == body


@cases(
    "kind, body, named",
    case("a long last line", LINE, b"ok\n" + b"x" * 21, "Record 2 of s3://b/in/x"),
    case("a long line", LINE, b"x" * 21 + b"\n", "limit is 20 bytes"),
    case("a large object", SplitType.NONE, b"x" * 21, "Record 1 of"),
    case("another format", RECORD_IO, b"no recordio", "SplitType right"),
    case("a cut RecordIO", RECORD_IO, record_io(b"abcd")[:-1], "cut off"),
    case("a part alone", RECORD_IO, record_io(b"a", 1), "last part is missing"),
    case("a last part first", RECORD_IO, record_io(b"a", 3), "out of place"),
    case("a large RecordIO", RECORD_IO, record_io(b"x" * 30), "at least 40 bytes"),
    case("no TFRecord", TF_RECORD, b"x" * 12, "wrong checksum"),
    case("a flipped byte", TF_RECORD, tf_record(b"ab")[:-1] + b"!", "is damaged"),
    case("a cut TFRecord", TF_RECORD, tf_record(b"ab")[:-1], "cut off"),
    case(
        "a TFRecord whose length, with a right checksum, is huge",
        TF_RECORD,
        tf_head(2**63) + b"ab",
        f"Record 1 of s3://b/in/x has at least {2**63 + 16} bytes; the limit is 20",
    ),
)
def test_what_is_no_record_is_named(kind: SplitType, body: bytes, named: str) -> None:
    for step in (1, 1000):
        with pytest.raises(RecordError, match=named):
            split(kind, body, step, limit=20)


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_framed_records_come_back(contents: list[bytes], step: int) -> None:
    for kind, framed in ((RECORD_IO, record_io), (TF_RECORD, tf_record)):
        body = b"".join(map(framed, contents))
        assert [it.content for it in split(kind, body, step)] == contents
