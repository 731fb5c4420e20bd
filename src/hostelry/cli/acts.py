"""`hostelry restart` and `hostelry drain`: requests that control confirms, audits and performs."""

import getpass
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hostelry.base.errors import TerminalError
from hostelry.base.printable import one_line, printable
from hostelry.cli.completion import instances, restarted
from hostelry.cli.control_requests import control_answer, document, send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.named import ListedComponent, ListedNames, NameKind, resolve, suggestions
from hostelry.cli.timeline import ChartLine, clock_text
from hostelry.home.home import Credentials, UpConfig

YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Act without asking for confirmation.")
]
Endpoints = Sequence[Mapping[str, Any]]
Target = Callable[[str, Endpoints, tuple[str, str]], dict[str, str]]
VERBS = {"restart": "Restart", "drain": "Drain", "undrain": "Cancel the drain of"}
MAX_STEPS = 20
COST = (
    "There is no room beside {copies}: {they} before the new one is there. "
    "Clients wait, or get errors, where no other copy serves."
)


def restart(
    name: Annotated[
        str,
        typer.Argument(help="Copy, component or endpoint.", autocompletion=restarted),
    ],
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a copy, or all copies of a component or endpoint, with new copies.

    A new copy serves before the old copy leaves, if there is room for both. Several copies are
    replaced one after another. The command first prints what happens to each copy, and asks for
    confirmation. With --json and without --yes it only prints.

    Exit code 1 if the restart is refused.

    Example: hostelry restart chat-base

    Example: hostelry restart c-0f3a --yes
    """
    _act("restart", name, restart_target, home, yes=yes, as_json=as_json)


def drain(
    name: Annotated[str, typer.Argument(help="Id of the instance.", autocompletion=instances)],
    cancel: Annotated[bool, typer.Option(help="Cancel the drain that is in progress.")] = False,
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move the copies of an instance to other instances, and end the instance.

    No new copy is placed on the instance, and another instance replaces it. A copy that fits
    nowhere else continues to serve, and `hostelry status` shows the reason. The command first
    prints what happens to each copy, and asks for confirmation. With --json and without --yes it
    only prints.

    Exit code 1 if the drain is refused.

    Example: hostelry drain i-0f3a

    Example: hostelry drain i-0f3a --cancel
    """
    _act("undrain" if cancel else "drain", name, drain_target, home, yes=yes, as_json=as_json)


def _act(
    act: str, name: str, target: Target, home: Path | None, *, yes: bool, as_json: bool
) -> None:
    """Show the act, ask for confirmation, and request it from control.

    Raises TerminalError if control refuses.
    """
    config, credentials = load_home(home_at(home))
    state = control_answer(config, credentials, "/internal/state", knows="what runs")
    own = (credentials.account_id, credentials.region)
    asked = {**target(name, state["endpoints"], own), "who": person()}
    planned = _answer(config, credentials, act, {**asked, "dry_run": True})
    if as_json and not yes:
        print_json(planned)
        return
    if not as_json:
        typer.echo("\n".join(act_lines(planned)))
        if not yes:
            _confirm()
    done = _answer(config, credentials, act, asked)
    if as_json:
        print_json(done)
    else:
        typer.echo(done_line(done))


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise TerminalError("nothing was done: add --yes if there is no terminal to ask")
    if not typer.confirm("Do it?"):
        raise TerminalError("nothing was done")


def _answer(
    config: UpConfig, credentials: Credentials, act: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    path = f"/internal/acts/{act}"
    response = send(config, credentials, "POST", path, knows="what runs", json=dict(body))
    found = {} if response.status_code == 403 else document(response)
    if response.status_code == 200:
        return found
    if "error" not in found:
        raise TerminalError(
            f"control at {config.control_url} is of another version than this command and has no "
            f"{path}: restart it with `hostelry down` and `hostelry up`"
        )
    raise TerminalError(printable(str(found["error"])))


def person() -> str:
    """The user of this command, as the audit log names it."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"user {name}"[:200]


def restart_target(name: str, endpoints: Endpoints, own: tuple[str, str]) -> dict[str, str]:
    """Members of a restart's request: account, region, and the copy, component or endpoint.

    `endpoints` come from control's state. If a name exists several times, the `own` account and
    region win. Raises TerminalError if the name is unknown.
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
    """Return the members of a drain's request.

    Raises TerminalError if the instance does not exist.
    """
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


def act_lines(act: Mapping[str, Any]) -> list[str]:
    """The text of an act: the act itself, its steps for each copy, and its cost."""
    steps: Sequence[Mapping[str, Any]] = act["steps"]
    head = f"{VERBS[act['act']]} {act['target']} of endpoint {act['endpoint']}"
    lines = [head, f"  {printable(act['summary'])}"]
    for step in steps[:MAX_STEPS]:
        lines.append(f"  {step['copy']}  {step['owner']} on {step['instance']}")
        lines.append(f"    {one_line(step['text'])}")
    if len(steps) > MAX_STEPS:
        lines.append(f"  ... and {len(steps) - MAX_STEPS} more copies")
    first = [it["copy"] for it in steps if it["way"] == "ended_first"]
    if first:
        some = ", ".join(first[:3]) + (" ..." if len(first) > 3 else "")
        they = "it ends" if len(first) == 1 else "each ends"
        lines.append(COST.format(copies=some, they=they))
    return lines


def done_line(act: Mapping[str, Any]) -> str:
    """The line that confirms an act and names the command that shows its progress."""
    done = "It was asked for before" if act["already"] else "Recorded"
    return f"{done}: `hostelry status --endpoint {act['endpoint']}` shows how far it is."


def act_rows(endpoint: str, acts: Sequence[Mapping[str, Any]]) -> list[ChartLine]:
    """Rows of the acts on an endpoint, oldest first."""
    if not acts:
        return []
    rows = [ChartLine(f"acts on {endpoint}", "bold")]
    for act in acts:
        text = f"{act['act']} {act['target']} by {act['who']}: {act['outcome']}"
        rows.append(ChartLine(f"  {clock_text(act['at'])}  {one_line(text)}"))
    return rows
