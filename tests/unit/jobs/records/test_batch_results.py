"""Lines of a batch's output and error files."""

import json

from tests.cases import case, cases

from hostelry.domain.llm_batch import TokenUsage
from hostelry.jobs.records.batch_lines import (
    build_answer_line,
    build_error_line,
    build_result_id,
    parse_result,
    parse_usage,
)


@cases(
    "body, shown",
    case("JSON", b'{"a": [1.5, "x"]}', {"a": [1.5, "x"]}),
    case("JSON over several lines", b'{\n "a":\r\n 1}\n', {"a": 1}),
    case("a text", b"Bad Gateway\n", "Bad Gateway\n"),
    case("nothing", b"", ""),
    case("line ends of Unicode", '"a\x85b\u2028c\u2029d"'.encode(), "a\x85b\u2028c\u2029d"),
    case("bytes that are no text", b"\xff", "�"),
)  # fmt: skip
def test_an_answer_is_one_line_with_the_body_as_json(body: bytes, shown: object) -> None:
    line = build_answer_line("batch_req_1", "mine", 200, "r-1", body)
    assert line.count(b"\n") == len(line.decode().splitlines()) == 1
    assert json.loads(line) == {
        "id": "batch_req_1",
        "custom_id": "mine",
        "response": {"status_code": 200, "request_id": "r-1", "body": shown},
        "error": None,
    }
    assert parse_result(line) == ("mine", TokenUsage())


def test_a_request_without_an_answer_has_the_reason() -> None:
    line = build_error_line("batch_req_1", "mine", "batch_expired", "Too late.")
    found = json.loads(line)
    assert found["response"] is None
    assert found["error"] == {"code": "batch_expired", "message": "Too late."}
    assert parse_result(line) == ("mine", TokenUsage())


def test_no_beginning_of_a_line_counts_as_one() -> None:
    line = build_answer_line("batch_req_1", "mine", 200, "r-1", b'{"a": 1}')
    assert {parse_result(line[:end]) for end in range(len(line))} == {None}


def test_zeros_that_a_power_cut_left_are_no_line() -> None:
    assert parse_result(b"\0" * 20 + b"\n") is None


def test_a_line_that_is_sent_again_has_the_same_id() -> None:
    assert build_result_id("batch_1", 5) == build_result_id("batch_1", 5)
    assert (
        len({build_result_id(batch, it) for batch in ("batch_1", "batch_2") for it in (1, 2)}) == 4
    )


@cases(
    "usage, found",
    case("chats and completions", {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
        TokenUsage(input=5, output=7)),
    case("embeddings", {"prompt_tokens": 5, "total_tokens": 5}, TokenUsage(input=5)),
    case("responses", {"input_tokens": 5, "output_tokens": 7,
                  "input_tokens_details": {"cached_tokens": 4},
                  "output_tokens_details": {"reasoning_tokens": 3}},
        TokenUsage(input=5, output=7, cached=4, reasoning=3)),
    case("details without numbers",
        {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": None}},
        TokenUsage(input=5)),
    case("no numbers", {"prompt_tokens": "five"}, TokenUsage()),
    case("an answer without usage", None, TokenUsage()),
)  # fmt: skip
def test_the_tokens_of_an_answer(usage: object, found: TokenUsage) -> None:
    body = json.dumps({"usage": usage}).encode()
    assert parse_usage(body) == found
    assert parse_result(build_answer_line("id", "mine", 200, "r", body)) == ("mine", found)
