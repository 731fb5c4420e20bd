"""The form of spool files: read as written, also where a kill has cut one."""

import pytest
from tests.cases import case, cases
from tests.unit.dataplane.capture.capture_sample import AT, CAPTURE, KEY, record_head

from hostelry.dataplane.capture.spool_file import (
    CapturedRecord,
    SpoolError,
    SpoolHead,
    head_bytes,
    object_uri,
    read_head,
    read_records,
    record_prefix,
)

HEAD = SpoolHead(key=KEY, capture=CAPTURE, object_uri="s3://b/k", opened_at=AT)
RECORDS = [
    CapturedRecord(head=record_head(inference_id="x"), input=b"in", output=b"\x00\xff"),
    CapturedRecord(head=record_head(custom_attributes="a=1"), input=b"", output=b""),
    CapturedRecord(head=record_head(input_type="text/csv"), input=b"1\n", output=b"2\n"),
]


def written(records: list[CapturedRecord]) -> bytes:
    parts = [
        record_prefix(record.head, len(record.input), len(record.output))
        + record.input
        + record.output
        for record in records
    ]
    return head_bytes(HEAD) + b"".join(parts)


def test_a_file_is_read_as_it_was_written() -> None:
    data = written(RECORDS)
    head, start = read_head(data)
    assert (head, list(read_records(data, start))) == (HEAD, RECORDS)


def test_a_file_cut_anywhere_has_the_records_before_the_cut() -> None:
    data, ends = written(RECORDS), [len(written(RECORDS[:number])) for number in range(4)]
    for cut in range(ends[0], len(data)):
        head, start = read_head(data[:cut])
        whole = sum(end <= cut for end in ends[1:])
        assert (head, list(read_records(data[:cut], start))) == (HEAD, RECORDS[:whole])


@cases(
    "tail",
    case("zeros, as after a power cut", b"\0" * 64),
    case("no JSON", b"\0\0\0\2\0\0\0\0\0\0\0\0{]"),
    case("lengths beyond the end", b"\xff" * 12),
)
def test_what_is_no_record_ends_the_file(tail: bytes) -> None:
    data = written(RECORDS) + tail
    assert list(read_records(data, read_head(data)[1])) == RECORDS


@cases(
    "data",
    case("empty", b""),
    case("no length", b"\0\0"),
    case("cut", head_bytes(HEAD)[:-1]),
    case("another head", b"\0\0\0\2{}"),
    case("too long", b"\xff\xff\xff\xff" + b"{" * 100_000),
)
def test_a_file_without_a_head_is_an_error(data: bytes) -> None:
    with pytest.raises(SpoolError):
        read_head(data)


def test_an_objects_key_has_endpoint_variant_hour_and_instant() -> None:
    key = object_uri(CAPTURE, KEY, AT + 0.25, "u-1")
    assert key == "s3://seen/here/e/v/2023/11/14/22/13-20-250-u-1.jsonl"
