"""Requests that write an object, by their heads."""

from tests.cases import case, cases

from hostelry.s3.head import parse_head
from hostelry.s3.object_events import is_notification_call, removed_bucket, write_of


def head_of(line: str, *headers: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", "Host: h", *headers, "", ""]).encode()


@cases(
    "line, headers, kind",
    case("a put", "PUT /b/k?x-id=PutObject", (), "Put"),
    case("a presigned put", "PUT /b/k?X-Amz-Signature=s", (), "Put"),
    case("a copy", "PUT /b/k", ("x-amz-copy-source: b/j",), "Copy"),
    case("an upload's end", "POST /b/k?uploadId=1", (), "CompleteMultipartUpload"),
    case("an upload's start", "POST /b/k?uploads=", (), None),
    case("a part", "PUT /b/k?partNumber=1&uploadId=1", (), None),
    case("tags", "PUT /b/k?tagging=", (), None),
    case("a list of who may read it", "PUT /b/k?acl", (), None),
    case("a bucket", "PUT /b", (), None),
    case("a bucket with a slash", "PUT /b/", (), None),
    case("a read", "GET /b/k", (), None),
    case("a removal of several", "POST /b?delete=", (), None),
)
def test_a_request_writes_an_object_or_none(
    line: str, headers: tuple[str, ...], kind: str | None
) -> None:
    found = write_of(parse_head(head_of(line, *headers)))
    assert (found and found.kind) == kind


@cases(
    "headers, size, chain",
    case("a plain body", ("Content-Length: 7",), 7, 0),
    case("a body in pieces", ("Content-Length: 99", "x-amz-decoded-content-length: 7"), 7, 0),
    case("a job's", ("Content-Length: 7", "X-Hostelry-Chain-Length: 2"), 7, 2),
    case("no number", ("X-Hostelry-Chain-Length: -1",), None, 0),
    case("a number too long", ("X-Hostelry-Chain-Length: 9999999",), None, 0),
    case("a size of 5,000 digits", ("x-amz-decoded-content-length: " + "9" * 5_000,), None, 0),
)
def test_a_head_has_the_size_and_the_chain_of_the_object(
    headers: tuple[str, ...], size: int | None, chain: int
) -> None:
    found = write_of(parse_head(head_of("PUT /b/a%20b/c%3F?x-id=PutObject", *headers)))
    assert found is not None
    assert (found.bucket, found.key, found.target) == ("b", "a b/c?", "/b/a%20b/c%3F")
    assert (found.size_bytes, found.chain_length) == (size, chain)


@cases(
    "line, bucket",
    case("the bucket", "DELETE /b", "b"),
    case("an object", "DELETE /b/k", None),
    case("a rule of the bucket", "DELETE /b?lifecycle=", None),
)
def test_a_request_removes_a_bucket_or_none(line: str, bucket: str | None) -> None:
    assert removed_bucket(parse_head(head_of(line))) == bucket


def test_a_call_on_a_notification_is_known_by_its_query() -> None:
    assert is_notification_call(parse_head(head_of("GET /b?notification")))
    assert not is_notification_call(parse_head(head_of("GET /b/notification")))
    assert not is_notification_call(parse_head(head_of("GET /b/k?notification")))
