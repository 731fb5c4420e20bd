from itertools import pairwise
from typing import Any

from tests.cases import case, cases

from hostelry.dataplane.tracing.call_document import (
    MAX_NESTED,
    attach_calls,
    call_document,
)
from hostelry.dataplane.tracing.call_trace import (
    CHOSEN,
    CONTAINER,
    CONTAINER_END,
    HELD,
    LEASED,
    RELEASED,
    CallTrace,
    read,
    written,
)
from hostelry.dataplane.tracing.token_usage import parse_token_usage
from hostelry.graph.step_report import StepReport, encode_steps

MS = 1_000_000
TWO = ("LEAST_OUTSTANDING_REQUESTS", ("c-1", "c-2"), (3, 0), 2)


def document(*events: tuple[Any, ...], **given: Any) -> dict[str, Any]:
    """A call that arrived at 0 and ended after 100 ms. Times of events are in ms."""
    trace = CallTrace("id", "1", 1000.0, 0, 7)
    trace.found_ns, trace.ended_ns, trace.status = 1 * MS, 100 * MS, 200
    trace.answered_ns, trace.bytes_out = 99 * MS, 9
    for name, value in given.items():
        setattr(trace, name, value)
    for what, at_ms, *rest in events:
        trace.note(what, at_ms * MS, *rest)
    return call_document(read(written(trace)), "gateway-2")


def outline(spans: list[dict[str, Any]]) -> list[Any]:
    """Name, begin and length of each span, with those within."""
    return [
        (
            *(span[field] for field in ("name", "at_ms", "ms")),
            *([outline(span["spans"])] if "spans" in span else []),
        )
        for span in spans
    ]


BEGIN, END = ("arrival", 0, 1), ("passing on", 99, 1)
CHOICE = (CHOSEN, 2, "c-1", None, None)


@cases(
    "events, given, spans",
    case("an answer", [CHOICE], {}, [BEGIN, ("attempt", 2, 97), END]),
    case("a wait for a copy", [(HELD, 1), (RELEASED, 60), (CHOSEN, 61, "c-1", None, None)], {},
        [BEGIN, ("queue", 1, 59), ("attempt", 61, 38), END]),
    case("a wait in vain", [(HELD, 1)], {"answered_ns": 0, "status": 503, "error": "late"},
        [BEGIN, ("queue", 1, 99)]),
    case("a copy that refuses", [CHOICE, (CHOSEN, 5, "c-2", None, None)], {},
        [BEGIN, ("attempt", 2, 3), ("attempt", 5, 94), END]),
    case("all copies refuse for a while",
        [CHOICE, (HELD, 5), (RELEASED, 50), (CHOSEN, 50, "c-1", None, None)], {},
        [BEGIN, ("attempt", 2, 3), ("queue", 5, 45), ("attempt", 50, 49), END]),
    case("a model that is loaded first",
        [(LEASED, 41, False, 0.04), (CHOSEN, 41, "c-1", None, None)], {},
        [BEGIN, ("model", 1, 40), ("attempt", 41, 58), END]),
    case("two containers", [(CONTAINER, 2, "one", ""), CHOICE, (CONTAINER_END, 20, 70),
                  (CONTAINER, 21, "two", "c-9")], {},
        [BEGIN, ("attempt", 2, 97, [("one", 2, 18), ("two", 21, 78)]), END]),
    case("no answer", [CHOICE], {"answered_ns": 0}, [BEGIN, ("attempt", 2, 98)]),
    case("an unknown name", [], {"found_ns": 0, "answered_ns": 0}, [("arrival", 0, 100)]),
)  # fmt: skip
def test_spans_follow_each_other_within_the_whole(
    events: list[tuple[Any, ...]], given: dict[str, Any], spans: list[Any]
) -> None:
    found = document(*events, **given)["spans"]
    assert outline(found) == spans
    assert sum(it["ms"] for it in found) <= 100
    ends = [it["at_ms"] + it["ms"] for it in found]
    assert all(it["at_ms"] >= end for it, end in zip(found[1:], ends, strict=False))


def test_an_attempt_has_how_its_copy_was_chosen_and_what_came_of_it() -> None:
    found = document((CHOSEN, 2, "c-2", "config-1", TWO), (CHOSEN, 5, "c-1", None, None),
                     first_ns=90 * MS)  # fmt: skip
    first, second = [it for it in found["spans"] if it["name"] == "attempt"]
    assert first["choice"] == {
        "policy": "LEAST_OUTSTANDING_REQUESTS",
        "of": 2,
        "unit": "requests",
        "costs": {"c-1": 3, "c-2": 0},
    }
    assert (first["config"], first["outcome"]) == ("config-1", "took no connection")
    assert (second["outcome"], second["first_byte_ms"]) == ("answered", 85.0)
    assert second["choice"]["policy"] == "the only copy"
    assert found["copies"] == ["c-2", "c-1"]


