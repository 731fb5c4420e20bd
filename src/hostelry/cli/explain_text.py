"""`hostelry explain` as text and as JSON values. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hostelry.cli.explain_values import Explained, Unplaced
from hostelry.cli.status_text import columns, memory_text, trouble_lines
from hostelry.domain.shape import Shape
from hostelry.placement.explain import CopyUse, HostUse, devices_text, free_text, reservation_text
from hostelry.placement.words import shape_text


def explanation_lines(found: Explained, now: float, component: str | None = None) -> list[str]:
    """An endpoint's placement as text: a table, each copy's place, and what has no place.

    With `component`, its copies and its missing ones only.
    """
    endpoint = found.endpoint
    base = _base_of(found, component)
    lines = [f"endpoint {endpoint['name']}  {endpoint['status']}"]
    lines += [f"  {_variant_text(it)}" for it in endpoint.get("variants", ())]
    if base != component:
        lines.append(
            f"  {component} is an adapter: it is in each copy of {base}, and takes no room"
        )
    lines += ["", *[f"  {line}" for line in _table(found)]] if found.uses else []
    for use in found.uses:
        mine = _copies_on(found, use, base, now)
        if mine:
            lines += ["", f"  {use.host.instance_id}", *mine]
    for it in found.unplaced:
        if base in (None, it.component):
            lines += ["", *_unplaced_lines(it)]
    return [*lines, ""]


def explanation_document(found: Explained, component: str | None = None) -> dict[str, Any]:
    """The same for programs."""
    base = _base_of(found, component)
    measured = {it["id"]: it for it in found.endpoint["copies"]}
    return {
        "name": found.endpoint["name"],
        "status": found.endpoint["status"],
        "variants": found.endpoint.get("variants", []),
        "instances": [_use_document(found, it, measured, base) for it in found.uses],
        "unplaced": [
            msgspec.to_builtins(it) for it in found.unplaced if base in (None, it.component)
        ],
    }


def _variant_text(variant: Mapping[str, Any]) -> str:
    types = " then ".join(variant.get("instance_types", ()))
    text = f"variant {variant['name']}: {variant['desired_instances']} of {types} wanted"
    if variant.get("max_instances") is None:
        text += ", ManagedInstanceScaling off"
    else:
        bounds = f"{variant['min_instances']} to {variant['max_instances']}"
        text += f", ManagedInstanceScaling {bounds} ({variant['scale_in']})"
    passed = [f"; {it['instance_type']} is passed over: {it['problem']}" for it in _passed(variant)]
    return text + "".join(passed)


def _passed(variant: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    passed: Sequence[Mapping[str, Any]] = variant.get("passed_over", ())
    return passed


def _base_of(found: Explained, component: str | None) -> str | None:
    """The component whose copies are asked about: an adapter's base, else the component itself."""
    for it in found.endpoint["components"]:
        if it["name"] == component and it.get("base"):
            base: str = it["base"]
            return base
    return component


def _table(found: Explained) -> list[str]:
    """Each instance: what its type declares, what copies reserve, what is free."""
    rows = [["INSTANCE", "TYPE", "ZONE", "STATE", "COPIES", "CPUS", "MEMORY", "ACCELERATORS"]]
    states = {it["id"]: it.get("state", "-") for it in found.endpoint["instances"]}
    whole = [it["instance"] for it in found.endpoint["copies"] if it.get("reserved") is None]
    for use in found.uses:
        host, free = use.host, use.free
        taken = host.instance_id in whole
        rows.append(
            [
                host.instance_id,
                host.instance_type,
                host.zone or "-",
                states[host.instance_id],
                str(len(use.copies) + whole.count(host.instance_id)),
                "whole" if taken else f"{free.cpus:g} of {host.shape.cpus:g} free",
                "whole" if taken else _memory_free(free, host.shape),
                "whole" if taken else _accelerators_free(use),
            ]
        )
    return columns(rows)


def _memory_free(free: Shape, declared: Shape) -> str:
    return f"{memory_text(free.memory_bytes)} of {memory_text(declared.memory_bytes)} free"


