"""`hostelry explain` as text and as JSON values. Pure.

An endpoint is one of `/internal/placement`: the overview, with its `placement` explained.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.cli.status_text import (
    columns,
    drain_lines,
    environments_text,
    memory_text,
    owner_text,
    phase_text,
    reason_lines,
    trouble_lines,
)

JsonObject = Mapping[str, Any]
ACCOUNT_KEYS = (
    "phase",
    "draining",
    "reserved",
    "memory_bytes",
    "peak_memory_bytes",
    "reason",
    "last_end",
)


def explanation_lines(endpoint: JsonObject, now: float, component: str | None = None) -> list[str]:
    """An endpoint's placement as text: a table, each copy's place, and copies without a place.

    With `component`, its copies and its missing ones only.
    """
    base = _base_of(endpoint, component)
    lines = [f"endpoint {endpoint['name']}  {endpoint['status']}"]
    lines += [f"  {_variant_text(it)}" for it in endpoint["variants"]]
    if base != component:
        lines.append(
            f"  {component} is an adapter: it is in each copy of {base}, and takes no room"
        )
    instances = endpoint["placement"]["instances"]
    lines += ["", *[f"  {line}" for line in _table(endpoint)]] if instances else []
    for instance in instances:
        mine = _copies_on(endpoint, instance, base, now)
        if mine:
            lines += ["", f"  {instance['id']}", *mine]
    for unplaced in endpoint["placement"]["unplaced"]:
        if base in (None, unplaced["component"]):
            lines += ["", *_unplaced_lines(endpoint, unplaced)]
    return [*lines, ""]


def explanation_document(endpoint: JsonObject, component: str | None = None) -> dict[str, Any]:
    """The same for programs."""
    base = _base_of(endpoint, component)
    placement = endpoint["placement"]
    return {
        "name": endpoint["name"],
        "status": endpoint["status"],
        "variants": endpoint["variants"],
        "instances": [_instance_document(endpoint, it, base) for it in placement["instances"]],
        "unplaced": [it for it in placement["unplaced"] if base in (None, it["component"])],
    }


def _instance_document(
    endpoint: JsonObject, instance: JsonObject, component: str | None
) -> dict[str, Any]:
    accounts = {it["id"]: it for it in endpoint["copies"]}
    return {
        **instance,
        "copies": [
            {
                "id": copy["id"],
                "component": copy["component"],
                "device_ids": copy["device_ids"],
                "why": endpoint["placement"]["why"][copy["id"]],
                **{key: accounts[copy["id"]][key] for key in ACCOUNT_KEYS},
            }
            for copy in instance["copies"]
            if component in (None, copy["component"])
        ],
    }


def _variant_text(variant: JsonObject) -> str:
    if variant.get("serverless") is not None:
        return f"serverless variant {variant['name']}: {environments_text(variant['serverless'])}"
    types = " then ".join(variant["instance_types"])
    text = f"variant {variant['name']}: {variant['desired_instances']} of {types} wanted"
    if variant["max_instances"] is None:
        text += ", ManagedInstanceScaling off"
    else:
        bounds = f"{variant['min_instances']} to {variant['max_instances']}"
        text += f", ManagedInstanceScaling {bounds} ({variant['scale_in']})"
    skipped: Sequence[JsonObject] = variant["passed_over"]
    return text + "".join(f"; {it['instance_type']} is skipped: {it['problem']}" for it in skipped)


def _base_of(endpoint: JsonObject, component: str | None) -> str | None:
    """The component whose copies are shown: an adapter's base, else the component itself."""
    bases = {it["name"]: it.get("base") for it in endpoint["components"]}
    return bases.get(component) or component


