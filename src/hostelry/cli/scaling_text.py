"""`hostelry scaling status`, `policies` and `activities` as text. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.cli.status_text import columns
from hostelry.cli.timeline_chart import clock_text, receipt_text

NOTHING = "Nothing is registered to be scaled: see RegisterScalableTarget."


def status_lines(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every target's number and bounds, and what was decided last."""
    if not targets:
        return [NOTHING]
    rows = [["TARGET", "SERVING", "WANTED", "BOUNDS", "STATUS", "POLICIES", "SUSPENDED"]]
    rows += [target_row(it) for it in targets]
    lines = columns(rows)
    for it in targets:
        lines += [f"{it['resource_id']}: {text}" for text in reasons(it)]
    return lines


def target_row(target: Mapping[str, Any]) -> list[str]:
    """One target's cells."""
    return [
        target["resource_id"],
        number(target["serving"]),
        number(target["desired"]),
        f"{target['min']} to {target['max']}",
        target["status"] or "(deleted)",
        ", ".join(it["name"] for it in target["policies"]) or "-",
        ", ".join(name for name, is_on in target["suspended"].items() if is_on) or "-",
    ]


def reasons(target: Mapping[str, Any]) -> list[str]:
    """What was decided last, why a target is not what it should be, and its next schedules."""
    said = target["last_decision"]
    found = [] if said is None else [f"{clock_text(said['at'])} {said['text']}"]
    if target["problem"]:
        found.append(target["problem"])
    if target.get("responsive"):
        found.append(f"responsive, concurrency per copy {target['responsive']}")
    for it in target["schedules"]:
        following = "never again" if it["next_at"] is None else f"next {clock_text(it['next_at'])}"
        found.append(
            f"scheduled action {it['name']}: {it['schedule']} {it['timezone']}, {following}"
        )
    return found


def explained_lines(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """For `hostelry explain`: why each target's number is what it is, and its last act."""
    lines: list[str] = []
    for it in targets:
        numbers = f"{number(it['serving'])} of {number(it['desired'])} serve"
        lines.append(f"scaled {it['resource_id']}: {numbers}, {it['min']} to {it['max']} allowed")
        lines += [f"    {text}" for text in reasons(it)]
        acts = [act for act in it["activities"] if not act["not_scaled"]]
        for act in acts[:1]:
            head = f"    {clock_text(act['started_at'])} {act['from']} -> {act['to']}"
            lines.append(f"{head} {act['status']}  {receipt_text(act['receipt'])}".rstrip())
            lines.append(f"      {act['cause']}")
    return [*lines, ""] if lines else []


def policy_lines(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every policy with its alarms and their states."""
    if not targets:
        return [NOTHING]
    lines: list[str] = []
    for target in targets:
        lines.append(target["resource_id"])
        for policy in target["policies"]:
            lines.append(f"  {policy['name']}  {policy_text(policy)}")
            for alarm in policy["alarms"]:
                lines.append(f"    {alarm['state'] or '(gone)'}  {alarm['name']}")
                lines += [f"      {alarm['reason']}"] if alarm["reason"] else []
        lines += [] if target["policies"] else ["  no policies"]
    return lines


def policy_text(policy: Mapping[str, Any]) -> str:
    """A policy in a few words."""
    tracking, stepping = policy["tracking"], policy["stepping"]
    if tracking is not None:
        metric = tracking["predefined"] or "a customized metric"
        text = f"keeps {metric} at {tracking['target_value']:g}"
        text += f", cooldowns {tracking['scale_out_cooldown_s']:g} s out"
        text += f" and {tracking['scale_in_cooldown_s']:g} s in"
        return text + (", never scales in" if tracking["disable_scale_in"] else "")
    steps, cooldown_s = len(stepping["steps"]), stepping["cooldown_s"]
    return f"{steps} steps of {stepping['adjustment']}, cooldown {cooldown_s:g} s"


def activity_lines(targets: Sequence[Mapping[str, Any]], *, not_scaled: bool) -> list[str]:
    """Every target's activities, newest first; those that changed nothing on demand."""
    lines: list[str] = []
    for target in targets:
        shown = [it for it in target["activities"] if not_scaled or not it["not_scaled"]]
        lines.append(f"{target['resource_id']}" + ("" if shown else ": no activities"))
        for it in shown:
            what = ", ".join(it["not_scaled"]) or f"{it['from']} -> {it['to']}"
            head = f"  {clock_text(it['started_at'])}  {it['status']}  {what}"
            lines.append(f"{head}  {receipt_text(it['receipt'])}".rstrip())
            lines.append(f"      {it['cause']}")
            lines.append(f"      {it['status_message']}")
    return lines or [NOTHING]


def number(value: int | None) -> str:
    """A number, where there is one."""
    return "-" if value is None else str(value)
