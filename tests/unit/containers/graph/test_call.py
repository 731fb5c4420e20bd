"""Calls of a graph against fake targets: in parallel, by rule, within the deadline."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.containers.graph.call import AnswerCache, GraphCall, GraphDeps, GraphResult
from hostelry.containers.graph.functions import FunctionError
from hostelry.containers.graph.step_times import StepTimes
from hostelry.containers.graph.targets import (
    CallTargetError,
    GraphContext,
    TargetAnswer,
    build_target_headers,
    extend_path,
)
from hostelry.graph.check import build_plan
from hostelry.graph.progress import StepOutcome
from hostelry.graph.step_report import MAX_ROWS, StepReport, encode_steps, parse_steps
from hostelry.graph.steps import CacheAction, CallTarget

JSON = "application/json"


@dataclass
class FakeStream:
    content_type: str = "text/event-stream"
    request_id: str = "r-1"
    closed: bool = False

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        yield b"a"
        yield b"b"

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeTargets:
    """Answers by endpoint. An exception is raised, and an Event is waited for."""

    answers: dict[str, Any]
    called: list[str] = field(default_factory=list)
    bodies: dict[str, bytes] = field(default_factory=dict)
    streams: list[FakeStream] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    has_streamed: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, target: CallTarget, body: bytes, context: GraphContext) -> TargetAnswer:
        self.called.append(target.endpoint)
        self.bodies[target.endpoint] = body
        answer = self.answers[target.endpoint]
        if isinstance(answer, asyncio.Event):
            try:
                await answer.wait()
            except asyncio.CancelledError:
                self.cancelled.append(target.endpoint)
                raise
            answer = target.endpoint
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, TargetAnswer):
            return answer
        return TargetAnswer(body=msgspec.json.encode(answer), content_type=JSON)

    async def stream(self, target: CallTarget, body: bytes, context: GraphContext) -> FakeStream:
        self.called.append(f"{target.endpoint} as a stream")
        self.streams.append(FakeStream())
        self.has_streamed.set()
        return self.streams[-1]


class FakeFunctions:
    async def call(self, function: str, value: Any, limit_s: float) -> Any:
        if function == "f:broken":
            raise FunctionError("f:broken of code/: ValueError (f.py line 2 in broken)")
        return [function, value, limit_s]


@dataclass
class Graph:
    """A graph with fakes. `call` calls it."""

    text: str
    targets: FakeTargets
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        plan = build_plan(self.text)
        self.times = StepTimes(self.clock)
        self.deps = GraphDeps(
            plan=plan,
            targets=self.targets,
            functions=FakeFunctions(),
            caches={
                name: AnswerCache(it.action.ttl_s, it.action.max_bytes, self.clock)
                for name, it in plan.steps.items()
                if isinstance(it.action, CacheAction)
            },
            times=self.times,
            clock=self.clock,
        )

    async def call(self, request: Any, *, is_stream: bool = False) -> GraphResult:
        body = msgspec.json.encode(request)
        given = StepOutcome(value=request, body=body, content_type=JSON)
        call = GraphCall(deps=self.deps, request=given, context=GraphContext(), is_stream=is_stream)
        async with asyncio.timeout(20):
            return await call.run()


def run(text: str, request: Any = None, **answers: Any) -> tuple[Any, FakeTargets]:
    """The value or the fault of one call, and its targets."""
    targets = FakeTargets(answers)
    outcome = asyncio.run(Graph(text, targets).call(request)).outcome
    fault = outcome.fault
    return (outcome.value if fault is None else (fault.status, fault.text)), targets


SCATTER = """
output: answer
steps:
  answer: {gather: {of: all, by: stack}}
  all: {scatter: [a, b, c]}
  a: {call: {endpoint: a}}
  b: {call: {endpoint: b}}
  c: {call: {endpoint: c}}
