"""Bodies and values."""

from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.graph.content import ContentError, read_body, write_body


@cases(
    "body, kind, value",
    case("JSON", b'{"a": [1, null]}', "application/json", {"a": [1, None]}),
    case("JSON lines", b'{"a":1}\n\n{"b":2}', "application/jsonlines", [{"a": 1}, {"b": 2}]),
    case("CSV", b"1,2.5,x\n\n007,,nan\n", "text/csv; charset=utf-8",
        [[1, 2.5, "x"], [7, "", "nan"]]),
    case("text", "h\u00e9".encode(), "text/plain", "h\u00e9"),
    case("bytes", b"\x00\xff", "image/png", b"\x00\xff"),
    case("half of JSON", b"{", "application/json", ContentError),
    case("deep JSON", b"[" * 100_000, "application/json", ContentError),
    case("no UTF-8", b"\xff", "text/plain", ContentError),
    case("CSV with a mark", b"\xef\xbb\xbfa,1\n", "text/csv", [["a", 1]]),
    case("half of a quoted cell", b'"a', "text/csv", ContentError),
)  # fmt: skip
def test_a_body_is_read_by_its_content_type(body: bytes, kind: str, value: Any) -> None:
    if value is ContentError:
        with pytest.raises(ContentError):
            read_body(body, kind)
    else:
        assert read_body(body, kind) == value


@cases(
    "value, kind, body",
    case("JSON", {"a": 1}, "application/json", b'{"a":1}'),
    case("JSON lines", [{"a": 1}, 2], "application/jsonlines", b'{"a":1}\n2\n'),
    case("CSV", [[1, "x,y"], [2.5, None]], "text/csv", b'1,"x,y"\n2.5,\n'),
    case("a column", [1, 2], "text/csv", b"1\n2\n"),
    case("text", "x", "text/plain", b"x"),
    case("bytes", b"x", "image/png", b"x"),
    case("bytes as JSON", b"x", "application/json", ContentError),
    case("three dimensions as CSV", [[[1]]], "text/csv", ContentError),
    case("half of a surrogate pair", "\ud800", "text/plain", ContentError),
    case("half of a pair as JSON", ["\ud800"], "application/json", ContentError),
    case("an object as text", {"a": 1}, "text/plain", ContentError),
)  # fmt: skip
def test_a_value_is_written_in_a_content_type_that_it_can_have(
    value: Any, kind: str, body: Any
) -> None:
    if body is ContentError:
        with pytest.raises(ContentError):
            write_body(value, kind)
    else:
        assert write_body(value, kind) == body
