from tests.cases import case, cases

from hostelry.dataplane.tracing.call_document import call_document
from hostelry.dataplane.tracing.call_spans import TraceSampling, call_spans, trace_ids
from hostelry.dataplane.tracing.call_trace import CHOSEN, HELD, RELEASED, CallTrace
from hostelry.graph.step_report import StepReport, encode_steps

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MS = 1_000_000


@cases(
    "traceparent, parent, is_sampled",
    case("a sampled span of a client", f"00-{TRACE}-{PARENT}-01", PARENT, True),
    case("one that is not sampled", f"00-{TRACE}-{PARENT}-00", PARENT, False),
    case("a later version", f"01-{TRACE}-{PARENT}-01-more", PARENT, True),
    case("version 00 has no more", f"00-{TRACE}-{PARENT}-01-more", None, None),
    case("a version that is none", f"ff-{TRACE}-{PARENT}-01", None, None),
    case("a trace id of zeros", f"00-{'0' * 32}-{PARENT}-01", None, None),
    case("a span id of zeros", f"00-{TRACE}-{'0' * 16}-01", None, None),
    case("capitals", f"00-{TRACE.upper()}-{PARENT}-01", None, None),
    case("no traceparent", "nonsense", None, None),
    case("none", None, None, None),
)
def test_ids_follow_the_client_s_trace_or_begin_one(
    traceparent: str | None, parent: str | None, is_sampled: bool | None
) -> None:
    ids = trace_ids("r-1", traceparent)
    assert (ids.parent_id, ids.is_parent_sampled) == (parent, is_sampled)
    assert (ids.trace_id == TRACE) == (parent is not None)
    assert ids == trace_ids("r-1", traceparent), "the same each time"
    assert ids.span_id != trace_ids("r-2", traceparent).span_id
    passed = trace_ids("r-3", ids.build_traceparent(is_sampled=True))
    assert (passed.trace_id, passed.parent_id) == (ids.trace_id, ids.span_id)
    assert passed.is_parent_sampled


def test_a_share_of_the_traces_is_sampled_and_a_client_s_decision_holds() -> None:
    some = TraceSampling(share=0.25)
    found = [some.has(trace_ids(f"r-{it}", None)) for it in range(4000)]
    assert 0.2 < sum(found) / len(found) < 0.3
    decided = trace_ids("r-1", f"00-{TRACE}-{PARENT}-01")
    assert TraceSampling(share=0.0).has(decided)
    assert not TraceSampling(share=0.0, follows_parent=False).has(decided)
    assert TraceSampling(share=1.0).has(trace_ids("r-1", None))


def call(**more: object) -> CallTrace:
    made = CallTrace("r-1", "111122223333", 1000.0, 50 * MS, 7, operation="InvokeEndpoint")
    made.endpoint, made.component = "chat", "base"
    made.found_ns, made.answered_ns, made.ended_ns = 51 * MS, 90 * MS, 91 * MS
    made.status, made.bytes_out = 200, 9
    made.note(HELD, 51 * MS)
    made.note(RELEASED, 60 * MS)
    made.note(CHOSEN, 61 * MS, "c-1", None, ("least", ("c-1", "c-2"), (0.0, 3.0), 2))
    phase = {"kind": "engine", "under": "", "end": "ok"}
    steps = [StepReport(name="prefill", at_ms=2.0, ms=5.0, **phase)]  # type: ignore[arg-type]
    made.set_steps(encode_steps(steps))
    made.tail = b'"usage": {"prompt_tokens": 3, "completion_tokens": 4}}'
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_a_call_is_a_tree_of_spans() -> None:
    ids = trace_ids("r-1", f"00-{TRACE}-{PARENT}-01")
    root, *within = call_spans(call_document(call(), "gateway-1"), ids)
    assert (root.name, root.parent_id, root.is_call) == ("InvokeEndpoint chat", PARENT, True)
    assert (root.start_ns, root.end_ns - root.start_ns) == (1000 * 10**9, 41 * MS)
    assert root.attributes["gen_ai.usage.output_tokens"] == 4
    assert root.attributes["hostelry.request_id"] == "r-1"
    assert root.error is None
    names = [it.name for it in within]
    assert names == ["arrival", "queue", "attempt", "prefill", "passing on"]
    by_name = {it.name: it for it in within}
    assert by_name["queue"].end_ns - by_name["queue"].start_ns == 9 * MS
    assert by_name["attempt"].attributes["hostelry.copy"] == "c-1"
    assert by_name["attempt"].attributes["hostelry.choice.of"] == 2
    assert by_name["prefill"].parent_id == by_name["attempt"].span_id
    assert by_name["attempt"].parent_id == root.span_id
    assert len({it.span_id for it in (root, *within)}) == 6
    assert {it.trace_id for it in (root, *within)} == {TRACE}


@cases(
    "status, error",
    case("the platform's own failure", 500, "the copy died"),
    case("the client's mistake is no error of a server", 400, None),
)
def test_an_error_is_that_of_the_server_only(status: int, error: str | None) -> None:
    failed = call(status=status, error="the copy died", code="ModelError")
    root, *_ = call_spans(call_document(failed), trace_ids("r-1", None))
    assert root.error == error
    assert root.attributes["error.type"] == "ModelError"
