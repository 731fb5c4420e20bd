"""One call: the waterfall of its hops, the choices of copies, and the logs of that time. Pure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hostelry.console.platform import ApiQuery

JsonObject = Mapping[str, Any]
# Lines are collected each second, and get the time of their file's last write.
LOG_BEFORE_S, LOG_AFTER_S = 0.5, 2.5
MAX_LOG_LINES, MAX_LOG_STREAMS, MAX_LOG_GROUPS, MAX_EVENTS = 20, 12, 4, 1000
MAX_LINE_CHARS = 2000
MAX_ROWS, MAX_DEPTH = 300, 24
MAX_COSTS = 16
GOOD = frozenset({None, "ok", "answered", "streams", "hit"})
# The summary names a part that took at least this share of the time.
MAIN_SHARE = 0.5
PARTS = {
    "queue": "the queue, for want of a ready copy",
    "model": "loading its model on the copy",
    "arrival": "finding what the request is for",
    "passing on": "passing the answer on to the client",
}


def log_queries(call: JsonObject) -> list[ApiQuery]:
    """Build the queries for the logs of the call's copies, and of the calls that it made."""
    windows: dict[str, tuple[float, float]] = {}
    for made in every_call(call):
        if made["copies"]:
            since, until = windows.get(log_group(made), (math.inf, -math.inf))
            begin, end = made["at"] - LOG_BEFORE_S, made["at"] + made["ms"] / 1000 + LOG_AFTER_S
            windows[log_group(made)] = min(since, begin), max(until, end)
    return [
        ApiQuery(
            service="logs",
            operation="FilterLogEvents",
            parameters={
                "logGroupName": group,
                "startTime": int(since * 1000),
                "endTime": int(until * 1000),
                "limit": MAX_EVENTS,
            },
        )
        for group, (since, until) in list(windows.items())[:MAX_LOG_GROUPS]
    ]


def log_group(call: JsonObject) -> str:
    """Name the log group of the copies that the call used."""
    component = call["base_component"] or call["component"]
    if component is None:
        return f"/aws/sagemaker/Endpoints/{call['endpoint']}"
    return f"/aws/sagemaker/InferenceComponents/{component}"


def get_instances(state: JsonObject) -> dict[str, str]:
    """Return the instance of each copy."""
    every = (copy for endpoint in state.get("endpoints", ()) for copy in endpoint["copies"])
    return {it["id"]: it["instance"] for it in every}


def log_streams(
    call: JsonObject, instances: Mapping[str, str], pages: Iterable[JsonObject]
) -> dict[str, list[str]]:
    """Find the last lines of each log stream of the call's copies, by the stream's name.

    A stream's name contains a component's copy, or a model endpoint's instance. The instance of an
    ended copy is not known. If there is such a copy, all streams are shown.
    """
    copies = {copy for made in every_call(call) for copy in made["copies"]}
    wanted = copies | {instances[it] for it in copies if it in instances}
    all_known = copies <= instances.keys()
    streams: dict[str, list[str]] = {}
    for page in pages:
        for event in page.get("events", ()):
            stream = event["logStreamName"]
            if not all_known or wanted & set(stream.split("/")):
                streams.setdefault(stream, []).append(event["message"][:MAX_LINE_CHARS])
    kept = list(streams.items())[:MAX_LOG_STREAMS]
    return {stream: lines[-MAX_LOG_LINES:] for stream, lines in kept}


def every_call(call: JsonObject) -> Iterator[JsonObject]:
    """Yield the call, and all calls that it made, at any depth."""
    yield call
    for made in call.get("calls", ()):
        yield from every_call(made)
    waiting = list(call["spans"])
    while waiting:
        span = waiting.pop(0)
        waiting += span.get("spans", ())
        if "call" in span:
            yield from every_call(span["call"])


def document(
    call: JsonObject, logs: Mapping[str, Sequence[str]], silent: Sequence[str] = ()
) -> dict[str, Any]:
    """Build the document of a call. Its rows are in tree order, with times since its arrival."""
    rows = list(build_rows(call, 0.0, 0))
    return {
        "id": call["request_id"],
        "at": call["at"],
        "ms": call["ms"],
        "status": call["status"],
        "code": call["code"],
        "error": call["error"],
        "operation": call["operation"],
        "endpoint": call["endpoint"],
        "variant": call["variant"],
        "component": call["component"],
        "base_component": call["base_component"],
        "target_model": call["target_model"],
        "traceparent": call["traceparent"],
        "parent": call["parent_id"],
        "worker": call["worker"],
        "bytes_in": call["bytes_in"],
        "bytes_out": call["bytes_out"],
        "first_byte_ms": call["first_byte_ms"],
        "tokens": call["tokens"] or {},
        "tokens_per_s": tokens_per_s(call),
        "summary": summary(call),
        "rows": rows[:MAX_ROWS],
        "rows_left_out": max(0, len(rows) - MAX_ROWS),
        "choices": [it for span in call["spans"] for it in choices(span)],
        "logs": logs,
        "silent": list(silent),
    }