"""


async def test_branches_run_at_once_and_a_failure_ends_the_others() -> None:
    never, targets = asyncio.Event(), FakeTargets({})
    targets.answers |= {"a": never, "b": CallTargetError("b broke"), "c": never}
    outcome = (await Graph(SCATTER, targets).call({})).outcome
    assert outcome.fault is not None
    assert (outcome.fault.status, outcome.fault.text) == (424, "step b: b broke")
    assert targets.called == ["a", "b", "c"]
    assert sorted(targets.cancelled) == ["a", "c"]


async def test_the_deadline_ends_every_step_and_names_those_under_way() -> None:
    targets = FakeTargets({"a": 1, "b": asyncio.Event(), "c": asyncio.Event()})
    outcome = (await Graph("deadline_s: 0.02" + SCATTER, targets).call({})).outcome
    assert outcome.fault is not None
    assert outcome.fault.status == 504
    assert outcome.fault.text == "step b, c: the call's deadline of 0.02 s has passed"
    assert sorted(targets.cancelled) == ["b", "c"]


ONE = "output: answer\nsteps:\n  answer: {{call: {{endpoint: a{0}}}{1}}}\n"


@cases(
    "text, answer, value",
    case("the answer", ONE.format("", ""), {"p": 1}, {"p": 1}),
    case("a busy target", ONE.format("", ""), CallTargetError("busy", 503),
        (503, "step answer: busy")),
    case("a default", ONE.format("", ", on_error: default, default: 7"), CallTargetError("x"), 7),
    case("a target that hangs", ONE.format("", ", timeout_s: 0.01"), asyncio.Event(),
        (504, "step answer: it took more than 0.01 s")),
    case("a default for a target that hangs",
        ONE.format("", ", timeout_s: 0.01, on_error: default, default: 7"), asyncio.Event(), 7),
    case("nonsense", ONE.format("", ""), TargetAnswer(body=b"{", content_type=JSON),
        (424, "step answer: endpoint a answered nonsense: the body is not "
                 "application/json: Input data was truncated")),
    case("another content type", ONE.format("", ""),
        TargetAnswer(body=b"<p>", content_type="text/html"),
        (424, "step answer: endpoint a answered text/html; accept is " "application/json")),
    case("CSV", ONE.format(", accept: text/csv", ""),
        TargetAnswer(body=b"1,2\n", content_type="text/csv; charset=utf-8"), [[1, 2]]),
)  # fmt: skip
def test_a_call_counts_by_its_answer_and_rule(text: str, answer: Any, value: Any) -> None:
    found, _ = run(text, {}, a=answer)
    assert found == value


def test_a_whole_input_is_sent_as_it_came() -> None:
    text = ("output: b\nsteps:\n  a: {call: {endpoint: a}}\n"
            "  b: {call: {endpoint: b}, input: a}\n")  # fmt: skip
    answer = TargetAnswer(body=b'{"n":  1.0}', content_type=JSON)
    _, targets = run(text, {}, a=answer, b=2)
    assert targets.bodies["b"] == b'{"n":  1.0}'


@cases(
    "step, value",
    case("a function", "map: {function: 'f:g'}, input: input.x", ["f:g", 3, 30.0]),
    case("with a time limit", "map: {function: 'f:g'}, timeout_s: 2", ["f:g", {"x": 3}, 2.0]),
    case("that fails", "map: {function: 'f:broken'}",
        (500, "step answer: f:broken of code/: ValueError (f.py line 2 in broken)")),
    case("an expression that fails", "map: 'sum(input.x)'",
        (422, "step answer: the expression sum(input.x) fails")),
)  # fmt: skip
def test_a_map_is_a_function_or_an_expression(step: str, value: Any) -> None:
    found, _ = run(f"output: answer\nsteps: {{answer: {{{step}}}}}", {"x": 3})
    if isinstance(value, tuple):
        assert (found[0], found[1][: len(value[1])]) == value
    else:
        assert found == value


async def test_a_cached_answer_is_not_asked_for_again_until_its_time_is_over() -> None:
    text = ("output: answer\nsteps:\n  answer: {cache: {of: a, ttl_s: 60}, input: input.x}\n"
            "  a: {call: {endpoint: a}}\n")  # fmt: skip
    targets = FakeTargets({"a": "A"})
    graph = Graph(text, targets)
    for request in ({"x": [1], "id": 1}, {"x": [1], "id": 2}, {"x": [2]}):
        assert (await graph.call(request)).outcome.value == "A"
    assert targets.called == ["a", "a"]
    graph.clock.advance(61)
    await graph.call({"x": [1]})
    assert len(targets.called) == 3


@cases(
    "text, called, is_streamed",
    case("a call", ONE.format("", ""), ["a as a stream"], True),
    case("the last step of a cascade",
        "output: answer\nsteps: {answer: {cascade: [{step: a, enough: p}, {step: b}]},"
                 " a: {call: {endpoint: a}}, b: {call: {endpoint: b}}}", ["a", "b as a stream"],
        True),
    case("not a step that a map reads",
        "output: answer\nsteps: {answer: {map: a.p}, a: {call: {endpoint: a}}}", ["a"], False),
)  # fmt: skip
async def test_the_last_step_is_streamed_through(
    text: str, called: list[str], *, is_streamed: bool
) -> None:
    targets = FakeTargets({"a": {"p": False}})
    result = await Graph(text, targets).call({}, is_stream=True)
    assert targets.called == called
    assert (result.stream is not None) is is_streamed
    assert result.outcome.is_streamed is is_streamed


async def test_a_stream_that_no_client_waits_for_is_closed() -> None:
    targets = FakeTargets({})
    running = asyncio.ensure_future(Graph(ONE.format("", ""), targets).call({}, is_stream=True))
    await targets.has_streamed.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    assert [it.closed for it in targets.streams] == [True]


def test_answers_of_one_call_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostelry.containers.graph.call.MAX_ANSWERS_BYTES", 10)
    found, _ = run(SCATTER, {}, a="12", b="34", c="567")
    assert found == (424, "step c: the answers of this call have more than 10 bytes")


@cases(
    "named_by, header, path",
    case("a component", {"component": "c"}, "X-Amzn-SageMaker-Inference-Component", "e/c"),
    case("a container", {"container": "c"}, "X-Amzn-SageMaker-Target-Container-Hostname", "e/c"),
    case("a variant", {"variant": "c"}, "X-Amzn-SageMaker-Target-Variant", "e/c"),
    case("a target model", {"model": "c"}, "X-Amzn-SageMaker-Target-Model", "e"),
)  # fmt: skip
def test_a_target_is_named_by_its_header(named_by: dict[str, str], header: str, path: str) -> None:
    target = CallTarget(endpoint="e", content_type=JSON, accept=JSON, **named_by)
    assert build_target_headers(target, is_stream=False) == {header: "c"}
    assert extend_path((), target) == (path,)


TARGET = CallTarget(endpoint="e", component="c", content_type=JSON, accept=JSON)


@cases(
    "path, found",
    case("the first", (), ("e/c",)),
    case("another component of the endpoint", ("e/a",), ("e/a", "e/c")),
    case("a cycle", ("e/c", "x"), "the graph calls itself: e/c -> x -> e/c"),
    case("too deep", ("1", "2", "3", "4"),
        "graphs call graphs more than 4 deep: 1 -> 2 -> 3 -> 4 -> e/c"),
)  # fmt: skip
def test_graphs_that_call_themselves_are_refused(path: tuple[str, ...], found: Any) -> None:
    if isinstance(found, tuple):
        assert extend_path(path, TARGET) == found
        return
    with pytest.raises(CallTargetError, match=found) as caught:
        extend_path(path, TARGET)
    assert caught.value.status == 508


def test_times_of_steps_are_those_of_the_last_minute() -> None:
    clock = ManualClock()
    times = StepTimes(clock)
    text = ONE.format("", ", on_error: drop")
    graph = Graph(text, FakeTargets({"a": CallTargetError("x")}), clock)
    asyncio.run(graph.call({}))
    (found,) = graph.times.last_minute().values()
    assert (found["count"], found["dropped"], found["ok"]) == (1, 1, 0)
    clock.advance(61)
    assert graph.times.last_minute() == {}
    assert b'hostelry_graph_step_ends_total{end="dropped",step="answer"} 1.0' in graph.times.page()
    assert times.last_minute() == {}


STEPS = """
output: all
steps:
  all: {scatter: [a, pick, each, kept]}
  a: {call: {endpoint: a}, on_error: drop}
  pick: {switch: {by: input.kind, cases: {x: b}}}
  b: {map: input.n}
  each: {scatter: {each: input.list, call: {endpoint: c}}}
  kept: {cache: {of: d, ttl_s: 60}, input: input.n}
  d: {call: {endpoint: c}, input: input.n}
