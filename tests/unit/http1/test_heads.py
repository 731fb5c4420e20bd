"""Heads as bytes: values cannot add lines, and no head has two readings."""

import pytest
from tests.cases import case, cases

from hostelry.http1.heads import (
    MalformedHeadError,
    build_answer,
    build_request_head,
    parse_answer_head,
    parse_request_head,
)


def test_a_written_request_is_read_back() -> None:
    raw = build_request_head("PUT", "/b/k?x=%20", {"Host": "h", "X-Ä": "a\r\nEvil: 1"}, 3)
    found = parse_request_head(raw.replace("Ä".encode("latin-1"), b"A"))
    assert (found.method, found.target) == ("PUT", "/b/k?x=%20")
    assert found.headers == (("Host", "h"), ("X-A", "a Evil: 1"), ("Content-Length", "3"))


@cases(
    "status, has_body, answer",
    case("whole", 200, True, b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 2\r\n\r\nhi"),
    case("to HEAD", 404, False, b"HTTP/1.1 404 Not Found\r\nA: b\r\nContent-Length: 2\r\n\r\n"),
    case("of an unknown status", 499, True,
         b"HTTP/1.1 499 Unknown\r\nA: b\r\nContent-Length: 2\r\n\r\nhi"),
)  # fmt: skip
def test_a_whole_answer(status: int, has_body: bool, answer: bytes) -> None:
    assert build_answer(status, {"A": "b"}, b"hi", has_body=has_body) == answer


@cases(
    "raw",
    case("another protocol", b"SSH-2.0\r\n\r\n"),
    case("another version", b"GET / HTTP/2.0\r\nHost: h\r\n\r\n"),
    case("no end", b"GET / HTTP/1.1\r\nHost: h\r\n"),
    case("a space in the target", b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n"),
    case("a space before a colon", b"GET / HTTP/1.1\r\nHost : h\r\n\r\n"),
    case("a folded line", b"GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n"),
    case("a bare line feed", b"GET / HTTP/1.1\r\nHost: h\nEvil: 1\r\n\r\n"),
    case("a zero byte", b"GET / HTTP/1.1\r\nHost: h\0\r\n\r\n"),
    case("a length with a sign", b"PUT / HTTP/1.1\r\nContent-Length: +1\r\n\r\n"),
    case("an endless length", b"PUT / HTTP/1.1\r\nContent-Length: %b\r\n\r\n" % (b"9" * 30)),
    case("two lengths", b"PUT / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"),
    case("two framings",
         b"PUT / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
    case("an unknown coding", b"PUT / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n"),
)  # fmt: skip
def test_malformed_heads_of_requests(raw: bytes) -> None:
    with pytest.raises(MalformedHeadError):
        parse_request_head(raw)


def test_a_request_to_upgrade_is_read_as_any_other() -> None:
    raw = b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert parse_request_head(raw).target == "/x"


def test_the_head_of_an_answer() -> None:
    raw = b'HTTP/1.1 206 Partial\r\nETag: "a"\r\nContent-Length: 5\r\n\r\n'
    assert parse_answer_head(raw) == (206, {"etag": '"a"', "content-length": "5"})
    with pytest.raises(MalformedHeadError):
        parse_answer_head(b"HTTP/1.1 200 OK\r\nETag: a\r\n")
    with pytest.raises(MalformedHeadError):
        parse_answer_head(b"220 smtp\r\n\r\n")
