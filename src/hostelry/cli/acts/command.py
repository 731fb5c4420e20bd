"""`hostelry restart` and `hostelry drain`: acts that control confirms, audits and carries out."""

import getpass
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from hostelry.base.errors import TerminalError
from hostelry.cli.acts.act_target import Endpoints, drain_target, restart_target
from hostelry.cli.acts.act_text import act_lines, done_line
from hostelry.cli.completion.names import instances, restarted
from hostelry.cli.control_requests import control_answer, document, send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.cli.printable import printable
from hostelry.home.home import Credentials, UpConfig

YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Act without asking for confirmation.")
]
Target = Callable[[str, Endpoints, tuple[str, str]], dict[str, str]]


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
    """Show the act, ask, and have control carry it out; raises TerminalError where it refuses."""
    config, credentials = settled(home_at(home))
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
        raise TerminalError("nothing was done: add --yes where there is no terminal to ask")
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
