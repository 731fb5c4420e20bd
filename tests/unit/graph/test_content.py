"""Bodies and values."""

from typing import Any

import pytest

from hostelry.graph.content import ContentError, read_body, write_body


@pytest.mark.parametrize(
    ("body", "kind", "value"),
    [
        pytest.param(b'{"a": [1, null]}', "application/json", {"a": [1, None]}, id="JSON"),
        pytest.param(b'{"a":1}\n\n{"b":2}', "application/jsonlines", [{"a": 1}, {"b": 2}],
                     id="JSON lines"),
        pytest.param(b"1,2.5,x\n\n007,,nan\n", "text/csv; charset=utf-8",
                     [[1, 2.5, "x"], [7, "", "nan"]], id="CSV"),
        pytest.param("h\u00e9".encode(), "text/plain", "h\u00e9", id="text"),
        pytest.param(b"\x00\xff", "image/png", b"\x00\xff", id="bytes"),
        pytest.param(b"{", "application/json", ContentError, id="half of JSON"),
        pytest.param(b"[" * 100_000, "application/json", ContentError, id="deep JSON"),
        pytest.param(b"\xff", "text/plain", ContentError, id="no UTF-8"),
        pytest.param(b"\xef\xbb\xbfa,1\n", "text/csv", [["a", 1]], id="CSV with a mark"),
        pytest.param(b'"a', "text/csv", ContentError, id="half of a quoted cell"),
    ],
)  # fmt: skip
def test_a_body_is_read_by_its_content_type(body: bytes, kind: str, value: Any) -> None:
    if value is ContentError:
        with pytest.raises(ContentError):
            read_body(body, kind)
    else:
        assert read_body(body, kind) == value


@pytest.mark.parametrize(
    ("value", "kind", "body"),
    [
        pytest.param({"a": 1}, "application/json", b'{"a":1}', id="JSON"),
        pytest.param([{"a": 1}, 2], "application/jsonlines", b'{"a":1}\n2\n', id="JSON lines"),
        pytest.param([[1, "x,y"], [2.5, None]], "text/csv", b'1,"x,y"\n2.5,\n', id="CSV"),
        pytest.param([1, 2], "text/csv", b"1\n2\n", id="a column"),
        pytest.param("x", "text/plain", b"x", id="text"),
        pytest.param(b"x", "image/png", b"x", id="bytes"),
        pytest.param(b"x", "application/json", ContentError, id="bytes as JSON"),
        pytest.param([[[1]]], "text/csv", ContentError, id="three dimensions as CSV"),
        pytest.param("\ud800", "text/plain", ContentError, id="half of a surrogate pair"),
        pytest.param(["\ud800"], "application/json", ContentError, id="half of a pair as JSON"),
        pytest.param({"a": 1}, "text/plain", ContentError, id="an object as text"),
    ],
)  # fmt: skip
def test_a_value_is_written_in_a_content_type_that_it_can_have(
    value: Any, kind: str, body: Any
) -> None:
    if body is ContentError:
        with pytest.raises(ContentError):
            write_body(value, kind)
    else:
        assert write_body(value, kind) == body
