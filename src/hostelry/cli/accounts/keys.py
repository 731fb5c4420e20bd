"""`hostelry keys`: access keys and OpenAI keys."""

from typing import Annotated, Any

import typer

from hostelry.base.errors import UsageError
from hostelry.cli import completion as names
from hostelry.cli.accounts.requests import (
    AccountOption,
    AnyAccountOption,
    YesOption,
    choose_accounts,
    confirm,
    day_text,
    list_accounts,
    list_keys,
    perform,
    print_made,
)
from hostelry.cli.home_option import HomeOption, JsonOption, print_json
from hostelry.cli.status_text import columns

KeyArgument = Annotated[str, typer.Argument(help="Id of the key.", autocompletion=names.keys)]
UNITS = {"m": 60, "h": 3600, "d": 86_400}
keys = typer.Typer(help="Access keys and OpenAI keys of users and accounts.", no_args_is_help=True)


@keys.callback()
def _group() -> None:
    """Keys."""


@keys.command("create")
def create_key(  # noqa: PLR0913 - the options of a command
    user: Annotated[
        str, typer.Option(help="The user. Default: the account's root.", autocompletion=names.users)
    ] = "",
    account: AccountOption = "",
    openai: Annotated[
        bool, typer.Option("--openai", help="Make a key of the OpenAI routes.")
    ] = False,
    models: Annotated[
        str, typer.Option(help="Models that an OpenAI key may call, with commas. Default: all.")
    ] = "",
    expires: Annotated[
        str, typer.Option(help="Lifetime of an OpenAI key, for example 12h or 30d.")
    ] = "",
    name: Annotated[str, typer.Option(help="A name for an OpenAI key, to know it again.")] = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key, and print it. The secret is shown once.

    A user has at most two access keys and two OpenAI keys.

    Example: hostelry keys create --user ada

    Example: hostelry keys create --user ada --openai --models chat-base --expires 30d
    """
    if not openai:
        for option, value in (("--models", models), ("--expires", expires), ("--name", name)):
            if value:
                raise UsageError(f"{option} is for OpenAI keys: add --openai")
        print_made(perform(home, "create-key", user=user, account=account), as_json=as_json)
        return
    if not user:
        raise UsageError("an OpenAI key is of a user: add --user NAME")
    made = perform(
        home,
        "create-openai-key",
        user=user,
        account=account,
        models=[it.strip() for it in models.split(",") if it.strip()],
        expires_s=parse_lifetime_s(expires) if expires else None,
        name=name,
    )
    print_made(made, as_json=as_json)


@keys.command("list")
def list_all_keys(
    user: Annotated[
        str, typer.Option(help="Show only the keys of this user.", autocompletion=names.users)
    ] = "",
    account: AnyAccountOption = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List keys, without secrets. The key of the platform's first account is in its home.

    Example: hostelry keys list --user ada
    """
    found = [
        {"account": one["id"], "user": owner, **key}
        for one in choose_accounts(list_accounts(home), account)
        for owner, key in list_keys(one)
        if user.lower() in ("", owner.lower())
    ]
    if as_json:
        print_json({"keys": found})
        return
    if not found:
        typer.echo("There is no key. `hostelry keys create` makes one.")
        return
    rows = [["KEY", "KIND", "ACCOUNT", "USER", "STATE", "CREATED", "EXPIRES", "NAME", "MODELS"]]
    rows += [
        [
            *(key["id"], key["kind"], key["account"], key["user"], state_text(key)),
            *(day_text(key["created_at"]), day_text(key.get("expires_at"))),
            *(key.get("name") or "-", ", ".join(key.get("models", ())) or "-"),
        ]
        for key in found
    ]
    typer.echo("\n".join(columns(rows)))


@keys.command("disable")
def disable_key(key: KeyArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Refuse a key, within a second on every gateway. `enable` accepts it again.

    Example: hostelry keys disable AKIAEXAMPLE
    """
    _report(perform(home, "disable-key", key=key), "is disabled", as_json=as_json)


@keys.command("enable")
def enable_key(key: KeyArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Accept a disabled key again.

    Example: hostelry keys enable AKIAEXAMPLE
    """
    _report(perform(home, "enable-key", key=key), "is enabled", as_json=as_json)


@keys.command("delete")
def delete_key(
    key: KeyArgument,
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a key.

    Example: hostelry keys delete AKIAEXAMPLE --yes
    """
    confirm(f"Delete key {key}?", yes=yes)
    _report(perform(home, "delete-key", key=key), "is deleted", as_json=as_json)


@keys.command("rotate")
def rotate_key(
    key: KeyArgument,
    now: Annotated[bool, typer.Option("--now", help="Delete the old key at once.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a new key of the same owner. The old key works until it is deleted.

    A new OpenAI key has the name, the models and the lifetime of the old one.

    Example: hostelry keys rotate AKIAEXAMPLE
    """
    made = perform(home, "rotate-key", key=key)
    if now:
        perform(home, "delete-key", key=key)
    print_made(made, as_json=as_json)


def state_text(key: dict[str, Any]) -> str:
    """The state of a key in a word."""
    if key.get("is_expired"):
        return "expired"
    return "active" if key["is_active"] else "disabled"


def parse_lifetime_s(text: str) -> float:
    """Parse a lifetime such as ``30d``, in seconds. Raises UsageError."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and len(number) < 6 and unit in UNITS):
        raise UsageError(f"--expires {text}: expected minutes, hours or days, such as 12h or 30d")
    if not int(number):
        raise UsageError(f"--expires {text}: expected more than 0")
    return float(int(number) * UNITS[unit])


def _report(done: dict[str, Any], what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        typer.echo(f"Key {done['key']} of account {done['account']} {what}.")