def _accelerators_free(use: HostUse) -> str:
    declared = use.host.shape.accelerators
    if not declared:
        return "-"
    return f"{use.free.accelerators} of {declared} free{devices_text(use.free_device_ids)}"


def _copies_on(found: Explained, use: HostUse, component: str | None, now: float) -> list[str]:
    accounts = {it["id"]: it for it in found.endpoint["copies"]}
    lines: list[str] = []
    for it in use.copies:
        if component in (None, it.held.owner):
            account = accounts[it.held.copy_id]
            lines += _copy_lines(it, account, found.why[it.held.copy_id])
            lines += trouble_lines(account, now, "      ")
    for account in accounts.values():
        if account.get("reserved") is None and account["instance"] == use.host.instance_id:
            lines += [f"    {account['id']}  {account['owner']}  {_phase(account)}"]
            lines += [f"      {found.why[account['id']]}", *trouble_lines(account, now, "      ")]
    return lines


def _copy_lines(use: CopyUse, account: Mapping[str, Any], why: str) -> list[str]:
    held = use.held
    return [
        f"    {held.copy_id}  {held.owner}  {_phase(account)}  {reservation_text(use)}",
        f"      {_memory(account)}",
        f"      {why}{_moving(account)}",
    ]


def _phase(account: Mapping[str, Any]) -> str:
    phase: str = account.get("phase", "-")
    return f"{phase} (draining)" if account.get("draining") else phase


def _memory(account: Mapping[str, Any]) -> str:
    """The memory measured beside the reservation."""
    now, peak = account.get("memory_bytes") or 0, account.get("peak_memory_bytes") or 0
    if not now and not peak:
        return "memory not measured yet"
    reserved = memory_text(account["reserved"]["memory_bytes"])
    text = f"memory {memory_text(now)} now, {memory_text(max(now, peak))} at most, of {reserved}"
    limit = account["reserved"].get("max_memory_bytes")
    kept = account.get("memory_limit")
    if limit is None or not kept:
        return f"{text} reserved"
    return f"{text} reserved; limit {memory_text(limit)} ({kept})"


def _moving(account: Mapping[str, Any]) -> str:
    old = account.get("replaces")
    return f"; it takes the place of {old}, so that an instance can go" if old else ""


def _unplaced_lines(it: Unplaced) -> list[str]:
    copies = "copy" if it.wanted == 1 else "copies"
    have = "has" if it.count == 1 else "have"
    lines = [f"  {it.component}: {it.count} of {it.wanted} {copies} {have} no place"]
    lines += [f"    {line}" for line in it.why_not.splitlines()]
    return [*lines, f"    what would help: {it.would_help}"] if it.would_help else lines


def _use_document(
    found: Explained,
    use: HostUse,
    accounts: Mapping[str, Mapping[str, Any]],
    component: str | None,
) -> dict[str, Any]:
    host = use.host
    return {
        "id": host.instance_id,
        "type": host.instance_type,
        "zone": host.zone,
        "declared": msgspec.to_builtins(host.shape),
        "free": msgspec.to_builtins(use.free),
        "free_device_ids": list(use.free_device_ids),
        "free_text": free_text(use),
        "declared_text": shape_text(host.shape, zeros=False),
        "copies": [
            {
                "id": it.held.copy_id,
                "component": it.held.owner,
                "phase": accounts[it.held.copy_id].get("phase"),
                "draining": it.held.leaving,
                "reserved": accounts[it.held.copy_id]["reserved"],
                "device_ids": list(it.device_ids),
                "memory_bytes": accounts[it.held.copy_id].get("memory_bytes"),
                "peak_memory_bytes": accounts[it.held.copy_id].get("peak_memory_bytes"),
                "why": found.why[it.held.copy_id],
                "reason": accounts[it.held.copy_id].get("reason"),
                "last_end": accounts[it.held.copy_id].get("last_end"),
            }
            for it in use.copies
            if component in (None, it.held.owner)
        ],
    }
