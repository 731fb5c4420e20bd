"""Requests of the commands to control, and the table that they look names up in."""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from hostelry.base.errors import TerminalError
from hostelry.base.printable import printable
from hostelry.cli import completion as names
from hostelry.cli.acts import person
from hostelry.cli.control_requests import control_answer, document, send
from hostelry.cli.home_option import home_at, load_home, print_json

AccountOption = Annotated[
    str,
    typer.Option(
        "--account",
        help="Id or name of the account. Default: the platform's first account.",
        autocompletion=names.accounts,
    ),
]
AnyAccountOption = Annotated[
    str,
    typer.Option(
        "--account",
        help="Id or name of an account. Default: all accounts.",
        autocompletion=names.accounts,
    ),
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Act without asking for confirmation.")
]
Row = Mapping[str, Any]


def list_accounts(home: Path | None) -> list[dict[str, Any]]:
    """Every account with its users and keys, as control knows them."""
    config, credentials = load_home(home_at(home))
    found = control_answer(config, credentials, "/internal/accounts", knows="who has keys")
    accounts: list[dict[str, Any]] = found["accounts"]
    return accounts


def perform(home: Path | None, act: str, **members: Any) -> dict[str, Any]:
    """Have control perform an act. Raises TerminalError with the reason of a refusal."""
    config, credentials = load_home(home_at(home))
    body = {"act": act, "who": person(), **{name: it for name, it in members.items() if it}}
    path = "/internal/account-acts"
    response = send(config, credentials, "POST", path, knows="who has keys", json=body)
    found = {} if response.status_code == 403 else document(response)
    if response.status_code == 200:
        return found
    if "error" not in found:
        raise TerminalError(
            f"control at {config.control_url} is of another version than this command and has no "
            f"{path}: restart it with `hostelry down` and `hostelry up`"
        )
    raise TerminalError(printable(str(found["error"])))


def confirm(question: str, *, yes: bool) -> None:
    """Ask before an act that cannot be undone. Raises TerminalError without a yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise TerminalError("nothing was done: add --yes if there is no terminal to ask")
    if not typer.confirm(question):
        raise TerminalError("nothing was done")


def choose_accounts(accounts: Sequence[dict[str, Any]], wanted: str) -> list[dict[str, Any]]:
    """The accounts with an id or name, or all for an empty text. Raises TerminalError."""
    name = wanted.lower()
    chosen = [it for it in accounts if name in ("", it["id"], it["name"].lower())]
    if not chosen:
        raise TerminalError(f"there is no account {wanted}: `hostelry accounts list` shows all")
    return chosen


def list_keys(account: Row) -> Iterator[tuple[str, dict[str, Any]]]:
    """The keys of an account, each with the name of its user, or "root"."""
    yield from (("root", it) for it in account.get("keys", ()))
    for user in account["users"]:
        yield from ((user["name"], it) for it in user["keys"])


def print_made(made: Row, *, as_json: bool) -> None:
    """Print a new key. Its secret goes to standard output, as lines for a shell."""
    if as_json:
        print_json(made)
        return
    if made["key"].startswith("AKIA"):
        variables = {"AWS_ACCESS_KEY_ID": made["key"], "AWS_SECRET_ACCESS_KEY": made["secret"]}
    else:
        variables = {"OPENAI_API_KEY": made["secret"]}
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")
    owner = f"user {made['user']}" if made["user"] else "the root"
    note = f"Key {made['key']} of {owner} of account {made['account']}. The secret is shown once."
    typer.echo(note, err=True)


def day_text(at: float | None) -> str:
    """A date in UTC, or a dash."""
    return "-" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
