"""The fleet: the place of every copy with its reason, free room, and unplaced copies. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from hostelry.console.platform import ProcessQuery, Query

MIB = 1024 * 1024
# Control does not record the memory in use, so it is asked this often. Other changes show at once.
MEASURED_EVERY_S = 5.0
USED_STEP_BYTES = 16 * MIB  # smaller changes would cause a patch each second
READY = "ready"


def sources(params: Mapping[str, str], now: float) -> Mapping[str, Query]:
    """Build the query for control's explanation of its placement."""
    query = ProcessQuery(process="control", path="/internal/placement", holds_s=MEASURED_EVERY_S)
    return {"placement": query}


def document(answers: Mapping[str, Any], params: Mapping[str, str], now: float) -> dict[str, Any]:
    """Build endpoints, instances with their copies, and copies without a place, each by id."""
    endpoints = (answers["placement"] or {}).get("endpoints", [])
    instances: dict[str, Any] = {}
    for endpoint in endpoints:
        instances |= _instances(endpoint)
    unplaced = {
        f"{endpoint['name']}/{group['component']}": {"endpoint": endpoint["name"], **group}
        for endpoint in endpoints
        for group in endpoint["placement"]["unplaced"]
    }
    return {
        "known": answers["placement"] is not None,
        "endpoints": {it["name"]: _endpoint(it) for it in endpoints},
        "instances": instances,
        "unplaced": unplaced,
        "totals": _totals(instances.values(), unplaced.values()),
    }


def _endpoint(endpoint: Mapping[str, Any]) -> dict[str, Any]:
    components = {
        component["name"]: {
            "status": component["status"],
            "reason": component["failure_reason"],
            "note": component["placement_note"],
            "base": component["base"],
            "desired": component["desired_copies"],
            "ready": component["ready_copies"],
            "pinned": component["pinned"] or None,
            "strategy": component.get("strategy"),
        }
        for component in endpoint["components"]
    }
    variants = {
        variant["name"]: {
            "types": variant["instance_types"],
            "desired": variant["desired_instances"],
            "min": variant["min_instances"],
            "max": variant["max_instances"],
            "serverless": variant["serverless"] is not None or None,
        }
        for variant in endpoint["variants"]
    }
    return {
        "account": endpoint["account"],
        "region": endpoint["region"],
        "status": endpoint["status"],
        "serving": endpoint.get("serving", {}).get("trouble"),
        "reason": endpoint["failure_reason"],
        "config": endpoint["config"],
        "components": components,
        "variants": variants,
    }


def _instances(endpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the endpoint's instances by id, each with its copies by id."""
    why = endpoint["placement"]["why"]
    free_texts = {it["id"]: it["free_text"] for it in endpoint["placement"]["instances"]}
    found = {
        instance["id"]: {
            "endpoint": endpoint["name"],
            "variant": instance["variant"],
            "type": instance["type"],
            "zone": instance["zone"],
            "state": instance["state"],
            "problem": instance["problem"],
            "drain": instance["drain"],
            "unreachableSince": instance["unreachable_since"],
            "createdAt": instance["created_at"],
            "cpus": instance["cpus"],
            "memory": instance["memory_bytes"],
            "accelerators": instance["accelerators"],
            "free": {
                "cpus": instance["free"]["cpus"],
                "memory": instance["free"]["memory_bytes"],
                "accelerators": instance["free"]["accelerators"],
                "text": free_texts.get(instance["id"]),
            },
            "whole": False,  # set below if a copy has the instance to itself
            "copies": {},
        }
        for instance in endpoint["instances"]
    }
    for copy in endpoint["copies"]:
        if copy["instance"] in found:
            shown = {**_copy(copy), "why": why.get(copy["id"])}
            found[copy["instance"]]["copies"][copy["id"]] = shown
            found[copy["instance"]]["whole"] |= copy["reserved"] is None
    return found


def _copy(copy: Mapping[str, Any]) -> dict[str, Any]:
    reserved = copy["reserved"] or {}
    end = copy["last_end"] or {}
    return {
        "component": copy["component"],
        "container": copy["container"],
        "phase": copy["phase"],
        "draining": copy["draining"] or None,
        "cpus": reserved.get("cpus"),
        "memory": reserved.get("memory_bytes"),
        "maxMemory": reserved.get("max_memory_bytes"),
        "accelerators": reserved.get("accelerators") or None,
        "devices": copy["device_ids"] or None,
        "used": _round(copy["memory_bytes"]),
        "peak": _round(copy["peak_memory_bytes"]),
        "restart": copy["restart"],
        "reason": copy["reason"],
        "restarts": copy["restarts"] or None,
        "lastEnd": end.get("cause"),
        "lastEndAt": end.get("at"),
        "createdAt": copy["created_at"],
        "readyAt": copy["ready_at"],
        "start": copy["start_kind"],
        "startS": copy["start_s"],
        "adapters": len(copy["adapters"]) or None,
        "generation": copy["generation"],
    }


def _round(num_bytes: int | None) -> int | None:
    """Round memory to steps, so that small changes do not change the document each second."""
    return None if num_bytes is None else -(-num_bytes // USED_STEP_BYTES) * USED_STEP_BYTES


def _totals(
    instances: Iterable[Mapping[str, Any]], unplaced: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    found = list(instances)
    copies = [copy for it in found for copy in it["copies"].values()]
    used = {
        name: sum(it[name] - (0 if it["whole"] else it["free"][name]) for it in found)
        for name in ("cpus", "memory", "accelerators")
    }
    return {
        "instances": len(found),
        "copies": len(copies),
        "ready": sum(1 for it in copies if it["phase"] == READY and not it["draining"]),
        "unplaced": sum(it["count"] for it in unplaced),
        "cpus": sum(it["cpus"] for it in found),
        "memory": sum(it["memory"] for it in found),
        "accelerators": sum(it["accelerators"] for it in found),
        "cpusReserved": used["cpus"],
        "memoryReserved": used["memory"],
        "acceleratorsReserved": used["accelerators"],
        "memoryUsed": sum(it["used"] or 0 for it in copies),
    }
