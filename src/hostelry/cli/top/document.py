"""The state of a platform as a document: rows, totals, and counts of hidden rows. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

Json = Mapping[str, Any]
# Columns by sort key. True sorts the largest value first.
SORTS = {
    "requests": ("requests_per_s", True),
    "latency": ("p99_ms", True),
    "flight": ("in_flight", True),
    "queue": ("held", True),
    "errors": ("errors_per_s", True),
    "tokens": ("tokens_per_s", True),
    "copies": ("copies", True),
    "name": ("name", False),
}
RESOURCES = ("cpus", "memory_bytes", "accelerators")
ERRORS = ("errors_4xx_per_s", "errors_5xx_per_s", "no_capacity_per_s", "throttled_per_s")
# vLLM and our own LLM server both have this counter.
COUNTER = "vllm:generation_tokens_total{"
LABELS = re.compile(r'(component|endpoint|copy)="([^"]*)"')
Counts = Mapping[tuple[str, str], float]


class ProcessUse(msgspec.Struct, frozen=True, kw_only=True):
    """The use of a process group since the look before. `cpu_percent` is of one CPU."""

    name: str
    pid: int | None
    cpu_percent: float | None
    memory_bytes: int | None


class TopLook(msgspec.Struct, frozen=True, kw_only=True):
    """The data of one look.

    Control reports `state` and `load`. They are missing (None) if control does not answer.
    `tokens_per_s` is by component or else endpoint, and `copy_cpu` by copy id.
    """

    at: float
    processes: Sequence[ProcessUse]
    state: Json | None
    load: Json | None
    tokens_per_s: Mapping[str, float] = msgspec.field(default_factory=dict)
    copy_cpu: Mapping[str, float] = msgspec.field(default_factory=dict)


class TopChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The rows to show: the maximum for each table, their order, and a filter `part` of names."""

    sort: str = "requests"
    rows: int = 20
    part: str = ""


def top_document(look: TopLook, choice: TopChoice) -> dict[str, Any]:
    """Build the document.

    Totals cover all rows that pass the filter, including hidden rows.
    """
    endpoints = (look.state or {}).get("endpoints", ())
    is_known = look.state is not None
    served = [it for it in _list_served(look, endpoints) if choice.part in it["name"]]
    instances = [
        _instance(endpoint, instance, look.copy_cpu)
        for endpoint in endpoints
        if choice.part in endpoint["name"]
        for instance in endpoint["instances"]
    ]
    instances.sort(key=lambda it: (-it["reserved_share"], it["endpoint"], it["id"]))
    column, is_falling = SORTS[choice.sort]
    served.sort(key=lambda it: it["name"])
    served.sort(key=lambda it: _sortable(it[column]), reverse=is_falling)
    return {
        "at": look.at,
        "control_answers": is_known,
        "sort": choice.sort,
        "totals": _totals(served, instances) if is_known else None,
        "processes": [
            {
                "name": process.name,
                "pid": process.pid,
                "cpu_percent": process.cpu_percent,
                "memory_bytes": process.memory_bytes,
            }
            for process in look.processes
        ],
        "instances": instances[: choice.rows],
        "instances_not_shown": max(0, len(instances) - choice.rows),
        "served": served[: choice.rows],
        "served_not_shown": max(0, len(served) - choice.rows),
    }


def _sortable(value: Any) -> Any:
    return -1.0 if value is None else value


def _list_served(look: TopLook, endpoints: Iterable[Json]) -> list[dict[str, Any]]:
    """One row per component, and one per variant that serves a model."""
    loads = {
        (load["endpoint"], load["component"] or load["variant"]): load
        for load in (look.load or {}).get("names", ())
    }
    nothing: Json | None = None if look.load is None else {}
    rows = []
    for endpoint in endpoints:
        name = endpoint["name"]
        for component in endpoint["components"]:
            load = loads.get((name, component["name"]), nothing)
            counts = (component["ready_copies"], component["desired_copies"])
            tokens = look.tokens_per_s.get(component["name"])
            rows.append(
                _row(component["name"], endpoint, component["status"], counts, load, tokens)
                | {"base": component.get("base")}
            )
        for variant in () if endpoint["takes_components"] else endpoint["variants"]:
            ready = _ready_on(endpoint, variant["name"])
            title = name if len(endpoint["variants"]) == 1 else f"{name}/{variant['name']}"
            load = loads.get((name, variant["name"]), nothing)
            counts = (ready, variant["desired_instances"])
            tokens = look.tokens_per_s.get(name) if title == name else None
            rows.append(
                _row(title, endpoint, endpoint["status"], counts, load, tokens) | {"base": None}
            )
    return rows


