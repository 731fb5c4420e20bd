"""Several controls as text: the leader, since when and why, and the standbys. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

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