"""


def test_a_result_has_each_step_that_took_part_below_the_one_that_ran_it() -> None:
    answer = TargetAnswer(body=b"12", content_type=JSON, request_id="r-c")
    refused = CallTargetError("endpoint a answered 424", request_id="r-a")
    graph = Graph(STEPS, FakeTargets({"a": refused, "c": answer}))
    request = {"kind": "x", "n": 5, "list": [1, 22]}

    async def scenario() -> list[str]:
        return [(await graph.call(request)).steps for _ in range(2)]

    first, second = (parse_steps(it) for it in asyncio.run(scenario()))
    assert {(it.name, it.kind, it.under, it.end) for it in first} == {
        ("all", "scatter", "", "ok"),
        ("a", "call", "all", "dropped"),
        ("pick", "switch", "all", "ok"),
        ("b", "map", "pick", "ok"),
        ("each", "scatter", "all", "ok"),
        ("each[0]", "call", "each", "ok"),
        ("each[1]", "call", "each", "ok"),
        ("kept", "cache", "all", "ok"),
        ("d", "call", "kept", "ok"),
    }
    calls = {it.name: (it.bytes_in, it.bytes_out, it.request_id) for it in first if it.request_id}
    assert calls == {
        "a": (len(msgspec.json.encode(request)), 0, "r-a"),
        "each[0]": (1, 2, "r-c"),
        "each[1]": (2, 2, "r-c"),
        "d": (1, 2, "r-c"),
    }
    ends = {it.name: it.end for it in second}
    assert ends["kept"] == "hit"
    assert "d" not in ends


def test_a_call_that_is_late_has_the_steps_that_were_under_way() -> None:
    text = (
        "output: a\ndeadline_s: 0.01\nsteps: {a: {call: {endpoint: a}, input: m}, m: {map: input}}"
    )
    result = asyncio.run(Graph(text, FakeTargets({"a": asyncio.Event()})).call(1))
    assert {(it.name, it.end) for it in parse_steps(result.steps)} == {
        ("m", "ok"), ("a", "under way"),
    }  # fmt: skip


def test_of_many_steps_the_longest_are_reported_in_the_order_of_their_begin() -> None:
    rows = [StepReport(f"s{it}", "map", "", it, it % 200, "ok") for it in range(400)]
    kept = parse_steps(encode_steps(rows))
    assert len(kept) == MAX_ROWS
    assert min(it.ms for it in kept) == 136
    assert [it.at_ms for it in kept] == sorted(it.at_ms for it in kept)


def test_branches_with_the_same_input_send_the_same_body() -> None:
    text = SCATTER.replace("{endpoint: b}}", "{endpoint: b}, input: 'n[0]'}")
    text = text.replace("{endpoint: a}}", "{endpoint: a}, input: 'n[0]'}")
    value, targets = run(text.replace("n[0]", "input.n[0]"), {"n": [[1]]}, a=1, b=2, c=3)
    assert value == [1, 2, 3]
    assert targets.bodies["a"] == b"[1]"
    assert targets.bodies["a"] is targets.bodies["b"], "it is written once"
    assert targets.bodies["c"] == b'{"n":[[1]]}'


async def test_a_defect_ends_the_call_and_what_runs_beside() -> None:
    never, targets = asyncio.Event(), FakeTargets({})
    targets.answers |= {"a": never, "b": ZeroDivisionError("ours"), "c": never}
    with pytest.raises(ZeroDivisionError):
        await Graph(SCATTER, targets).call({})
    assert sorted(targets.cancelled) == ["a", "c"]
