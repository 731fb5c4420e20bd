"""Rules over the whole tree of commands."""

from collections.abc import Iterator
from typing import Any

from hostelry.cli.main import command_tree

# Parameters that are names, but of nothing that a running platform could list.
NOT_COMPLETED = {
    "accounts create": {"name": "a new account's"},
    "accounts rename": {"name": "a new name"},
    "users create": {"name": "a new user's"},
    "keys create": {"name": "a new key's"},
    "chaos run": {"name": "drills are listed by `chaos list`"},
    "cells add": {"name": "a new cell's"},
    "deploy": {"name": "a new endpoint's"},
    "kernel install": {"name": "a new kernel's"},
    "kernel remove": {"name": "Jupyter's"},
    "runtimes install": {"name": "runtimes are not of a platform"},
    "runtimes remove": {"name": "runtimes are not of a platform"},
}
# Commands without --json. Every other command prints facts and has the option.
WITHOUT_JSON = {
    "exec": "its output is the program's; --report-file is JSON",
    "demo": "a program to watch",
    "chat": "a conversation; `invoke` has the answer of one request",
    "demo-model": "writes a folder",
    "cells add": "acts; `cells ls` has the state",
    "cells router": "runs until it is stopped",
    "cells move": "acts; `cells ls` has the state",
    "completion": "prints a shell's own language",
    "dashboards grafana": "its output is JSON",
    "dashboards alerts": "prints Prometheus' own language",
    "dashboards scrape": "likewise",
    "jobs cancel": "acts; `jobs show` has the state",
    "jobs retry": "acts; `jobs show` has the state",
    "jobs drop": "acts",
    "kernel install": "writes a file that is JSON",
    "kernel remove": "acts",
    "runtimes install": "acts; `runtimes list` has the state",
    "runtimes remove": "acts",
    "scaling responsive": "acts; `scaling status` has the state",
}
NAMES = {"name", "names", "endpoint", "component", "old", "new", "graph"}


def commands(group: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each command that is not a group, with its words."""
    for name, command in (group or command_tree()).commands.items():
        words = f"{path} {name}".strip()
        if hasattr(command, "commands"):
            yield from commands(command, words)
        else:
            yield words, command


def test_every_name_is_completed() -> None:
    lacking = [
        (words, parameter.name)
        for words, command in commands()
        for parameter in command.params
        if parameter.name in NAMES and parameter._custom_shell_complete is None
    ]
    assert [it for it in lacking if it[1] not in NOT_COMPLETED.get(it[0], {})] == []
    assert len(lacking) == sum(map(len, NOT_COMPLETED.values())), "an exception that is none"


def test_what_prints_state_has_json() -> None:
    lacking = {
        words
        for words, command in commands()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert lacking == set(WITHOUT_JSON)
