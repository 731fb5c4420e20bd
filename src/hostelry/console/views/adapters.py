"""Adapters and caches: where each adapter is, how often it was used, and who has a page. Pure.

Without a name, the view lists every component or endpoint that keeps adapters or models. With a
name, it shows the copies with their page pools, and the adapters (or the models of a multi-model
endpoint) by name.
"""

from collections.abc import Mapping
from typing import Any

from hostelry.console.platform import ProcessQuery, Query

MAX_ROWS = 500  # of each copy, the nearest and busiest first
USED_STEP_S = 10  # exact times of last uses would cause a patch each second
MAX_EVICTIONS = 20
TIERS = ("pool", "host", "disk", "remote")
NONE_DECLARED: Mapping[str, Any] = {"count": 0, "names": (), "not_ready": {}}
SUMMED = ("requests", "failed_loads", "uploads", "host_evictions", "in_flight")

Json = Mapping[str, Any]


def sources(params: Mapping[str, str], now: float) -> Mapping[str, Query]:
    """Build the query for the adapters that copies report, and for the declared adapters."""
    named = {name: params[name] for name in ("component", "endpoint") if name in params}
    query = {**named, "limit": str(MAX_ROWS if named else 0)}
    path = "/internal/copy-caches"
    return {"caches": ProcessQuery(process="control", path=path, query=query)}


def document(answers: Mapping[str, Any], params: Mapping[str, str], now: float) -> dict[str, Any]:
    """Build the list of components and endpoints, or the details of one."""
    caches = answers["caches"] or {"copies": {}, "left_out": 0, "endpoint": None, "declared": {}}
    copies, left_out = caches["copies"], caches["left_out"]
    known = answers["caches"] is not None
    if not params.keys() & {"component", "endpoint"}:
        keepers = _keepers(copies, caches["declared"])
        return {"known": known, "keepers": keepers, "leftOut": left_out}
    declared = caches["declared"].get(params.get("component"), NONE_DECLARED)
    kind = "models" if any(it["what"] == "models" for it in copies.values()) else "adapters"
    rows = _models(copies, now) if kind == "models" else _adapters(copies)
    return {
        "known": known,
        "kind": kind,
        "exists": caches["endpoint"] is not None,
        "endpoint": caches["endpoint"],
        "copies": {copy_id: _copy(it, now) for copy_id, it in copies.items()},
        "totals": {**_totals(copies), "declared": declared["count"]},
        "rows": rows,
        "others": sorted(it for it in declared["names"] if it not in rows),
        "notReady": declared["not_ready"],
        "evictions": _evictions(copies),
        "leftOut": left_out,
    }


def get_path(copy: Json) -> str:
    """Return the last part of a view's address: the component's name, or @ and the endpoint's."""
    return copy["component"] or f"@{copy['endpoint']}"


def _keepers(copies: Mapping[str, Json], declared: Mapping[str, Json]) -> dict[str, Any]:
    """Build a row for each component or endpoint whose copies keep adapters or models."""
    by_path: dict[str, list[Json]] = {}
    for copy in copies.values():
        by_path.setdefault(get_path(copy), []).append(copy)
    return {
        path: _keeper(found, declared.get(path, NONE_DECLARED)["count"])
        for path, found in by_path.items()
    }


def _keeper(copies: list[Json], num_declared: int) -> dict[str, Any]:
    caches = [it["cache"] for it in copies if "cache" in it]
    models = [it["models"]["models"] for it in copies if "models" in it]
    pools = [it["pool"] for it in caches]
    return {
        "endpoint": copies[0]["endpoint"],
        "component": copies[0]["component"],
        "kind": "models" if copies[0]["what"] == "models" else "adapters",
        "copies": len(copies),
        "silent": sum("fault" in it for it in copies) or None,
        "registered": max([num_declared, *(it["registered"] for it in caches)])
        if not models
        else len({it["target"] for found in models for it in found}),
        "inPool": sum(it["adapters"] for it in pools)
        + sum(it["loaded"] for found in models for it in found),
        "inHost": sum(it["host"]["adapters"] for it in caches),
        "hostBytes": sum(it["host"]["bytes"] for it in caches)
        + sum(it["memory_bytes"] for found in models for it in found if it["loaded"]),
        "pages": sum(it["pages"] for it in pools),
        "sequencePages": sum(it["sequence_pages"] for it in pools),
        "prefixPages": sum(it["idle_prefix_pages"] for it in pools),
        "adapterPages": sum(it["adapter_pages"] for it in pools),
        "requests": sum(it["requests"] for it in caches)
        + sum(it["hits"] for found in models for it in found),
        "evictions": sum(it["evictions"] for it in pools)
        + sum(len(it["models"]["evictions"]) for it in copies if "models" in it),
    }


