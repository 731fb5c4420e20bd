"""Lines of a batch's input file."""

import json
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.jobs.records.batch_lines import MAX_FAULTS, LineCheck, get_request_body

CHAT = "/v1/chat/completions"


def line(**given: Any) -> bytes:
    whole = {"custom_id": "a", "method": "POST", "url": CHAT, "body": {"model": "base"}, **given}
    kept = {name: value for name, value in whole.items() if value is not ...}
    return json.dumps(kept).encode() + b"\n"


def checked(*lines: bytes, max_line_bytes: int = 1000, max_lines: int = 10) -> LineCheck:
    check = LineCheck(CHAT, max_line_bytes, max_lines)
    for each in lines:
        check.add(each)
    return check


FAULTS = [
    pytest.param(b"{\n", "invalid_json_line", None, id="JSON that ends early"),
    pytest.param(b"[1]\n", "invalid_json_line", None, id="JSON that is no object"),
    pytest.param(b"\xff\n", "invalid_json_line", None, id="bytes that are no text"),
    pytest.param(b"[" * 900 + b"\n", "invalid_json_line", None, id="JSON of great depth"),
    pytest.param(line(custom_id="a" * 999), "invalid_json_line", None, id="a line over the limit"),
    pytest.param(line(custom_id=...), "missing_required_parameter", "custom_id",
                 id="no custom_id"),
    pytest.param(line(custom_id=5), "invalid_custom_id", "custom_id", id="a number as custom_id"),
    pytest.param(line(custom_id=""), "invalid_custom_id", "custom_id", id="an empty custom_id"),
    pytest.param(line(custom_id="a" * 513), "invalid_custom_id", "custom_id",
                 id="a custom_id that is too long"),
    pytest.param(line(method="GET"), "invalid_method", "method", id="another method"),
    pytest.param(line(method=...), "invalid_method", "method", id="no method"),
    pytest.param(line(url="/v1/embeddings"), "url_mismatch", "url", id="another endpoint's url"),
    pytest.param(line(url=...), "url_mismatch", "url", id="no url"),
    pytest.param(line(body=...), "invalid_request", "body", id="no body"),
    pytest.param(line(body=None), "invalid_request", "body.model", id="a body of null"),
    pytest.param(line(body="text"), "invalid_request", "body.model", id="a body that is a text"),
    pytest.param(line(body={}), "invalid_request", "body.model", id="a body without a model"),
    pytest.param(line(body={"model": 1}), "invalid_request", "body.model",
                 id="a number as the model"),
    pytest.param(line(body={"model": "base", "stream": True}), "invalid_request", "body.stream",
                 id="a stream"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "code", "param"), FAULTS)
def test_a_line_that_is_no_request_is_named_with_its_number(
    bad: bytes, code: str, param: str | None
) -> None:
    check = checked(line(custom_id="first"), b"\n", bad, line(custom_id="last"))
    (fault,) = check.list_faults()
    assert (fault.code, fault.param, fault.line) == (code, param, 3)
    assert [it.custom_id for it in check.lines] == ["first", "last"]


def test_a_custom_id_may_be_there_once() -> None:
    (fault,) = checked(line(), line(custom_id="b"), line()).list_faults()
    assert (fault.code, fault.line) == ("duplicate_custom_id", 3)
    assert "line 1" in fault.message


def test_a_request_keeps_its_place_its_model_and_its_body() -> None:
    lines = (line(), b"\r\n", line(custom_id="b", body={"model": "pirate", "n": [1, {"x": "é"}]}))
    check = checked(*lines)
    assert not check.list_faults()
    first, second = check.lines
    assert (first.number, first.offset, first.model) == (1, 0, "base")
    assert (second.number, second.offset, second.model) == (3, len(lines[0]) + 2, "pirate")
    found = b"".join(lines)[second.offset : second.offset + second.length]
    assert json.loads(get_request_body(found)) == {"model": "pirate", "n": [1, {"x": "é"}]}


def test_the_bytes_that_were_cut_off_a_long_line_count_for_the_places_behind_it() -> None:
    check = LineCheck(CHAT, 10, 10)
    check.add(b"x" * 11, 89)
    check = checked()
    check.add(b"x" * 1001, 99)
    check.add(line())
    assert [(it.number, it.offset) for it in check.lines] == [(2, 1100)]


@cases(
    "lines, code",
    case("no line", [], "empty_file"),
    case("empty lines alone", [b"\n", b"  \n"], "empty_file"),
    case("more requests than a batch may have", [line(custom_id=str(it)) for it in range(11)],
        "too_many_tasks"),
    case("more wrong lines than that", [b"{\n"] * 11, "too_many_tasks"),
)  # fmt: skip
def test_a_file_that_is_wrong_as_a_whole(lines: list[bytes], code: str) -> None:
    (fault,) = checked(*lines).list_faults()
    assert (fault.code, fault.line) == (code, None)


def test_of_many_faults_the_first_are_reported_and_the_rest_counted() -> None:
    faults = checked(*[b"{\n"] * (MAX_FAULTS + 20), max_lines=1000).list_faults()
    assert len(faults) == MAX_FAULTS + 1
    assert faults[-1].message == f"20 more lines are wrong, {MAX_FAULTS + 20} in all."