def _row(
    name: str,
    endpoint: Json,
    status: str,
    counts: tuple[int, int],
    load: Json | None,
    tokens_per_s: float | None,
) -> dict[str, Any]:
    is_known, load = load is not None, load or {}
    latency, first = load.get("latency_ms") or {}, load.get("first_chunk_ms") or {}
    errors = round(sum(load.get(it, 0.0) for it in ERRORS), 3)
    serves_nothing = status == "InService" and counts[1] > 0 and not counts[0]
    return {
        "name": name,
        "endpoint": endpoint["name"],
        "status": status,
        "copies": counts[0],
        "desired_copies": counts[1],
        "serves_nothing": serves_nothing,
        "requests_per_s": load.get("arrivals_per_s", 0.0) if is_known else None,
        "errors_per_s": errors if is_known else None,
        "p50_ms": latency.get("p50"),
        "p99_ms": latency.get("p99"),
        "first_chunk_p99_ms": first.get("p99"),
        "in_flight": load.get("in_flight", 0.0) if is_known else None,
        "held": load.get("held", 0) if is_known else None,
        "tokens_per_s": tokens_per_s,
    }


def _ready_on(endpoint: Json, variant: str) -> int:
    """Instances of the variant with a copy that serves."""
    mine = {it["id"] for it in endpoint["instances"] if it["variant"] == variant}
    ready = {it["instance"] for it in endpoint["copies"] if it["phase"] == "ready"}
    return len(mine & ready)


def _instance(endpoint: Json, instance: Json, copy_cpu: Mapping[str, float]) -> dict[str, Any]:
    """The instance's declared resources, and those that its copies reserve and use."""
    copies = [it for it in endpoint["copies"] if it["instance"] == instance["id"]]
    is_whole = any(it["reserved"] is None for it in copies)  # a model's copy reserves all
    free = dict.fromkeys(RESOURCES, 0) if is_whole else instance["free"]
    measured = [copy_cpu[it["id"]] for it in copies if it["id"] in copy_cpu]
    shares = [1 - free[name] / instance[name] for name in RESOURCES if instance[name]]
    return {
        "id": instance["id"],
        "endpoint": endpoint["name"],
        "type": instance["type"],
        "state": instance["state"],
        "copies": len(copies),
        "cpus": instance["cpus"],
        "cpus_reserved": round(instance["cpus"] - free["cpus"], 3),
        "cpu_percent_used": round(sum(measured), 1) if measured else None,
        "memory_bytes": instance["memory_bytes"],
        "memory_bytes_reserved": instance["memory_bytes"] - free["memory_bytes"],
        "memory_bytes_used": sum(it["memory_bytes"] or 0 for it in copies),
        "accelerators": instance["accelerators"],
        "accelerators_reserved": instance["accelerators"] - free["accelerators"],
        "reserved_share": round(max(shares, default=0.0), 4),
    }


def _totals(served: Sequence[Json], instances: Sequence[Json]) -> dict[str, Any]:
    """Sums over all rows. An adapter uses its base's copies, which count once.

    The sum of a load is unknown (None) if the load of every row is unknown.
    """
    own = [it for it in served if it["base"] is None]
    return {
        "served": len(served),
        "endpoints": len({it["endpoint"] for it in served}),
        "copies": sum(it["copies"] for it in own),
        "desired_copies": sum(it["desired_copies"] for it in own),
        "requests_per_s": _sum(served, "requests_per_s"),
        "errors_per_s": _sum(served, "errors_per_s"),
        "in_flight": _sum(served, "in_flight"),
        "held": _sum(served, "held"),
        "tokens_per_s": _sum(served, "tokens_per_s") if served else None,
        "instances": len(instances),
        "cpus": sum(it["cpus"] for it in instances),
        "cpus_reserved": round(sum(it["cpus_reserved"] for it in instances), 3),
        "memory_bytes": sum(it["memory_bytes"] for it in instances),
        "memory_bytes_reserved": sum(it["memory_bytes_reserved"] for it in instances),
        "memory_bytes_used": sum(it["memory_bytes_used"] for it in instances),
    }


def _sum(rows: Sequence[Json], name: str) -> float | int | None:
    known = [it[name] for it in rows if it[name] is not None]
    return round(sum(known), 3) if known or not rows else None


def token_counts(page: str) -> dict[tuple[str, str], float]:
    """Generated tokens so far, by (component or else endpoint, copy)."""
    found: dict[tuple[str, str], float] = {}
    for line in page.split("\n"):
        if not line.startswith(COUNTER):
            continue
        labels = dict(LABELS.findall(line))
        name = labels.get("component") or labels.get("endpoint", "")
        key = name, labels.get("copy", "")
        found[key] = found.get(key, 0.0) + float(line.rpartition(" ")[2])
    return found


def token_rates(before: Counts, now: Counts, seconds: float) -> dict[str, float]:
    """Tokens per second by name. A new or restarted copy counts from its next look."""
    rates: dict[str, float] = {}
    for (name, copy), count in now.items():
        grown = max(0.0, count - before.get((name, copy), count))
        rates[name] = rates.get(name, 0.0) + grown / max(seconds, 1e-3)
    return {name: round(rate, 1) for name, rate in rates.items()}
