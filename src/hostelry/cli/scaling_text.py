"""`hostelry scaling status`, `policies` and `activities` as text. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.cli.status_text import columns
from hostelry.cli.timeline_chart import clock_text, receipt_text

NOTHING = "There is no scalable target: see RegisterScalableTarget."


def status_lines(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every target's capacity and bounds, and its last decision."""
    if not targets:
        return [NOTHING]
    rows = [["TARGET", "SERVING", "WANTED", "BOUNDS", "STATUS", "POLICIES", "SUSPENDED"]]
    rows += [target_row(it) for it in targets]
    lines = columns(rows)
    for target in targets:
        lines += [f"{target['resource_id']}: {text}" for text in reasons(target)]
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
    """The last decision, why the capacity is not the desired one, and the next schedules."""
    last = target["last_decision"]
    found = [] if last is None else [f"{clock_text(last['at'])} {last['text']}"]
    if target["problem"]:
        found.append(target["problem"])
    if target.get("responsive"):
        found.append(f"responsive, concurrency per copy {target['responsive']}")
    for action in target["schedules"]:
        at = action["next_at"]
        following = "never again" if at is None else f"next {clock_text(at)}"
        found.append(
            f"scheduled action {action['name']}: {action['schedule']} {action['timezone']}, "
            f"{following}"
        )
    return found


def explained_lines(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """For `hostelry explain`: the reasons of each target's capacity, and its last act."""
    lines: list[str] = []
    for target in targets:
        numbers = f"{number(target['serving'])} of {number(target['desired'])} serve"
        bounds = f"{target['min']} to {target['max']} allowed"
        lines.append(f"scaled {target['resource_id']}: {numbers}, {bounds}")
        lines += [f"    {text}" for text in reasons(target)]
        acts = [act for act in target["activities"] if not act["not_scaled"]]
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
    """Every target's activities, newest first; `not_scaled`: those without a change, too."""
    lines: list[str] = []
    for target in targets:
        shown = [it for it in target["activities"] if not_scaled or not it["not_scaled"]]
        lines.append(f"{target['resource_id']}" + ("" if shown else ": no activities"))
        for act in shown:
            change = ", ".join(act["not_scaled"]) or f"{act['from']} -> {act['to']}"
            head = f"  {clock_text(act['started_at'])}  {act['status']}  {change}"
            lines.append(f"{head}  {receipt_text(act['receipt'])}".rstrip())
            lines += [f"      {act['cause']}", f"      {act['status_message']}"]
    return lines or [NOTHING]


def number(value: int | None) -> str:
    """A number, where there is one."""
    return "-" if value is None else str(value)
