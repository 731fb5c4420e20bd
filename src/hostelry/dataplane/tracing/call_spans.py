"""A call as spans of a distributed trace: ids, sampling, names and attributes. Pure.

A call's ids follow from its request id and its client's `traceparent`. So the ids that a copy gets
and the exported ids agree, and none is kept. Sources: W3C Trace Context. OpenTelemetry
specification, Trace SDK (samplers), semantic conventions (HTTP, GenAI).
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

NS_PER_MS, NS_PER_S = 1_000_000, 1_000_000_000
# Versions from 01 on may have more after the flags. Version ff is invalid.
TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
SAMPLED = 1
NO_TRACE, NO_SPAN = "0" * 32, "0" * 16
# Members of a document's span that are attributes, with their names.
ATTRIBUTES = {
    "copy": "hostelry.copy",
    "kind": "hostelry.step.kind",
    "wait_ms": "hostelry.wait_ms",
    "outcome": "hostelry.outcome",
    "detail": "hostelry.detail",
    "bytes_in": "hostelry.bytes_in",
    "bytes_out": "hostelry.bytes_out",
    "first_byte_ms": "hostelry.first_byte_ms",
    "config": "hostelry.endpoint_config",
}
CALL_ATTRIBUTES = {
    "request_id": "hostelry.request_id",
    "account": "cloud.account.id",
    "endpoint": "hostelry.endpoint",
    "variant": "hostelry.variant",
    "component": "hostelry.component",
    "target_model": "hostelry.target_model",
    "worker": "hostelry.worker",
    "status": "http.response.status_code",
    "code": "error.type",
    "bytes_in": "http.request.body.size",
    "bytes_out": "http.response.body.size",
    "first_byte_ms": "hostelry.first_byte_ms",
}
TOKENS = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "input_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
}
Attributes = Mapping[str, str | int | float]


class TraceIds(msgspec.Struct, frozen=True, kw_only=True):
    """The trace of a call, the call's own span, and the client's span, if the client named one.

    Ids are hexadecimal. `is_parent_sampled` is None without a client's span.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    is_parent_sampled: bool | None

    def build_traceparent(self, *, is_sampled: bool) -> str:
        """Build the `traceparent` for a copy, below this call's span."""
        return f"00-{self.trace_id}-{self.span_id}-{int(is_sampled):02x}"


class TraceSampling(msgspec.Struct, frozen=True, kw_only=True):
    """Chooses the calls to export: a share of the traces, unless the client's span has decided."""

    share: float = 1.0
    follows_parent: bool = True

    def has(self, ids: TraceIds) -> bool:
        """True if the call is exported. The answer is the same for all calls of a trace."""
        if self.follows_parent and ids.is_parent_sampled is not None:
            return ids.is_parent_sampled
        return int(ids.trace_id[16:], 16) < int(self.share * (1 << 64))


class CallSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One span. Times are nanoseconds since the epoch. `error` is None if it succeeded."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start_ns: int
    end_ns: int
    attributes: Attributes
    is_call: bool = False
    error: str | None = None


def trace_ids(request_id: str, traceparent: str | None) -> TraceIds:
    """The ids of a call. An invalid `traceparent` counts as missing."""
    span_id = _span_id(request_id)
    found = TRACEPARENT.fullmatch(traceparent or "")
    is_longer = found is not None and found[5] is not None
    if (
        found is None
        or found[2] == NO_TRACE
        or found[3] == NO_SPAN
        or (is_longer and found[1] == "00")
    ):
        own = hashlib.sha256(request_id.encode()).hexdigest()[:32]
        return TraceIds(trace_id=own, span_id=span_id, parent_id=None, is_parent_sampled=None)
    return TraceIds(
        trace_id=found[2],
        span_id=span_id,
        parent_id=found[3],
        is_parent_sampled=bool(int(found[4], 16) & SAMPLED),
    )


def call_spans(document: Mapping[str, Any], ids: TraceIds) -> list[CallSpan]:
    """The spans of a call's document: the call's span, then the spans within it."""
    start_ns = int(document["at"] * NS_PER_S)
    attributes = _pick(document, CALL_ATTRIBUTES)
    attributes |= _pick(document["tokens"] or {}, TOKENS)
    call = CallSpan(
        name=f"{document['operation'] or 'call'} {document['endpoint']}".strip(),
        trace_id=ids.trace_id,
        span_id=ids.span_id,
        parent_id=ids.parent_id,
        start_ns=start_ns,
        end_ns=start_ns + _ns(document["ms"]),
        attributes=attributes,
        is_call=True,
        error=(document["error"] or "failed") if document["status"] >= 500 else None,
    )
    return [call, *_within(document["spans"], call, start_ns, document["request_id"])]


def _within(
    spans: list[Mapping[str, Any]], parent: CallSpan, start_ns: int, path: str
) -> Iterator[CallSpan]:
    """The spans below `parent`. `path` names `parent` within the trace."""
    for number, span in enumerate(spans):
        place = f"{path}/{number}"
        choice = span.get("choice") or {}
        attributes = _pick(span, ATTRIBUTES) | _pick(
            choice, {"policy": "hostelry.choice.policy", "of": "hostelry.choice.of"}
        )
        made = CallSpan(
            name=span["name"],
            trace_id=parent.trace_id,
            span_id=_span_id(place),
            parent_id=parent.span_id,
            start_ns=start_ns + _ns(span["at_ms"]),
            end_ns=start_ns + _ns(span["at_ms"] + span["ms"]),
            attributes=attributes,
        )
        yield made
        yield from _within(span.get("spans", []), made, start_ns, place)


def _pick(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str | int | float]:
    return {
        name: values[member]
        for member, name in names.items()
        if isinstance(values.get(member), str | int | float)
    }


def _span_id(path: str) -> str:
    return hashlib.sha256(f"span {path}".encode()).hexdigest()[:16]


def _ns(time_ms: float) -> int:
    return max(0, int(time_ms * NS_PER_MS))
