"""Several hosts as text: the leader, since when and why, the standbys, versions. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.base.version_skew import skew_refusal
from hostelry.cli.status_text import duration


def leader_lines(control: Mapping[str, Any] | None, now: float) -> list[str]:
    """One line a control, the leader first; none where there is one control only."""
    if control is None:
        return []
    changes: Sequence[Mapping[str, Any]] = control["changes"]
    members: Sequence[Mapping[str, Any]] = control["members"]
    lines = [
        f"leader   {one['id']}  {one['address']}  epoch {control['epoch']}{since(changes, now)}"
        for one in members
        if one["leads"]
    ]
    lines = lines or [f"leader   none  ({control['trouble'] or 'one is being elected'})"]
    others = [f"standby  {it['id']}  {it['address']}" for it in members if not it["leads"]]
    return [*lines, *(others or ["standby  none: no control follows where the leader ends"])]


def since(changes: Sequence[Mapping[str, Any]], now: float) -> str:
    """For how long the newest epoch lasts, and why the one before ended."""
    if not changes:
        return ""
    newest = changes[0]
    return f", for {duration(now - newest['at'])}: {newest['reason']}"


def version_lines(state: Mapping[str, Any]) -> list[str]:
    """One line a version of controls and gateways' hosts, where there are several, and a warning.

    The state of an older control has no versions: then there are no lines.
    """
    members = (state.get("control") or {}).get("members", ())
    hosts = state.get("gateway_hosts", ())
    named = [("control", one, one["id"]) for one in members]
    named += [("gateways", one, one["host_id"]) for one in hosts]
    found: dict[str, list[str]] = {}
    for what, one, name in named:
        found.setdefault(one.get("version") or "unknown", []).append(f"{what} {name}")
    own = state.get("version")
    if own is None or found.keys() <= {own}:
        return []
    found.setdefault(own, ["control that leads"])
    lines = [f"version {it}  {', '.join(found[it])}" for it in sorted(found)]
    for version in sorted(found):
        why = skew_refusal(", ".join(found[version]), version, "control that leads", own)
        lines += [] if why is None else [f"warning: {why}"]
    return lines
