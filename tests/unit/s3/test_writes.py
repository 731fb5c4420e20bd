"""Requests that write an object, by their heads."""

import pytest

from hostelry.s3.head import parse_head
from hostelry.s3.object_events import is_notification_call, removed_bucket, write_of


def head_of(line: str, *headers: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", "Host: h", *headers, "", ""]).encode()


@pytest.mark.parametrize(
    ("line", "headers", "kind"),
    [
        pytest.param("PUT /b/k?x-id=PutObject", (), "Put", id="a put"),
        pytest.param("PUT /b/k?X-Amz-Signature=s", (), "Put", id="a presigned put"),
        pytest.param("PUT /b/k", ("x-amz-copy-source: b/j",), "Copy", id="a copy"),
        pytest.param("POST /b/k?uploadId=1", (), "CompleteMultipartUpload", id="an upload's end"),
        pytest.param("POST /b/k?uploads=", (), None, id="an upload's start"),
        pytest.param("PUT /b/k?partNumber=1&uploadId=1", (), None, id="a part"),
        pytest.param("PUT /b/k?tagging=", (), None, id="tags"),
        pytest.param("PUT /b/k?acl", (), None, id="a list of who may read it"),
        pytest.param("PUT /b", (), None, id="a bucket"),
        pytest.param("PUT /b/", (), None, id="a bucket with a slash"),
        pytest.param("GET /b/k", (), None, id="a read"),
        pytest.param("POST /b?delete=", (), None, id="a removal of several"),
    ],
)
def test_a_request_writes_an_object_or_none(
    line: str, headers: tuple[str, ...], kind: str | None
) -> None:
    found = write_of(parse_head(head_of(line, *headers)))
    assert (found and found.kind) == kind


@pytest.mark.parametrize(
    ("headers", "size", "chain"),
    [
        pytest.param(("Content-Length: 7",), 7, 0, id="a plain body"),
        pytest.param(
            ("Content-Length: 99", "x-amz-decoded-content-length: 7"), 7, 0, id="a body in pieces"
        ),
        pytest.param(("Content-Length: 7", "X-Hostelry-Chain-Length: 2"), 7, 2, id="a job's"),
        pytest.param(("X-Hostelry-Chain-Length: -1",), None, 0, id="no number"),
        pytest.param(("X-Hostelry-Chain-Length: 9999999",), None, 0, id="a number too long"),
        pytest.param(
            ("x-amz-decoded-content-length: " + "9" * 5_000,), None, 0, id="a size of 5,000 digits"
        ),
    ],
)
def test_a_head_has_the_size_and_the_chain_of_the_object(
    headers: tuple[str, ...], size: int | None, chain: int
) -> None:
    found = write_of(parse_head(head_of("PUT /b/a%20b/c%3F?x-id=PutObject", *headers)))
    assert found is not None
    assert (found.bucket, found.key, found.target) == ("b", "a b/c?", "/b/a%20b/c%3F")
    assert (found.size_bytes, found.chain_length) == (size, chain)


@pytest.mark.parametrize(
    ("line", "bucket"),
    [
        pytest.param("DELETE /b", "b", id="the bucket"),
        pytest.param("DELETE /b/k", None, id="an object"),
        pytest.param("DELETE /b?lifecycle=", None, id="a rule of the bucket"),
    ],
)
def test_a_request_removes_a_bucket_or_none(line: str, bucket: str | None) -> None:
    assert removed_bucket(parse_head(head_of(line))) == bucket


def test_a_call_on_a_notification_is_known_by_its_query() -> None:
    assert is_notification_call(parse_head(head_of("GET /b?notification")))
    assert not is_notification_call(parse_head(head_of("GET /b/notification")))
    assert not is_notification_call(parse_head(head_of("GET /b/k?notification")))