def test_a_model_that_the_copy_had_lost_is_no_refused_connection() -> None:
    again = (LEASED, 30, False, 0.02), (CHOSEN, 30, "c-1", None, None)
    found = document((LEASED, 2, True, 0.0), CHOICE, *again)["spans"]
    assert [it.get("outcome") or it.get("detail") for it in found] == [
        None, "it was loaded", "had lost the model, or had no memory for it",
        "it had to be loaded", "answered", None,
    ]  # fmt: skip


def test_each_container_has_its_bytes_its_wait_and_its_copy() -> None:
    found = document(
        (CONTAINER, 2, "one", ""), CHOICE, (CONTAINER_END, 20, 70), (CONTAINER, 21, "two", "c-9"),
        status=424, error="it died",
    )  # fmt: skip
    (attempt,) = [it for it in found["spans"] if it["name"] == "attempt"]
    one, two = attempt["spans"]
    assert (one["copy"], one["bytes_in"], one["bytes_out"]) == ("c-1", 7, 70)
    assert (two["copy"], two["bytes_in"], two["bytes_out"]) == ("c-9", 70, 9)
    assert (two["wait_ms"], two["outcome"], "outcome" in one) == (1.0, "failed", False)
    assert found["copies"] == ["c-1", "c-9"]


ROWS = (
    StepReport("s", "scatter", "", 9, 0.1, "ok"),
    StepReport("a", "call", "s", 1, 8, "ok", 5, 6, "child"),
    StepReport("b", "map", "s", 2, 1, "dropped"),
    StepReport("c", "call", "s", 3, 1, "under way"),
)


def test_steps_of_a_graph_are_within_their_scatter_and_calls_below_their_step() -> None:
    found = document(CHOICE, steps=encode_steps(ROWS))
    child = {**document(CHOICE), "request_id": "child", "parent_id": "id"}
    other = {**child, "request_id": "unnamed"}
    cut = {**child, "request_id": "cut", "parent_step": "c"}
    whole = attach_calls(found, {"id": [child, other, cut]})
    (attempt,) = [it for it in whole["spans"] if it["name"] == "attempt"]
    (scatter,) = attempt["spans"]
    assert outline([scatter]) == [("s", 3, 8.1, [("a", 3, 8), ("b", 4, 1), ("c", 5, 1)])]
    called, mapped, late = scatter["spans"]
    assert (late["outcome"], late["call"]["request_id"]) == ("under way", "cut")
    assert (called["bytes_in"], called["bytes_out"], called["kind"]) == (5, 6, "call")
    assert called["call"]["request_id"] == "child"
    assert mapped["outcome"] == "dropped"
    assert [it["request_id"] for it in whole["calls"]] == ["unnamed"]


@cases(
    "header",
    case("no JSON", "no JSON"),
    case("other rows", "[[1, 2]]"),
    case("a cycle", '[["a","call","b",1,1,"ok"],["b","call","a",1,1,"ok"]]'),
    case("a step within itself", '[["a","call","a",1,1,"ok"]]'),
    case("times beyond any", '[["a","call","",1e308,1e308,"ok"]]'),
    case("a time before the call", '[["a","call","",-1,1,"ok"]]'),
    case("deep nesting", "[" * 100_000),
)
def test_a_container_that_sends_nonsense_has_no_steps(header: str) -> None:
    found = document(CHOICE, steps=header)
    assert [it["name"] for it in found["spans"]] == ["arrival", "attempt", "passing on"]
    assert "spans" not in found["spans"][1]


def test_steps_are_nested_no_deeper_than_a_graph_may_be() -> None:
    names = ["", *(f"s{number}" for number in range(100))]
    rows = [StepReport(name, "cascade", under, 0, 1, "ok") for under, name in pairwise(names)]
    spans = document(CHOICE, steps=encode_steps(rows))["spans"][1]["spans"]
    depth = 0
    while spans:
        depth, spans = depth + 1, spans[0].get("spans", [])
    assert depth == MAX_NESTED + 1


@cases(
    "tail, tokens",
    case("whole", b'"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}',
        {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}),
    case("a stream's last event",
        b'data: {"choices":[],"usage": {"prompt_tokens": 1, "x": {"y": 2}}}\n\n'
                 b"data: [DONE]\n\n", {"prompt_tokens": 1}),
    case("null", b'"usage":null}', None),
    case("no number", b'"usage":{"prompt_tokens":"many"}}', None),
    case("cut off", b'ge":{"prompt_tokens":5}}', None),
    case("nothing", b"", None),
)  # fmt: skip
def test_tokens_are_those_of_the_servers_own_answer(
    tail: bytes, tokens: dict[str, int] | None
) -> None:
    assert parse_token_usage(tail) == tokens


def test_a_traceparent_is_kept_where_it_is_one() -> None:
    good = f"00-{'a' * 32}-{'b' * 16}-01"
    assert document(traceparent=good)["traceparent"] == good
    assert document(traceparent="\x1b[31m")["traceparent"] is None
