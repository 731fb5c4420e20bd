"""Shorten repeated failure reasons in control's state to a reference to the first one. Pure.

Used for text only. JSON output has every reason. Reasons are equal if their causes are equal.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hostelry.domain.trouble import find_cause


def reasons_once(endpoints: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`endpoints` with each repeated reason replaced by "the same reason as ..."."""
    seen = _Seen()
    return [_endpoint(it, seen) for it in endpoints]


class _Seen:
    """The causes so far, each with the first resource that failed for this cause."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], str] = {}

    def first(self, kind: str, cause: str, who: str) -> str | None:
        """The resource that failed for the cause before. None if `who` is the first."""
        known = self._first.setdefault((kind, cause), who)
        return None if known == who else known


def _endpoint(endpoint: Mapping[str, Any], seen: _Seen) -> dict[str, Any]:
    named = endpoint["name"]
    return {
        **endpoint,
        "components": [_component(it, named, seen) for it in endpoint.get("components", ())],
        "copies": [_copy(it, named, seen) for it in endpoint.get("copies", ())],
    }


def _component(component: Mapping[str, Any], endpoint: str, seen: _Seen) -> dict[str, Any]:
    shown = dict(component)
    who = f"component {component['name']}"
    for key in ("failure_reason", "placement_note"):
        if reason := component.get(key):
            cause = find_cause(reason, (component["name"], component.get("base") or "", endpoint))
            first = seen.first("component", cause, who)
            shown[key] = reason if first is None else _same(first)
    return shown


def _copy(copy: Mapping[str, Any], endpoint: str, seen: _Seen) -> dict[str, Any]:
    shown = dict(copy)
    names = _names(copy, endpoint)
    shown["adapters"] = [_adapter(it, names, seen) for it in copy.get("adapters", ())]
    if reason := copy.get("reason"):
        cause = find_cause(reason, names, copy.get("log_tail", ""))
        first = seen.first("copy", cause, f"copy {copy['id']}")
        if first is not None:
            shown |= {"reason": _same(first), "log_tail": ""}
    return shown


def _names(copy: Mapping[str, Any], endpoint: str) -> Sequence[str]:
    owner = str(copy.get("owner", ""))
    return (copy["id"], copy.get("instance", ""), owner, owner.partition("/")[2], endpoint)


def _adapter(adapter: Mapping[str, Any], names: Sequence[str], seen: _Seen) -> dict[str, Any]:
    """An adapter on a copy. Its component comes first, and may have the same reason."""
    reason, alias = adapter.get("reason"), adapter["id"].partition("@")[0]
    if not reason:
        return dict(adapter)
    cause = find_cause(reason, (adapter["id"], alias, *names))
    first = seen.first("component", cause, f"adapter {adapter['id']}")
    return {**adapter, "reason": reason if first is None else _same(first)}


def _same(first: str) -> str:
    return f"the same reason as {first}"
