"""Calls of the last minutes: the slowest calls, or the failed calls. Pure."""

from collections.abc import Mapping
from typing import Any

from hostelry.console.platform import ProcessQuery, Query

PARAMS = frozenset({"order", "endpoint", "minutes"})
JsonObject = Mapping[str, Any]
ORDERS = ("slowest", "failed")
MINUTES = ("1", "5", "15")
LIMIT = 100
MAX_ERROR_CHARS = 300


def sources(params: Mapping[str, str], now: float) -> Mapping[str, Query]:
    """Build the query for the gateway's list of calls."""
    order, minutes = parse_params(params)
    query = {"order": order, "since_s": str(minutes * 60), "limit": str(LIMIT)}
    if params.get("endpoint"):
        query["endpoint"] = params["endpoint"]
    return {"calls": ProcessQuery(process="gateway", path="/traces", query=query)}


def parse_params(params: Mapping[str, str]) -> tuple[str, int]:
    """Parse the order and the number of minutes."""
    order, minutes = params.get("order", ORDERS[0]), params.get("minutes", MINUTES[1])
    return (
        order if order in ORDERS else ORDERS[0],
        int(minutes if minutes in MINUTES else MINUTES[1]),
    )


def document(sources: Mapping[str, Any], params: Mapping[str, str], now: float) -> dict[str, Any]:
    """Build the list of calls by id, with the workers that did not answer."""
    answer = sources.get("calls") or {}
    order, minutes = parse_params(params)
    return {
        "order": order,
        "minutes": minutes,
        "endpoint": params.get("endpoint"),
        "calls": {it["request_id"]: row(it) for it in answer.get("calls", ())},
        "silent": list(answer.get("silent", ())),
        "limit": LIMIT,
    }


def row(call: JsonObject) -> dict[str, Any]:
    """Build the row of a call."""
    error = call["error"] or ""
    tokens = call["tokens"] or {}
    return {
        "at": round(call["at"], 3),
        "ms": call["ms"],
        "first_byte_ms": call["first_byte_ms"],
        "status": call["status"],
        "code": call["code"],
        "endpoint": call["endpoint"],
        "target": call["component"] or call["variant"],
        "operation": call["operation"],
        "tokens": tokens.get("completion_tokens", tokens.get("output_tokens")),
        "queue_ms": round(sum(it["ms"] for it in call["spans"] if it["name"] == "queue"), 3),
        "error": error[:MAX_ERROR_CHARS] or None,
    }