def build_rows(call: JsonObject, since_ms: float, depth: int) -> Iterator[dict[str, Any]]:
    """Build the rows of a call's spans. `since_ms` is its arrival within the call at the top."""
    yield from span_rows(call["spans"], call, since_ms, depth)
    for made in call.get("calls", ()):
        yield from made_rows(made, call, since_ms, depth)


def span_rows(
    spans: Sequence[JsonObject], call: JsonObject, since_ms: float, depth: int
) -> Iterator[dict[str, Any]]:
    """Build the row of each span, then the rows of the spans within it."""
    for span in spans if depth <= MAX_DEPTH else ():
        yield row(span, since_ms + span["at_ms"], depth)
        yield from span_rows(span.get("spans", ()), call, since_ms, depth + 1)
        if "call" in span:
            yield from made_rows(span["call"], call, since_ms, depth + 1)


def made_rows(
    made: JsonObject, call: JsonObject, since_ms: float, depth: int
) -> Iterator[dict[str, Any]]:
    """Build the row of a call that `call` made, then the rows of its spans."""
    if depth > MAX_DEPTH:
        return
    begin_ms = since_ms + (made["at"] - call["at"]) * 1000
    target = made["component"] or made["variant"]
    label = f"{made['endpoint']}/{target}" if target else made["endpoint"]
    outcome = f"{made['status']} {made['code']}" if made["error"] else None
    span = {**made, "name": label, "kind": "call of", "outcome": outcome, "detail": made["error"]}
    yield {**row(span, begin_ms, depth), "call": made["request_id"]}
    yield from build_rows(made, begin_ms, depth + 1)


def row(span: JsonObject, at_ms: float, depth: int) -> dict[str, Any]:
    """Build a bar of the waterfall."""
    is_attempt = span["name"] == "attempt"
    outcome = span.get("outcome")
    return {
        "name": span["copy"] if is_attempt else span["name"],
        "kind": "copy" if is_attempt else span.get("kind"),
        "depth": depth,
        "at_ms": round(at_ms, 3),
        "ms": span["ms"],
        "wait_ms": span.get("wait_ms"),
        "first_byte_ms": span.get("first_byte_ms"),
        "bytes_in": span.get("bytes_in"),
        "bytes_out": span.get("bytes_out"),
        "problem": None if outcome in GOOD else outcome,
        "detail": span.get("detail"),
        "config": span.get("config"),
    }


def choices(span: JsonObject) -> Iterator[dict[str, Any]]:
    """Describe how the copy of an attempt was chosen, with the costs of the other copies."""
    choice = span.get("choice")
    if choice:
        costs = sorted(choice["costs"].items(), key=lambda it: (it[1], it[0] != span["copy"]))
        yield {
            "copy": span["copy"],
            "policy": choice["policy"],
            "of": choice["of"],
            "unit": "ms expected" if choice["unit"] == "ms" else "requests in flight",
            "costs": [[copy, cost] for copy, cost in costs[:MAX_COSTS]],
            "left_out": max(0, choice["of"] - len(costs[:MAX_COSTS])),
        }


def tokens_per_s(call: JsonObject) -> float | None:
    """Compute the tokens of the answer per second, after the first byte. None if unknown."""
    tokens = call["tokens"] or {}
    count = tokens.get("completion_tokens", tokens.get("output_tokens"))
    if not count or call["first_byte_ms"] is None:
        return None
    took_ms = call["ms"] - call["first_byte_ms"]
    # The first byte of an answer that was not streamed comes at its end.
    took_ms = took_ms if took_ms > call["ms"] / 10 else call["ms"]
    return round(count / took_ms * 1000, 1) if took_ms > 0 else None


def summary(call: JsonObject) -> str:
    """Say in a sentence where most of the time went, or that no hop took most of it."""
    whole_ms = call["ms"]
    parts: dict[str, float] = {}
    for span in call["spans"]:
        for what, ms in build_parts(span):
            parts[what] = parts.get(what, 0.0) + ms
    if not parts or whole_ms <= 0:
        return "Nothing was noted of where its time went."
    what, ms = max(parts.items(), key=lambda it: it[1])
    share = ms / whole_ms
    attempts = sum(1 for it in call["spans"] if it["name"] == "attempt")
    tries = f" It took {attempts} attempts." if attempts > 1 else ""
    if share < MAIN_SHARE:
        return f"No single hop took most of the time; the longest was {what}.{tries}"
    return f"{100 * share:.0f} % of the time went to {what}.{tries}"


def build_parts(span: JsonObject) -> Iterator[tuple[str, float]]:
    """Divide a span's time into parts."""
    if span["name"] == "attempt":
        hops = [it for it in span.get("spans", ()) if "at_ms" in it]
        longest = max(hops, key=lambda it: it["ms"], default=None)
        within = (
            "" if longest is None or longest["ms"] < span["ms"] / 2 else f", in {longest['name']}"
        )
        yield f"the model server {span['copy']}{within}", span["ms"]
        yield "the wait for a connection to a copy", span.get("wait_ms", 0.0)
    else:
        yield PARTS.get(span["name"], str(span["name"])), span["ms"]
