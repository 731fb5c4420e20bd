"""A traced call as values for people and programs: a tree of spans. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hostelry.dataplane.tracing.call_trace import (
    CHOSEN,
    CONTAINER,
    CONTAINER_END,
    HELD,
    LEASED,
    RELEASED,
    CallTrace,
    RouteView,
)
from hostelry.dataplane.tracing.token_usage import parse_token_usage
from hostelry.graph.step_report import StepReport, parse_steps

Span = dict[str, Any]
NS_PER_MS = 1_000_000
MAX_NESTED = 64  # steps within steps, as many as a graph may have
NO_CONNECTION = "took no connection"
SENT_AGAIN = "had lost the model, or had no memory for it"
# Policies whose costs are milliseconds. The costs of other policies are requests in flight.
IN_MS = frozenset({"adapter", "model"})
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def call_document(call: CallTrace, worker: str = "") -> dict[str, Any]:
    """Build the document of a call: the request, the result, and spans in ms since its arrival.

    Spans follow each other. Spans within a span are parts of it. `worker` is the gateway worker
    that had the call.
    """
    spans = list(_spans(call))
    return {
        "request_id": call.request_id,
        "parent_id": call.parent_id,
        "parent_step": call.parent_step or None,
        "worker": worker,
        "account": call.account,
        "at": round(call.arrived_at, 6),
        "operation": call.operation,
        "endpoint": call.endpoint,
        "variant": call.variant or None,
        "component": call.component,
        "base_component": call.base_component,
        "target_model": call.target_model,
        "traceparent": _traceparent(call.traceparent),
        "status": call.status,
        "code": call.code or None,
        "error": call.error or None,
        "ms": _ms(call.took_ns),
        "first_byte_ms": _ms(call.first_ns - call.arrived_ns) if call.first_ns else None,
        "bytes_in": call.bytes_in,
        "bytes_out": call.bytes_out,
        "tokens": parse_token_usage(call.tail),
        "copies": list_copies(spans),
        "spans": spans,
    }


def list_copies(spans: list[Span]) -> list[str]:
    """List the copies that the spans name, each once."""
    found: dict[str, None] = {}
    for span in spans:
        if "copy" in span:
            found[span["copy"]] = None
        found.update(dict.fromkeys(list_copies(span.get("spans", []))))
    return list(found)


def _spans(call: CallTrace) -> Iterator[Span]:
    """Build the phases of the call."""
    walk = _Walk(call)
    found_ns = call.found_ns or call.ended_ns
    yield walk.span("arrival", call.arrived_ns, found_ns)
    for event in call.each_event():
        yield from walk.took(event)
    yield from walk.close_all()


class _Walk:
    """The events of a call, from which spans are closed one by one."""

    def __init__(self, call: CallTrace) -> None:
        self._call = call
        self._held_ns = 0
        self._attempt: Span | None = None
        self._hop: Span | None = None
        self._container: tuple[str, str] | None = None
        self._since_ns = call.found_ns or call.arrived_ns  # the end of the last phase

    def took(self, event: tuple[Any, ...]) -> Iterator[Span]:
        """Build the spans that end with the event."""
        what, at_ns = event[0], event[1]
        if what == HELD:
            yield from self._close(at_ns, NO_CONNECTION)
            self._held_ns = self._held_ns or at_ns
        elif what == RELEASED:
            yield from self._walk_queued(at_ns)
        elif what == LEASED:
            yield from self._walk_leased(at_ns, is_hit=event[2], waited_s=event[3])
        elif what == CHOSEN:
            yield from self._walk_chosen(*event[1:])
        elif what == CONTAINER:
            self._container = event[2], event[3]
            if self._attempt is not None:
                self._enter(at_ns)
        elif what == CONTAINER_END and self._hop is not None:
            self._leave(at_ns, event[2])

    def close_all(self) -> Iterator[Span]:
        """Build the spans that end with the call."""
        call = self._call
        if self._held_ns:
            yield from self._walk_queued(call.ended_ns)
        if self._attempt is None:
            return
        answered_ns = min(call.answered_ns or call.ended_ns, call.ended_ns)
        if self._hop is not None:
            if call.is_failed:
                self._hop["outcome"] = "failed"
            self._leave(answered_ns, call.bytes_out)
        attempt = self._attempt
        if call.first_ns:
            first_ms = _ms(call.first_ns - call.arrived_ns)
            attempt["first_byte_ms"] = max(0.0, round(first_ms - attempt["at_ms"], 3))
        steps = step_spans(parse_steps(call.steps), attempt["at_ms"]) if call.steps else []
        if steps:
            attempt["spans"] = [*attempt.get("spans", []), *steps]
        yield from self._close(answered_ns, "answered" if call.answered_ns else "gave no answer")
        if call.answered_ns:
            yield self.span("passing on", answered_ns, call.ended_ns)

    def span(self, name: str, from_ns: int, to_ns: int, **more: Any) -> Span:
        """Build a span. `more` are its other values."""
        at_ms = _ms(from_ns - self._call.arrived_ns)
        return {"name": name, "at_ms": at_ms, "ms": _ms(to_ns - from_ns), **more}

    def _walk_queued(self, at_ns: int) -> Iterator[Span]:
        if self._held_ns:
            yield self.span("queue", self._held_ns, at_ns)
            self._since_ns = at_ns
        self._held_ns = 0

    def _walk_leased(self, at_ns: int, *, is_hit: bool, waited_s: float) -> Iterator[Span]:
        yield from self._close(at_ns, SENT_AGAIN)
        detail = "it was loaded" if is_hit else "it had to be loaded"
        waited_ns = min(int(waited_s * 1e9), at_ns - self._since_ns)
        yield self.span("model", at_ns - max(0, waited_ns), at_ns, detail=detail)
        self._since_ns = at_ns

    def _walk_chosen(
        self, at_ns: int, copy_id: str, config: str | None, route: RouteView | None
    ) -> Iterator[Span]:
        yield from self._close(at_ns, NO_CONNECTION)
        more: Span = {"copy": copy_id, "wait_ms": _ms(at_ns - self._since_ns)}
        if config is not None:
            more["config"] = config
        alone = "its session" if self._call.has_session else "the only copy"
        more["choice"] = describe_choice(route, alone)
        self._attempt = self.span("attempt", at_ns, at_ns, **more)
        if self._container is not None:
            self._enter(at_ns)

    def _enter(self, at_ns: int) -> None:
        """Begin a container, which gets the answer of the container before."""
        assert self._attempt is not None, "a container belongs to an attempt"
        assert self._container is not None, "it has a name"
        hops: list[Span] = self._attempt.setdefault("spans", [])
        name, copy_id = self._container
        self._hop = self.span(
            name,
            at_ns,
            at_ns,
            kind="container",
            copy=copy_id or self._attempt["copy"],
            wait_ms=_ms(at_ns - self._since_ns) if hops else 0.0,
            bytes_in=hops[-1]["bytes_out"] if hops else self._call.bytes_in,
            bytes_out=0,
        )
        hops.append(self._hop)

    def _leave(self, at_ns: int, num_bytes: int) -> None:
        assert self._hop is not None, "it is at a container"
        self._hop["ms"] = max(0.0, self._ms_until(self._hop, at_ns))
        self._hop["bytes_out"] = num_bytes
        self._hop = None
        self._since_ns = at_ns

    def _close(self, at_ns: int, outcome: str) -> Iterator[Span]:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            if self._hop is not None:
                self._leave(at_ns, 0)
            attempt["ms"] = self._ms_until(attempt, at_ns)
            attempt["outcome"] = outcome
            self._since_ns = at_ns
            yield attempt

    def _ms_until(self, span: Span, at_ns: int) -> float:
        from_ms: float = span["at_ms"]
        return round(_ms(at_ns - self._call.arrived_ns) - from_ms, 3)


def describe_choice(route: RouteView | None, alone: str) -> dict[str, Any]:
    """Describe how a copy was chosen, and the cost of each copy. `alone`: of one copy."""
    if route is None:
        return {"policy": alone, "of": 1, "unit": None, "costs": {}}
    policy, ids, costs, num = route
    return {
        "policy": policy,
        "of": num,
        "unit": "ms" if policy in IN_MS else "requests",
        "costs": {copy_id: round(cost, 3) for copy_id, cost in zip(ids, costs, strict=False)},
    }


def step_spans(rows: tuple[StepReport, ...], at_ms: float) -> list[Span]:
    """Build the spans of a graph's steps. The steps within a step are its parts.

    The graph's call begins at `at_ms`. A step with steps within it takes as long as they do.
    """
    names = {row.name for row in rows}
    below: dict[str, list[StepReport]] = {}
    for row in rows:
        below.setdefault(row.under if row.under in names else "", []).append(row)
    placed: set[str] = set()

    def spans(owner: str, depth: int) -> list[Span]:
        found = []
        for row in below.get(owner, ()) if depth <= MAX_NESTED else ():
            if row.name not in placed:
                placed.add(row.name)
                found.append(_step_span(row, at_ms, spans(row.name, depth + 1)))
        return found

    return spans("", 0)


def _step_span(row: StepReport, at_ms: float, within: list[Span]) -> Span:
    begins_ms = min([at_ms + row.at_ms, *(it["at_ms"] for it in within)])
    ends_ms = max([at_ms + row.at_ms + row.ms, *(it["at_ms"] + it["ms"] for it in within)])
    span: Span = {
        "name": row.name,
        "kind": row.kind,
        "at_ms": round(begins_ms, 3),
        "ms": round(ends_ms - begins_ms, 3),
        "outcome": row.end,
    }
    if row.request_id:
        span |= {
            "bytes_in": row.bytes_in,
            "bytes_out": row.bytes_out,
            "request_id": row.request_id,
        }
    if within:
        span["spans"] = within
    return span


def attach_calls(
    document: dict[str, Any], calls: Mapping[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    """Add the calls that a call made to its document, below the steps that made them.

    `calls` has the documents of calls by their parent's request id. Calls of unknown steps go below
    the document itself.
    """
    children = calls.get(document["request_id"], ())
    made = {child["request_id"]: attach_calls(child, calls) for child in children}
    by_step = {it["parent_step"]: it["request_id"] for it in made.values() if it["parent_step"]}

    def join_spans(spans: list[Span]) -> list[Span]:
        found = []
        for span in spans:
            more: Span = {}
            made_id = span.get("request_id")
            if made_id is None and span.get("kind") == "call":  # it was cut off before its answer
                made_id = by_step.get(span["name"])
            child = made.pop(made_id, None) if made_id is not None else None
            if child is not None:
                more["call"] = child
            if "spans" in span:
                more["spans"] = join_spans(span["spans"])
            found.append({**span, **more})
        return found

    spans = join_spans(document["spans"])
    return {**document, "spans": spans, "calls": list(made.values())}


def _traceparent(given: str | None) -> str | None:
    return given if given is not None and _TRACEPARENT.fullmatch(given) else None


def _ms(time_ns: int) -> float:
    return round(time_ns / NS_PER_MS, 3)
