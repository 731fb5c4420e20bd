"""The list of all endpoints, with one row for each. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from hostelry.console.platform import ProcessQuery, Query
from hostelry.console.views.endpoint import errors_per_s, has_no_place

JsonObject = Mapping[str, Any]


def sources(params: Mapping[str, str], now: float) -> Mapping[str, Query]:
    """Build the queries for the state, and for the load of all names."""
    return {
        "state": ProcessQuery(process="control", path="/internal/state"),
        "load": ProcessQuery(process="control", path="/internal/load"),
    }


def document(sources: Mapping[str, Any], params: Mapping[str, str], now: float) -> dict[str, Any]:
    """Build the rows by endpoint name. `known` is false until control has answered."""
    state, load = sources.get("state") or {}, sources.get("load") or {}
    loads: dict[str, list[JsonObject]] = {}
    for one in load.get("names", ()):
        loads.setdefault(one["endpoint"], []).append(one)
    every = state.get("endpoints", ())
    return {
        "known": sources.get("state") is not None,
        "endpoints": {it["name"]: row(it, loads.get(it["name"], ())) for it in every},
    }


def row(endpoint: JsonObject, loads: Iterable[JsonObject]) -> dict[str, Any]:
    """Build an endpoint's row: status, copies and load. `p99` is the highest of its names."""
    loads = list(loads)
    components, serving = endpoint["components"], endpoint.get("serving", {})
    p99s = [it["latency_ms"]["p99"] for it in loads if it["latency_ms"]]
    return {
        "status": endpoint["status"],
        "reason": endpoint["failure_reason"],
        "progress": endpoint["progress"],
        "components": len(components),
        "failed": sum(1 for it in components if it["status"] == "Failed"),
        "unplaced": sum(1 for it in components if has_no_place(it)),
        "instances": len(endpoint["instances"]),
        "tone": serving.get("tone"),
        "trouble": serving.get("trouble"),
        "desired": serving.get("desired"),
        "ready": serving.get("ready"),
        "rate": round(sum(it["arrivals_per_s"] for it in loads), 1),
        "error_rate": round(sum(errors_per_s(it) for it in loads), 2),
        "in_flight": round(sum(it["in_flight"] for it in loads), 1),
        "held": sum(it["held"] for it in loads),
        "p99": max(p99s, default=None),
    }