def _adapters(copies: Mapping[str, Json]) -> dict[str, Any]:
    """Build a row for each adapter: sums over the copies, and its tier on each copy."""
    rows: dict[str, Any] = {}
    for copy_id, copy in copies.items():
        for adapter in copy.get("cache", {}).get("adapters", {}).values():
            row = rows.setdefault(adapter["alias"], _empty_row())
            row["tiers"][copy_id] = adapter["tier"]
            row["tokens"] += adapter["prompt_tokens"] + adapter["generated_tokens"]
            row["bytes"] = max(row["bytes"], adapter["num_bytes"])
            row["pages"] = max(row["pages"], adapter["num_pages"])
            row["rank"] = max(row["rank"], adapter["rank"])
            row["pinned"] = row["pinned"] or adapter["pinned"] or None
            row["version"] = adapter["version"]
            for name in SUMMED:
                row[name] += adapter[name]
            for kind in ("hits", "loads"):
                for tier, num in adapter[kind].items():
                    row[kind][tier] = row[kind].get(tier, 0) + num
    for row in rows.values():
        row["tier"] = min(row["tiers"].values(), key=TIERS.index)
    return rows


def _empty_row() -> dict[str, Any]:
    numbers = dict.fromkeys(("tokens", "bytes", "pages", "rank", *SUMMED), 0)
    return {"tiers": {}, "hits": {}, "loads": {}, "pinned": None, **numbers}


def _models(copies: Mapping[str, Json], now: float) -> dict[str, Any]:
    """Build a row for each model of a multi-model endpoint that a copy knows."""
    rows: dict[str, Any] = {}
    for copy_id, copy in copies.items():
        for model in copy.get("models", {}).get("models", ()):
            row = rows.setdefault(
                model["target"],
                {"tiers": {}, "requests": 0, "in_flight": 0, "bytes": 0, "diskBytes": 0,
                 "accelerator": 0, "loadS": 0.0, "downloadS": 0.0, "pinned": None, "usedAt": 0},
            )  # fmt: skip
            tier = "host" if model["loaded"] else "disk" if model["on_disk"] else "remote"
            row["tiers"][copy_id] = tier
            row["requests"] += model["hits"]
            row["in_flight"] += model["in_flight"]
            row["bytes"] = max(row["bytes"], model["memory_bytes"])
            row["diskBytes"] = max(row["diskBytes"], model["disk_bytes"])
            row["accelerator"] = max(row["accelerator"], model["accelerator_bytes"])
            row["loadS"] = max(row["loadS"], round(model["load_s"], 3))
            row["downloadS"] = max(row["downloadS"], round(model["download_s"], 3))
            row["pinned"] = row["pinned"] or model["pinned"] or None
            used_at = int((now - model["last_used_s"]) // USED_STEP_S) * USED_STEP_S
            row["usedAt"] = max(row["usedAt"], used_at)
    for row in rows.values():
        row["tier"] = min(row["tiers"].values(), key=TIERS.index)
    return rows


def _copy(copy: Json, now: float) -> dict[str, Any]:
    shown = {name: copy.get(name) for name in ("instance", "variant", "fault")}
    if "models" in copy:
        models = copy["models"]
        loaded = [it for it in models["models"] if it["loaded"]]
        return {
            **shown,
            "memory": models["memory_bytes"],
            "memoryUsed": sum(it["memory_bytes"] for it in loaded),
            "disk": models["disk_bytes"],
            "diskUsed": sum(it["disk_bytes"] for it in models["models"] if it["on_disk"]),
            "accelerator": models["accelerator_bytes"],
            "loaded": len(loaded),
            "stuck": [it["target"] for it in models["stuck"]],
        }
    if "cache" not in copy:
        return shown
    cache = copy["cache"]
    pooled = (it for it in cache["adapters"].values() if it["code"] is not None)
    codes = {str(it["code"]): it["alias"] for it in pooled}
    kept = ("kernels", "pool", "prefix", "host", "disk", "loads", "running", "waiting")
    return {**shown, **{name: cache[name] for name in kept}, "codes": codes}


def _totals(copies: Mapping[str, Json]) -> dict[str, Any]:
    """Sum over all adapters of all copies."""
    caches = [it["cache"] for it in copies.values() if "cache" in it]
    hits: dict[str, int] = {}
    for cache in caches:
        for tier, num in cache["hits"].items():
            hits[tier] = hits.get(tier, 0) + num
    return {
        "requests": sum(it["requests"] for it in caches),
        "tokens": sum(it["tokens"] for it in caches),
        "allTokens": sum(it["all_tokens"] for it in caches),
        "hits": hits,
        "poolLoads": sum(it["pool"]["loads"] for it in caches),
        "poolEvictions": sum(it["pool"]["evictions"] for it in caches),
        "prefixHits": sum(it["prefix"]["hits"] for it in caches),
        "prefixMisses": sum(it["prefix"]["misses"] for it in caches),
    }


def _evictions(copies: Mapping[str, Json]) -> list[dict[str, Any]]:
    """List the last evictions of multi-model copies."""
    return [
        {"copy": copy_id, **gone}
        for copy_id, copy in copies.items()
        for gone in copy.get("models", {}).get("evictions", ())[-MAX_EVICTIONS:]
    ]