def _table(endpoint: JsonObject) -> list[str]:
    """Each instance: what its type declares, what copies reserve, what is free."""
    rows = [["INSTANCE", "TYPE", "ZONE", "STATE", "COPIES", "CPUS", "MEMORY", "ACCELERATORS"]]
    states = {it["id"]: it["state"] for it in endpoint["instances"]}
    whole = [it["instance"] for it in endpoint["copies"] if it["reserved"] is None]
    for instance in endpoint["placement"]["instances"]:
        name = instance["id"]
        rows.append(
            [
                name,
                instance["type"],
                instance["zone"] or "-",
                states[name],
                str(len(instance["copies"]) + whole.count(name)),
                *(["whole"] * 3 if name in whole else _free_cells(instance)),
            ]
        )
    return columns(rows)


def _free_cells(instance: JsonObject) -> list[str]:
    """Free CPUs, memory and accelerators of what the instance declares."""
    free, declared = instance["free"], instance["declared"]
    memory = f"{memory_text(free['memory_bytes'])} of {memory_text(declared['memory_bytes'])} free"
    accelerators = "-"
    if declared["accelerators"]:
        accelerators = f"{free['accelerators']} of {declared['accelerators']} free"
        if ids := instance["free_device_ids"]:
            noun = "device" if len(ids) == 1 else "devices"
            accelerators += f" ({noun} {', '.join(map(str, ids))})"
    return [f"{free['cpus']:g} of {declared['cpus']:g} free", memory, accelerators]


def _copies_on(
    endpoint: JsonObject, instance: JsonObject, component: str | None, now: float
) -> list[str]:
    accounts = {it["id"]: it for it in endpoint["copies"]}
    why = endpoint["placement"]["why"]
    drains = [it for it in endpoint["instances"] if it["id"] == instance["id"]]
    lines: list[str] = [line for it in drains for line in drain_lines(it, now, "    ")]
    for copy in instance["copies"]:
        if component in (None, copy["component"]):
            account = accounts[copy["id"]]
            lines += [
                f"    {copy['id']}  {copy['component']}  {phase_text(account)}  "
                f"{copy['reserved_text']}",
                f"      {_memory(account)}",
                f"      {why[copy['id']]}{_moving(account)}",
                *trouble_lines(account, now, "      "),
            ]
    for account in accounts.values():
        if account["reserved"] is None and account["instance"] == instance["id"]:
            lines += [f"    {account['id']}  {owner_text(account)}  {phase_text(account)}"]
            lines += [f"      {why[account['id']]}", *trouble_lines(account, now, "      ")]
    return lines


def _memory(account: JsonObject) -> str:
    """The memory measured beside the reservation."""
    now, peak = account["memory_bytes"] or 0, account["peak_memory_bytes"] or 0
    if not now and not peak:
        return "memory not measured yet"
    reserved = memory_text(account["reserved"]["memory_bytes"])
    text = f"memory {memory_text(now)} now, {memory_text(max(now, peak))} at most, of {reserved}"
    limit, enforced_by = account["reserved"]["max_memory_bytes"], account["memory_limit"]
    if limit is None or not enforced_by:
        return f"{text} reserved"
    return f"{text} reserved; limit {memory_text(limit)} ({enforced_by})"


def _moving(account: JsonObject) -> str:
    old = account["replaces"]
    return f"; it takes the place of {old}, so that an instance can go" if old else ""


def _unplaced_lines(endpoint: JsonObject, unplaced: JsonObject) -> list[str]:
    name, count, desired = unplaced["component"], unplaced["count"], unplaced["wanted"]
    component = next(it for it in endpoint["components"] if it["name"] == name)
    # The component's own words come first: `reasons_once` may have shortened them.
    note = component["placement_note"] if unplaced["obstacle"] else None
    why = note or unplaced["why_not"]
    copies, have = "copy" if desired == 1 else "copies", "has" if count == 1 else "have"
    lines = [f"  {name}: {count} of {desired} {copies} {have} no place"]
    lines += reason_lines(why, "    ")
    help_text = unplaced["would_help"]
    return [*lines, f"    what would help: {help_text}"] if help_text else lines
