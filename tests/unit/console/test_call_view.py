"""Calls, and one call hop by hop, from the records of the gateway's workers."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.console.recorded_answers import recorded

from hostelry.console.platform import PlatformError
from hostelry.console.view_table import look_at_call
from hostelry.console.views import call, calls

NOW = 1795672900.0


def one() -> dict[str, Any]:
    found: dict[str, Any] = recorded("call")["call"]
    return found


def made(at: float, name: str = "echo", **more: Any) -> dict[str, Any]:
    """A call that a graph made."""
    spans = [{"name": "arrival", "at_ms": 0.0, "ms": 1.0}]
    own = {"request_id": name, "endpoint": name, "component": None, "copies": [f"c-{name}"]}
    return {**one(), **own, "at": at, "ms": 5.0, "spans": spans, **more}


def test_a_call_has_a_row_a_hop_in_order() -> None:
    found = call.document(one(), {})
    assert [it["name"] for it in found["rows"]] == ["arrival", one()["copies"][0], "passing on"]
    copy = found["rows"][1]
    assert (copy["kind"], copy["depth"], copy["problem"]) == ("copy", 0, None)
    assert copy["ms"] > 100
    assert copy["wait_ms"] is not None
    assert "of the time went to the model server" in found["summary"]


def test_the_choice_names_the_costs_of_the_others_cheapest_first() -> None:
    given = one()
    given["spans"][1]["choice"] = {
        "policy": "adapter",
        "of": 40,
        "unit": "ms",
        "costs": {f"c-{it}": 40 - it for it in range(40)},
    }
    (choice,) = call.document(given, {})["choices"]
    assert (choice["policy"], choice["of"], choice["unit"]) == ("adapter", 40, "ms expected")
    assert choice["costs"][0] == ["c-39", 1]
    assert (len(choice["costs"]), choice["left_out"]) == (16, 24)


def test_calls_that_a_graph_made_are_below_their_steps_at_their_own_time() -> None:
    given = one()
    at = given["at"]
    step = {"name": "a", "kind": "call", "at_ms": 2.0, "ms": 6.0, "outcome": "ok"}
    given["spans"][1]["spans"] = [{**step, "call": made(at + 0.003)}]
    given["calls"] = [made(at + 0.010, "other", error="no", status=500, code="ModelError")]
    rows = call.document(given, {})["rows"]
    assert [(it["depth"], it["name"], it["at_ms"]) for it in rows[1:]] == [
        (0, given["copies"][0], given["spans"][1]["at_ms"]),
        (1, "a", 2.0),
        (2, "echo/AllTraffic", pytest.approx(3.0, abs=0.01)),
        (3, "arrival", pytest.approx(3.0, abs=0.01)),
        (0, "passing on", given["spans"][2]["at_ms"]),
        (0, "other/AllTraffic", pytest.approx(10.0, abs=0.01)),
        (1, "arrival", pytest.approx(10.0, abs=0.01)),
    ]
    assert rows[3]["call"] == "echo"
    assert rows[6]["problem"] == "500 ModelError"


def test_steps_within_steps_are_bounded() -> None:
    given = one()
    span: dict[str, Any] = {"name": "last", "at_ms": 0.0, "ms": 1.0}
    for _ in range(100):
        span = {"name": "step", "at_ms": 0.0, "ms": 1.0, "spans": [span]}
    wide = {"name": "wide", "at_ms": 0.0, "ms": 1.0, "spans": [span] * 20}
    given["spans"] = [wide]
    found = call.document(given, {})
    assert max(it["depth"] for it in found["rows"]) <= call.MAX_DEPTH
    assert len(found["rows"]) == call.MAX_ROWS
    assert found["rows_left_out"] > 0


@cases(
    "spans, summary",
    case(
        "the queue",
        [{"name": "queue", "at_ms": 0.0, "ms": 9.0}],
        "90 % of the time went to the queue, for want of a ready copy.",
    ),
    case(
        "a model",
        [{"name": "model", "at_ms": 0.0, "ms": 6.0}],
        "60 % of the time went to loading its model on the copy.",
    ),
    case(
        "several",
        [
            {"name": "attempt", "at_ms": 0.0, "ms": 3.0, "copy": "c-1", "wait_ms": 0.0},
            {"name": "attempt", "at_ms": 3.0, "ms": 4.0, "copy": "c-2", "wait_ms": 0.0},
        ],
        "No single hop took most of the time; the longest was the model server c-2."
        " It took 2 attempts.",
    ),
    case("nothing", [], "Nothing was noted of where its time went."),
)
def test_a_sentence_names_where_the_time_went(spans: list[dict[str, Any]], summary: str) -> None:
    assert call.summary({**one(), "ms": 10.0, "spans": spans}) == summary


@cases(
    "first_byte_ms, rate",
    case("of a stream from its first byte on", 100.0, 100.0),
    case("of a whole answer, of all its time", 1099.0, pytest.approx(90.9, abs=0.1)),
    case("without an answer", None, None),
)
def test_tokens_a_second(first_byte_ms: float | None, rate: float | None) -> None:
    given = {**one(), "tokens": {"completion_tokens": 100}, "ms": 1100.0}
    assert call.tokens_per_s({**given, "first_byte_ms": first_byte_ms}) == rate


def event(stream: str, message: str) -> dict[str, str]:
    return {"logStreamName": stream, "message": message}


@cases(
    "instances, streams",
    case("of its copy", {"c-1": "i-1", "c-2": "i-2"}, ["v/i-1", "v/i-2/c-1"]),
    case("all, for one gone", {"c-2": "i-2"}, ["v/i-1", "v/i-9", "v/i-2/c-1"]),
)
def test_log_lines_are_those_of_its_copies(
    instances: Mapping[str, str], streams: list[str]
) -> None:
    events = [event("v/i-1", "a"), event("v/i-9", "b"), event("v/i-2/c-1", "c" * 5000)]
    found = call.log_streams({**one(), "copies": ["c-1"]}, instances, [{"events": events}])
    assert list(found) == streams
    assert len(found["v/i-2/c-1"][0]) == call.MAX_LINE_CHARS


def test_the_last_lines_of_a_stream_are_kept() -> None:
    events = [event("v/i-1", str(it)) for it in range(100)]
    found = call.log_streams({**one(), "copies": ["c-1"]}, {"c-1": "i-1"}, [{"events": events}])
    assert found == {"v/i-1": [str(it) for it in range(80, 100)]}


def test_each_log_group_is_asked_once_for_the_time_of_all_calls_in_it() -> None:
    given = one()
    given["calls"] = [made(given["at"] + 1.0), made(given["at"] + 9.0)]
    component, endpoint = (it.parameters for it in call.log_queries(given))
    assert component["logGroupName"] == "/aws/sagemaker/InferenceComponents/recommend"
    assert endpoint["logGroupName"] == "/aws/sagemaker/Endpoints/echo"
    assert endpoint["endTime"] - endpoint["startTime"] == pytest.approx(11_005, abs=2)


class Port:
    """A platform that knows one call."""

    async def ask(
        self, process: str, path: str, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        if process == "control":
            raise PlatformError("control does not answer")
        if path == f"/traces/{one()['request_id']}":
            return {"call": one(), "silent": ["gateway-2"]}
        if path.removeprefix("/traces/") in ("", "%2F"):
            return {"calls": [], "silent": []}
        raise PlatformError(f"No call is kept at {path}")

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {"events": [event("AllTraffic/i-1/c-1", "hello")]}

    async def post(self, process: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError("nothing is changed")


@pytest.mark.parametrize(
    ("id", "reason"),
    [
        ("unknown", "No call is kept at /traces/unknown"),
        ("a/../b", "No call is kept at /traces/a%2F..%2Fb"),
        ("é", "No call is kept at /traces/%C3%A9"),
        ("/", "Give the id of a request."),
        ("", "Give the id of a request."),
    ],
)
def test_an_unknown_call_is_explained(id: str, reason: str) -> None:
    assert asyncio.run(look_at_call(Port(), {"id": id}, NOW)) == {"id": id, "missing": reason}


def test_a_call_is_shown_while_control_is_away() -> None:
    found = asyncio.run(look_at_call(Port(), {"id": one()["request_id"]}, NOW))
    assert found["logs"] == {"AllTraffic/i-1/c-1": ["hello"]}
    assert found["silent"] == ["gateway-2"]


def test_a_list_has_the_calls_with_what_went_wrong() -> None:
    found = calls.document({"calls": recorded("failed")}, {"order": "failed"}, NOW)
    assert len(found["calls"]) == 3
    for row in found["calls"].values():
        assert row["status"] >= 400
        assert row["error"]
    slow = calls.document({"calls": recorded("slowest")}, {}, NOW)
    assert [it["error"] for it in slow["calls"].values()] == [None, None]
    assert calls.document({"calls": None}, {}, NOW)["calls"] == {}


@cases(
    "params, query",
    case("by default the slowest", {}, {"order": "slowest", "since_s": "300"}),
    case(
        "as asked",
        {"order": "failed", "minutes": "15", "endpoint": "shop"},
        {"order": "failed", "since_s": "900", "endpoint": "shop"},
    ),
    case(
        "nonsense is the default",
        {"order": "x", "minutes": "1e9", "endpoint": ""},
        {"order": "slowest", "since_s": "300"},
    ),
)
def test_the_gateway_is_asked(params: dict[str, str], query: dict[str, str]) -> None:
    asked = calls.sources(params, NOW)["calls"]
    assert asked.query == {**query, "limit": "100"}  # type: ignore[union-attr]
