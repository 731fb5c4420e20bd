"""Lines of a batch's output and error files."""

import json

import pytest

from hostelry.jobs.records.batch_results import answer_line, answered_id, error_line, result_id


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        pytest.param(b'{"a": [1.5, "x"]}', {"a": [1.5, "x"]}, id="JSON"),
        pytest.param(b'{\n "a":\r\n 1}\n', {"a": 1}, id="JSON over several lines"),
        pytest.param(b"Bad Gateway\n", "Bad Gateway\n", id="a text"),
        pytest.param(b"", "", id="nothing"),
        pytest.param('"a\x85b\u2028c\u2029d"'.encode(), "a\x85b\u2028c\u2029d",
                     id="line ends of Unicode"),
        pytest.param(b"\xff", "�", id="bytes that are no text"),
    ],
)  # fmt: skip
def test_an_answer_is_one_line_with_the_body_as_json(body: bytes, shown: object) -> None:
    line = answer_line("batch_req_1", "mine", 200, "r-1", body)
    assert line.count(b"\n") == len(line.decode().splitlines()) == 1
    assert json.loads(line) == {
        "id": "batch_req_1",
        "custom_id": "mine",
        "response": {"status_code": 200, "request_id": "r-1", "body": shown},
        "error": None,
    }
    assert answered_id(line) == "mine"


def test_a_request_without_an_answer_has_the_reason() -> None:
    line = error_line("batch_req_1", "mine", "batch_expired", "Too late.")
    found = json.loads(line)
    assert found["response"] is None
    assert found["error"] == {"code": "batch_expired", "message": "Too late."}
    assert answered_id(line) == "mine"


def test_no_beginning_of_a_line_counts_as_one() -> None:
    line = answer_line("batch_req_1", "mine", 200, "r-1", b'{"a": 1}')
    assert {answered_id(line[:end]) for end in range(len(line))} == {None}


def test_zeros_that_a_power_cut_left_are_no_line() -> None:
    assert answered_id(b"\0" * 20 + b"\n") is None


def test_a_line_that_is_sent_again_has_the_same_id() -> None:
    assert result_id("batch_1", 5) == result_id("batch_1", 5)
    assert len({result_id(batch, it) for batch in ("batch_1", "batch_2") for it in (1, 2)}) == 4
