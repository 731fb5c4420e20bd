"""Log files by the name of a process, an instance, a copy, an endpoint or a component."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostelry.base.errors import TerminalError
from hostelry.fleet.records import instance_folders
from hostelry.home.home import Home

COPY_ID = re.compile(r"c-[0-9a-f]{8,}")
INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,}")


def platform_logs(home: Home) -> dict[str, Path]:
    """The logs of the platform's processes, by name."""
    return {path.stem: path for path in sorted(home.logs.glob("*.log"))}


def fleet_logs(home: Home) -> dict[str, Path]:
    """The logs of agents (by instance id) and copies (by copy id) that are on disk."""
    found: dict[str, Path] = {}
    for folder in instance_folders(home.instances):
        found[folder.root.name] = folder.agent_log
        for copy_id in sorted(folder.copy_ids()):
            found[copy_id] = folder.copy(copy_id).log
    return {name: path for name, path in found.items() if path.exists()}


def copies_of(state: Mapping[str, Any] | None, name: str) -> list[str]:
    """Ids of the copies of the endpoint or component `name`, in control's `state`."""
    return [
        copy["id"]
        for endpoint in (state or {}).get("endpoints", [])
        for copy in endpoint.get("copies", ())
        if endpoint["name"] == name or copy.get("owner", "").partition("/")[2] == name
    ]


def serving_component(state: Mapping[str, Any] | None, name: str) -> str:
    """The component whose copies serve `name`: its base where it is an adapter, else itself."""
    for endpoint in (state or {}).get("endpoints", []):
        for component in endpoint.get("components", ()):
            if component["name"] == name and component.get("base"):
                return str(component["base"])
    return name


def find_logs(home: Home, state: Mapping[str, Any] | None, name: str | None) -> dict[str, Path]:
    """Title and path of each log that `name` means; None: the logs of all processes.

    A copy or instance may be named by the start of its id. Raises TerminalError with all names
    when none matches.
    """
    platform, fleet = platform_logs(home), fleet_logs(home)
    if name is None:
        return platform
    named = {k: it for k, it in platform.items() if k == name or k.startswith(f"{name}-")}
    if named:
        return named
    owned = copies_of(state, serving_component(state, name))
    matches = {it: path for it, path in fleet.items() if it in owned or it.startswith(name)}
    if not matches:
        known = ", ".join([*platform, *fleet]) or "none yet"
        raise TerminalError(f"no log for {name}: {why_none(state, name)}. There are: {known}")
    return matches


def why_none(state: Mapping[str, Any] | None, name: str) -> str:
    """Why no log has the name, as far as that is known."""
    if COPY_ID.fullmatch(name):
        return "this copy is gone, and no line of its log is kept"
    if INSTANCE_ID.fullmatch(name):
        return "this instance is gone, and no line of its copies' logs is kept"
    if state is None:
        return (
            "it is no process, instance or copy with output on disk, and control, which knows "
            "endpoints and components, does not answer"
        )
    for endpoint in state.get("endpoints", []):
        for resource in (endpoint, *endpoint.get("components", ())):
            if resource["name"] == name:
                return (
                    f"it is {resource.get('status', 'there')} and has no running copy "
                    "(`hostelry status` shows why)"
                )
    return "it is no process, endpoint, component, instance or copy with output on disk"
