"""`hostelry status` as text: values in, lines out. Reasons are printed whole. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from hostelry.cli.state import PlatformProcess

GIB = 1024**3
MIB = 1024**2


def process_lines(processes: Sequence[PlatformProcess]) -> list[str]:
    """The platform's processes."""
    rows = [["PROCESS", "PID", "PORT", "UPTIME", "MEMORY"]]
    for it in processes:
        if it.pid is None:
            rows.append([it.name, "-", "-", "not running", "-"])
        else:
            up, memory = duration(it.uptime_s or 0.0), memory_text(it.memory_bytes or 0)
            rows.append([it.name, str(it.pid), str(it.port), up, memory])
    return columns(rows)


def endpoint_lines(endpoints: Sequence[dict[str, Any]], now: float) -> list[str]:
    """Every endpoint with its components, instances and copies."""
    if not endpoints:
        return ["No endpoints."]
    return [line for endpoint in endpoints for line in one_endpoint(endpoint, now)]


def one_endpoint(endpoint: dict[str, Any], now: float) -> list[str]:
    """One endpoint, most general first."""
    config = endpoint.get("config", "-")
    if endpoint.get("pending_config"):
        config = f"{config} -> {endpoint['pending_config']}"
    age = duration(now - endpoint["created_at"]) if "created_at" in endpoint else "-"
    head = f"endpoint {endpoint['name']}  {endpoint['status']}  config {config}  age {age}"
    return [
        head,
        *reason_lines(endpoint.get("failure_reason"), "  "),
        *(line for it in endpoint.get("components", ()) for line in component_lines(it)),
        *instance_lines(endpoint),
        "",
    ]


def component_lines(component: dict[str, Any]) -> list[str]:
    """One inference component: a base with its copies, or an adapter of one."""
    base = component.get("base")
    kind = f"adapter of {base}" if base else "base"
    text = f"  component {component['name']}  {component['status']}  {kind}"
    if not base:
        text += f"  {component.get('ready_copies', 0)}/{component.get('desired_copies', 0)} ready"
    return [text, *reason_lines(component.get("failure_reason"), "    ")]


def instance_lines(endpoint: dict[str, Any]) -> list[str]:
    """An endpoint's instances, each with what it declares and what its copies use."""
    lines: list[str] = []
    copies = endpoint.get("copies", ())
    instances = endpoint.get("instances", ())
    for instance in instances:
        mine = [it for it in copies if it.get("instance") == instance["id"]]
        used = sum(it.get("memory_bytes") or 0 for it in mine)
        lines.append(
            f"  instance {instance['id']}  {instance.get('type', '-')}  "
            f"variant {instance.get('variant', '-')}  {instance.get('state', '-')}  "
            f"declared {shape_text(instance)}; reserved {reserved_text(mine)}; "
            f"in use {memory_text(used)}"
        )
        lines += reason_lines(instance.get("problem"), "    ")
        lines += [line for it in mine for line in copy_lines(it)]
    known = {it["id"] for it in instances}
    lost = [it for it in copies if it.get("instance") not in known]
    return [*lines, *(line for it in lost for line in copy_lines(it))]


def shape_text(instance: dict[str, Any]) -> str:
    """What the instance's type declares, not what this machine has."""
    accelerators = instance.get("accelerators") or 0
    text = f"{instance.get('cpus', 0):g} CPUs, {memory_text(instance.get('memory_bytes') or 0)}"
    return f"{text}, {accelerators:g} accelerators" if accelerators else text


def reserved_text(copies: list[dict[str, Any]]) -> str:
    """What copies hold of their instance's declared shape; a model endpoint's copy holds all."""
    if any("reserved" in it and it["reserved"] is None for it in copies):
        return "whole"
    sums = {
        key: sum((it.get("reserved") or {}).get(key, 0) for it in copies)
        for key in ("cpus", "memory_bytes", "accelerators")
    }
    return shape_text(sums) if any(sums.values()) else "nothing"


def copy_lines(copy: dict[str, Any]) -> list[str]:
    """One copy: its phase, its process, its adapters, and why it is not ready."""
    phase = copy.get("phase", "-") + (" (draining)" if copy.get("draining") else "")
    text = f"    copy {copy['id']}  {copy.get('owner', '-')}  {phase}"
    if copy.get("pid"):
        text += f"  pid {copy['pid']}  {memory_text(copy.get('memory_bytes') or 0)}"
    if copy.get("restarts"):
        text += f"  restarts {copy['restarts']}"
    lines = [text, *reason_lines(copy.get("reason"), "      ")]
    for adapter in copy.get("adapters", ()):
        lines.append(f"      adapter {adapter['id']}  {adapter.get('phase', '-')}")
        lines += reason_lines(adapter.get("reason"), "        ")
    return lines


def reason_lines(reason: str | None, indent: str) -> list[str]:
    """The whole reason, line by line; nothing where there is none."""
    return [f"{indent}{line}" for line in (reason or "").splitlines()]


def duration(seconds: float) -> str:
    """A duration in its two largest units: 4s, 3m12s, 2h05m, 3d04h."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def memory_text(size_bytes: int) -> str:
    """A size in MiB, or in GiB where it is large."""
    if size_bytes >= GIB:
        return f"{size_bytes / GIB:.1f} GiB"
    return f"{size_bytes / MIB:.0f} MiB"


def columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows of equal length as aligned lines."""
    table = [list(row) for row in rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
