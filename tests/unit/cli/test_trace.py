from typing import Any

from tests.cases import case, cases

from hostelry.cli.trace import (
    NOTHING,
    bar,
    bytes_text,
    call_lines,
    list_calls,
    list_lines,
    log_lines,
    ms_text,
)

CHOICE = {
    "policy": "LEAST_OUTSTANDING_REQUESTS",
    "of": 9,
    "unit": "requests",
    "costs": {f"c-{number}": number for number in range(9)},
}


def call(**given: Any) -> dict[str, Any]:
    found = {
        "request_id": "r-1",
        "parent_id": None,
        "worker": "gateway-1",
        "at": 1_700_000_000.0,
        "operation": "InvokeEndpoint",
        "endpoint": "wine",
        "variant": "AllTraffic",
        "component": None,
        "base_component": None,
        "target_model": None,
        "traceparent": None,
        "status": 200,
        "code": None,
        "error": None,
        "ms": 100.0,
        "first_byte_ms": 90.0,
        "bytes_in": 7,
        "bytes_out": 2_000_000,
        "tokens": {"prompt_tokens": 5},
        "copies": ["c-0"],
        "spans": [{"name": "arrival", "at_ms": 0.0, "ms": 50.0}],
        "calls": [],
    }
    return found | given


def attempt(**given: Any) -> dict[str, Any]:
    return {
        "name": "attempt", "copy": "c-0", "at_ms": 50.0, "ms": 50.0, "wait_ms": 1.5,
        "choice": CHOICE, "outcome": "answered", **given,
    }  # fmt: skip


def test_a_call_is_a_tree_with_a_bar_for_each_span() -> None:
    hop = {"name": "one", "kind": "container", "at_ms": 50.0, "ms": 25.0, "bytes_in": 7,
           "bytes_out": 8, "wait_ms": 0.0}  # fmt: skip
    shown = call(spans=[*call()["spans"], attempt(spans=[hop])])
    lines = call_lines(shown, 80)
    assert lines[0] == "r-1  InvokeEndpoint  200  100 ms  2023-11-14T22:13:20.000Z"
    assert lines[1] == (
        "endpoint wine, variant AllTraffic, in 7 B, out 2 MB, first byte after 90 ms, "
        "5 prompt tokens; gateway-1"
    )
    table = lines[3:7]
    assert table[0].split() == ["TIME", "WAIT", "IN", "OUT"]
    assert [it.partition("│")[0].split()[:3] for it in table[1:]] == [
        ["arrival", "50", "ms"], ["copy", "c-0", "50"], ["one", "(container)", "25"],
    ]  # fmt: skip
    assert table[3].startswith("  one"), "what is within is further to the right"
    bars = [it.split("│")[1] for it in table[1:]]
    assert {len(it) for it in bars} == {len(bars[0])}
    half = len(bars[0]) // 2
    assert bars[0].rstrip() == "█" * half
    assert bars[1].startswith(" " * half + "█")
    assert all(len(it) <= 80 for it in table)
    assert lines[-1] == (
        "c-0 was chosen of 9 copies by LEAST_OUTSTANDING_REQUESTS; requests in flight: "
        "c-0 0, c-1 1, c-2 2, c-3 3, c-4 4, c-5 5, and 3 more"
    )


def test_what_went_wrong_is_beside_its_span_and_in_words_at_the_end() -> None:
    child = call(request_id="r-2", endpoint="trees", status=424, code="ModelError", error="died",
                 at=1_700_000_000.06, spans=[attempt(outcome="gave no answer")])  # fmt: skip
    step = {"name": "a", "kind": "call", "at_ms": 55.0, "ms": 5.0, "outcome": "failed",
            "request_id": "r-2", "bytes_in": 1, "bytes_out": 0, "call": child}  # fmt: skip
    top = call(spans=[attempt(spans=[step])], status=424, code="ModelError", error="step\x1b[31m a")
    lines = call_lines(top, 100)
    text = "\n".join(lines)
    assert lines[-2:] == [
        "failed: 424 ModelError: step [31m a",
        "call r-2 of trees/AllTraffic failed: 424 ModelError: died",
    ]
    assert "\x1b" not in text
    (row,) = [it for it in lines if it.startswith("  a (call)")]
    assert row.endswith("│ failed")
    (below,) = [it for it in lines if it.startswith("    call of trees")]
    assert below.endswith("│ 424 ModelError")
    assert list(list_calls(top)) == [child]


@cases(
    "at_ms, took_ms, drawn",
    case("all of it", 0, 100, "██████████"),
    case("nothing is one character", 0, 0, "█         "),
    case("at the very end", 100, 0, "         █"),
    case("a part", 50, 20, "     ██   "),
    case("more than the whole", -5, 1000, "██████████"),
)
def test_a_bar_is_a_part_of_the_whole(at_ms: float, took_ms: float, drawn: str) -> None:
    assert bar(at_ms, took_ms, 100, 10) == drawn


def test_numbers_are_short() -> None:
    assert [bytes_text(it) for it in (0, 999, 1500, 25_000_000)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "25 MB",
    ]
    assert [ms_text(it) for it in (0.0123, 12.34, 999, 2001.5)] == [
        "0.0123 ms", "12.3 ms", "999 ms", "2 s",
    ]  # fmt: skip


def test_a_list_has_a_line_for_each_call() -> None:
    lines = list_lines([call(), call(request_id="r-2", status=500, error="x" * 200)])
    assert lines[1].split()[0] == "r-1"
    assert lines[2].endswith("x…")
    assert len(lines) == 3
    assert list_lines([]) == [NOTHING]


def test_log_lines_are_below_their_stream() -> None:
    assert log_lines({"s of g": ["one\x07", "two"]}) == ["", "==> s of g <==", "one", "two"]
