"""The copies or the instance of an act, by the name that a person types. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.base.errors import TerminalError
from hostelry.cli.named import ListedComponent, ListedNames, NameKind, resolve, suggestions

Endpoints = Sequence[Mapping[str, Any]]


def restart_target(name: str, endpoints: Endpoints, own: tuple[str, str]) -> dict[str, str]:
    """Members of a restart's request: account, region, and the copy, component or endpoint.

    `endpoints` are those of control's state; of equal names those in `own`, account and region,
    come first. Raises TerminalError where nothing has that name.
    """
    ordered = _own_first(endpoints, own)
    for endpoint in ordered:
        if any(it["id"] == name for it in endpoint["copies"]):
            return {**_scope(endpoint), "copy": name}
    listed = ListedNames(
        [it["name"] for it in ordered],
        [ListedComponent(it["name"], one["name"]) for one in ordered for it in one["components"]],
    )
    found = resolve(name, listed)
    if found.adapter is not None:
        raise TerminalError(
            f"{found.adapter} is in the copies of {found.component}: "
            f"`hostelry restart {found.component}` restarts it with them"
        )
    endpoint = next(
        one
        for one in ordered
        if one["name"] == found.endpoint
        and (
            found.component is None
            or any(it["name"] == found.component for it in one["components"])
        )
    )
    if found.kind is NameKind.ENDPOINT or found.component is None:
        return {**_scope(endpoint), "endpoint": found.endpoint}
    return {**_scope(endpoint), "component": found.component}


def drain_target(name: str, endpoints: Endpoints, own: tuple[str, str]) -> dict[str, str]:
    """Members of a drain's request; raises TerminalError where there is no such instance."""
    names = []
    for endpoint in _own_first(endpoints, own):
        ids = [it["id"] for it in endpoint["instances"]]
        if name in ids:
            return {**_scope(endpoint), "instance": name}
        names += ids
    near = suggestions(name, names)
    hint = f"did you mean {' or '.join(near)}?" if near else "`hostelry status` shows all"
    raise TerminalError(f"there is no instance {name}: {hint}")


def _own_first(endpoints: Endpoints, own: tuple[str, str]) -> list[Mapping[str, Any]]:
    return sorted(endpoints, key=lambda it: (it["account"], it["region"]) != own)


def _scope(endpoint: Mapping[str, Any]) -> dict[str, str]:
    return {"account": endpoint["account"], "region": endpoint["region"]}
